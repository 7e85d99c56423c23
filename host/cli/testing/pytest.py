def _test():
    import importlib.util
    import json
    import sys

    import pytest

    order = json.loads(sys.argv[1])
    tests = {}

    def line_of(report):
        crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
        if crash is not None and crash.path.endswith(report.location[0]):
            return crash.lineno
        return (report.location[1] or 0) + 1

    class Collected:
        def pytest_runtest_logreport(self, report):
            test = tests.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0, "message": "", "detail": ""})
            test["file"], test["line"] = report.location[0], test.get("line") or line_of(report)
            test["seconds"] += report.duration
            if report.failed:
                test["outcome"] = "failed" if report.when == "call" else "error"
                test["line"], test["detail"] = line_of(report), report.longreprtext
                crash = getattr(report.longrepr, "reprcrash", None)
                test["message"] = crash.message if crash is not None else report.longreprtext.strip().split("\n")[-1]
            elif report.skipped:
                test["outcome"] = "skipped"
                why = getattr(report, "wasxfail", None) or (report.longrepr[2] if isinstance(report.longrepr, tuple) else "")
                test["message"] = str(why)

        def pytest_collectreport(self, report):
            if report.failed:
                detail = report.longreprtext
                tests[report.nodeid] = {
                    "outcome": "error", "seconds": 0.0, "file": report.nodeid.split("::")[0], "line": 1,
                    "message": detail.strip().split("\n")[-1], "detail": detail,
                }

    sys.dont_write_bytecode = True
    coverage = None
    if order["coverage"]:
        if importlib.util.find_spec("coverage") is None:
            print("no coverage: add it with `cellar packages add coverage`, and grant it with --packages coverage", file=sys.stderr)
        else:
            import coverage as measuring

            coverage = measuring.Coverage(data_file=None, source=["/workspace"], omit=["*/test_*.py", "*_test.py"])
            # There is no native code in a package: it traces in Python.
            coverage.set_option("run:disable_warnings", ["no-ctracer"])
            coverage.start()
    usual = ["-p", "no:cacheprovider", "--rootdir=/workspace", "--color=no"]
    status = int(pytest.main([*usual, *order["arguments"], *order["files"]], plugins=[Collected()]))
    if coverage is not None:
        coverage.stop()
        try:
            coverage.report()
        except measuring.CoverageException as error:
            print(f"no coverage: {error}", file=sys.stderr)
    listed = [{"name": name, **test} for name, test in tests.items()]
    display({order["type"]: {"tests": listed, "status": status}}, raw=True)
    return status


# 5: no tests were found.
if _test() not in (0, 5):
    raise SystemExit(1)
