//! Output and exit code of each command.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{cellar, cellar_with_guests, check_shape, result_of, result_of_run, run, run_with_input, text};

#[test]
fn a_result_is_all_there_is_on_standard_output() {
    let request = json!({"cells": [
        {"language": "py", "title": "write", "code": "open('n.txt', 'w').write('41')\nprint('written')"},
        {"language": "js", "code": "const n = await read('n.txt');\nprint(Number(n) + 1);"},
    ]});
    let mut command = cellar_with_guests(["run", "-", "--json"]);
    let ended = run_with_input(&mut command, request.to_string().as_bytes());
    assert_eq!((ended.code, ended.stdout.lines().count()), (0, 1), "{}", ended.stderr);
    let result: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(text(&result), "[1/2] write\nwritten\n\n[2/2]\n42");
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&result), ["content", "details", "isError"]);
    let lists = ["jsonOutputs", "images", "markdownOutputs", "statusEvents"];
    assert_eq!(keys(&result["details"]), [&["cells", "language", "languages"], lists.as_slice()].concat());
    let cell = ["index", "title", "language", "code", "status", "output", "durationMs", "exitCode", "statusEvents"];
    assert_eq!(keys(&result["details"]["cells"][0]), [cell.as_slice(), &["hasMarkdown", "usage"]].concat());
    assert_eq!(result["details"]["languages"], json!(["py", "js"]));
    assert_eq!(result["isError"], false);
}

#[test]
fn the_first_failure_stops_a_run() {
    let result = result_of("py", &["x = 1", "x / 0", "print(x)"], &[]);
    let cells = result["details"]["cells"].as_array().expect("cells");
    let statuses: Vec<&Value> = cells.iter().map(|cell| &cell["status"]).collect();
    assert_eq!(statuses, ["complete", "error", "pending"]);
    let error = &cells[1]["error"];
    assert_eq!((&error["kind"], &error["type"]), (&json!("raised"), &json!("ZeroDivisionError")));
    assert_eq!((&error["line"], &error["snippet"]), (&json!(1), &json!("x / 0")));
    assert_eq!((&result["isError"], &result["details"]["isError"]), (&json!(true), &json!(true)));
}

#[test]
fn a_run_may_go_on_after_a_failure() {
    let request = json!({"cells": [{"language": "py", "code": "1 / 0"}, {"language": "py", "code": "print(2)"}]});
    let result = result_of_run(&request, &["--keep-going"]);
    assert_eq!((&result["isError"], &result["details"]["cells"][1]["status"]), (&json!(true), &json!("complete")));
    assert!(text(&result).ends_with("Cell 1 failed.\n\n[2/2]\n2"), "{}", text(&result));
}

#[test]
fn exit_codes_tell_cells_from_requests_from_the_engine() {
    let code = |arguments: &[&str]| run(&mut cellar_with_guests(arguments)).code;
    assert_eq!(code(&["eval", "-l", "py", "1"]), 0);
    assert_eq!(code(&["eval", "-l", "py", "1 / 0"]), 1);
    assert_eq!(code(&["eval", "-l", "ruby", "1"]), 2);
    assert_eq!(code(&["eval", "1"]), 2);
    assert_eq!(code(&["run", "no-such-file.json"]), 2);
    assert_eq!(code(&["eval", "-l", "py", "1", "--mount", "no-such-folder:/data"]), 2);
    assert_eq!(code(&["eval", "-l", "py", "1", "--guests", "/no/such/folder"]), 3);
}

#[test]
fn a_missing_guest_is_named_with_its_remedy() {
    let ended = run(&mut cellar(["eval", "-l", "js", "1", "--guests", "/no/such/folder"]));
    assert_eq!(
        (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
        (
            3,
            "",
            "error: the guest `javascript` is not there: nothing at `/no/such/folder/javascript`\n\
             hint: build the guests with `make guests`, or name their folder with --guests\n"
        )
    );
}

#[test]
fn eval_prints_what_the_cell_prints_where_the_cell_prints_it() {
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7";
    let ended = run(&mut cellar_with_guests(["eval", "-l", "py", code]));
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, "out\n42\n", "err\n"));
    let ended = run(&mut cellar_with_guests(["eval", "-l", "py", "print('a', end='')\n1 / 0"]));
    assert_eq!((ended.code, ended.stdout.as_str()), (1, "a\n"));
    assert!(ended.stderr.ends_with("ZeroDivisionError: division by zero\n"), "{}", ended.stderr);
}

#[test]
fn eval_reads_standard_input() {
    let ended = run_with_input(&mut cellar_with_guests(["eval", "-l", "js", "-"]), b"print(1 + 1)");
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "2\n"));
}

#[test]
fn a_source_file_is_run_cell_by_cell() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cells.py");
    fs::write(&path, "# what it does\n# %% first\nx = 20\n# %%\nprint(x + 1)\n").expect("written");
    let ended = run(cellar_with_guests(["run", "--plain"]).arg(&path));
    let lines: Vec<&str> = ended.stdout.lines().filter(|line| !line.starts_with('✓')).collect();
    assert_eq!(
        lines,
        ["[1/2] Python · first", "│ # what it does", "│ x = 20", "", "[2/2] Python", "│ print(x + 1)", "  21", ""]
    );
    assert_eq!(ended.code, 0);
}

#[test]
fn a_failure_in_an_imported_file_is_shown_with_its_place_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let shown = |name: &str, source: &str| {
        fs::write(folder.path().join(name), source).expect("written");
        run(cellar_with_guests(["run", "--plain"]).arg(folder.path().join(name))).stdout
    };
    let python =
        "open('helper.py', 'w').write('def half(x):\\n    return x / 0\\n')\n# %%\nimport helper\nhelper.half(1)\n";
    let shown_python = shown("cells.py", python);
    assert!(shown_python.contains("    File \"/workspace/helper.py\", line 2, in half\n"), "{shown_python}");
    let javascript = "require('fs').writeFileSync('helper.mjs', 'export function name(x) {\\n  return x.name;\\n}')\n\
                      // %%\nimport { name } from './helper.mjs'\nname(null)\n";
    let shown_javascript = shown("cells.js", javascript);
    assert!(shown_javascript.contains("at name (/workspace/helper.mjs:2:"), "{shown_javascript}");
    // Where there is nothing to add, nothing is added.
    let short = shown("short.py", "1 / 0\n");
    assert!(short.contains("\n1 │ 1 / 0\n") && !short.contains("Traceback"), "{short}");
}

#[test]
fn events_come_while_the_cell_runs_and_rise_by_one() {
    // The cell goes on when its first text is here.
    let folder = tempfile::tempdir().expect("a folder");
    let code = "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('/data/heard'): time.sleep(0.05)\nprint('second')";
    let mount = format!("{}:/data", folder.path().display());
    let arguments = ["eval", "-l", "py", code, "--events", "--mount", &mount, "--timeout", "600"];
    let mut child = cellar_with_guests(arguments).spawn().expect("cellar starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let first = lines.find(|line| line.contains("first\\n")).expect("the first text");
    assert!(first.contains(r#""type":"stdout""#), "{first}");
    fs::write(folder.path().join("heard"), "").expect("written");
    let rest: Vec<String> = lines.collect();
    assert!(rest.last().expect("an end").contains(r#""type":"run_finished","isError":false"#));
    assert!(child.wait().expect("ended").success());
    let ended = run(&mut cellar_with_guests(["eval", "-l", "py", "print(1)", "--events"]));
    for (n, line) in ended.stdout.lines().enumerate() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(event["seq"], n);
    }
}

#[test]
fn folders_are_granted_by_flags() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("in.txt"), "given").expect("written");
    let at = |access: &str| format!("{}:/data{access}", folder.path().display());
    let read = "print(open('/data/in.txt').read())";
    assert_eq!(text(&result_of("py", &[read], &["--mount", &at("")])), "given");
    let write = "open('/data/out.txt', 'w').write('made')";
    assert_eq!(result_of("py", &[write], &["--mount", &at("")])["isError"], true);
    assert_eq!(result_of("py", &[write], &["--mount", &at(":rw")])["isError"], false);
    assert_eq!(fs::read_to_string(folder.path().join("out.txt")).expect("made"), "made");
    let workspace = folder.path().to_str().expect("text");
    assert_eq!(text(&result_of("py", &["print(open('in.txt').read())"], &["--workspace", workspace])), "given");
    assert_eq!(result_of("py", &["open('in.txt')"], &[])["isError"], true);
}

#[test]
fn the_environment_is_what_was_given() {
    let code = "import os\nprint(os.environ.get('GIVEN'), os.environ.get('CELLAR_GUESTS'))";
    assert_eq!(text(&result_of("py", &[code], &["--env", "GIVEN=yes"])), "yes None");
}

#[test]
fn fuel_and_timeouts_end_cells_and_say_which() {
    let kind = |result: &Value| result["details"]["cells"][0]["error"]["kind"].clone();
    assert_eq!(kind(&result_of("py", &["while True: pass"], &["--fuel", "100000000"])), "fuel");
    assert_eq!(kind(&result_of("py", &["while True: pass"], &["--timeout", "1"])), "timeout");
    let request = json!({"cells": [{"language": "py", "code": "while True: pass", "timeout": 1}]});
    assert_eq!(kind(&result_of_run(&request, &[])), "timeout");
}

#[test]
fn an_interrupt_stops_the_cell_and_keeps_its_output() {
    let code = "print('begun', flush=True)\nwhile True: pass";
    let mut child = cellar_with_guests(["eval", "-l", "py", code, "--events"]).spawn().expect("cellar starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    lines.find(|line| line.contains("begun")).expect("the cell runs");
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.contains(r#""kind":"interrupted""#)), "{rest:?}");
    // It dies by the signal, so that the loop of a shell ends as well.
    assert_eq!(child.wait().expect("ended").signal(), Some(2));
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let code = "for n in range(100000): print(n)";
    let mut child = cellar_with_guests(["eval", "-l", "py", code]).stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let ended = child.wait_with_output().expect("ended");
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn long_output_is_cut_and_the_result_says_so() {
    let result = result_of("py", &["for n in range(20000): print('line', n)"], &[]);
    let truncation = &result["details"]["meta"]["truncation"];
    assert_eq!((&truncation["truncatedBy"], &truncation["totalLines"]), (&json!("lines"), &json!(20_000)));
    let text = text(&result);
    assert!(text.starts_with("line 0\n") && text.ends_with("line 19999"), "{} bytes", text.len());
    assert!(text.len() < 52_000 && text.contains("bytes left out; all of it is in /"));
    let artifact = truncation["artifact"]["path"].as_str().expect("a path");
    let whole = fs::read_to_string(artifact).expect("it is there after the run");
    assert_eq!((whole.lines().count(), whole.lines().last()), (20_000, Some("line 19999")));
}

#[test]
fn a_configuration_with_an_unknown_key_is_refused() {
    let (_folder, path) = crate::support::config("[tool.add]\ncommand = ['x']\n");
    let ended = run(cellar_with_guests(["eval", "-l", "py", "1", "--config"]).arg(&path));
    let expected = format!("error: `{}` is not valid\n  tool: unknown field, did you mean `tools`?\n", path.display());
    assert_eq!((ended.code, ended.stderr), (2, expected));
}

#[test]
fn doctor_explains_what_is_in_force() {
    let (_folder, path) = crate::support::config(
        "[tools.add]\ncommand = ['x']\n[limits]\ntimeout = 7\n[artifacts]\nsession_mib = 5\nunused_days = 9\n",
    );
    let ended = run(cellar_with_guests(["doctor", "--json", "--config"]).arg(&path));
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    check_shape("doctor", &report);
    let kept = &report["config"]["artifacts"];
    assert_eq!((&kept["sessionMib"], &kept["unusedDays"], &kept["totalMib"]), (&json!(5), &json!(9), &json!(8192)));
    assert_eq!((ended.code, &report["problems"]), (0, &json!([])));
    assert_eq!(report["config"]["tools"], json!(["add"]));
    assert_eq!(report["config"]["limits"]["timeout"], 7);
    let guests =
        report["guests"].as_array().expect("guests").iter().map(|guest| guest["guest"].as_str().expect("a name"));
    assert!(guests.eq(["python", "python-data", "javascript", "javascript-charts"]), "{}", report["guests"]);
    assert_eq!(report["guests"][0]["state"], "ready");
    let ended = run(&mut cellar(["doctor", "--guests", "/no/such/folder"]));
    assert_eq!(ended.code, 3);
    assert!(ended.stdout.contains("the guest `python` is missing: run `make guests`"), "{}", ended.stdout);
}

#[test]
fn a_cache_below_an_open_folder_is_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let (open, cache) = (folder.path().join("open"), folder.path().join("open/cache"));
    fs::create_dir_all(&cache).expect("folders");
    let told = |mode| {
        fs::set_permissions(&open, fs::Permissions::from_mode(mode)).expect("set");
        run(cellar_with_guests(["doctor"]).env("CELLAR_CACHE", &cache)).stdout
    };
    let warning = "all users of this machine may put something else in the place of";
    assert!(!told(0o755).contains(warning));
    assert!(told(0o777).contains(warning));
}

#[test]
fn doctor_describes_the_server_and_its_tenants() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("cellar.toml");
    fs::write(&config, "[server]\nlisten = \"127.0.0.1:9\"\n[tenants.red]\nmemory_mib = 256\n[tenants.blue]\n")
        .expect("written");
    let mut command = cellar_with_guests(["doctor", "--config", config.to_str().expect("text")]);
    let shown = run(command.env("CELLAR_STORE", folder.path().join("store"))).stdout;
    let row =
        |name: &str| shown.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("listen").ends_with("127.0.0.1:9"), "{shown}");
    assert!(row("tenant red").contains("256 MiB of memory"), "{shown}");
    assert!(row("tenant blue").contains(" sessions, "), "{shown}");
}

#[test]
fn a_second_interrupt_leaves_at_once() {
    // A C loop that polls nothing would hold up the first interrupt until the grace is over.
    let code = "print('begun', flush=True)\nsum(range(10**12))";
    let mut child = cellar_with_guests(["eval", "-l", "py", code, "--events"]).spawn().expect("cellar starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    lines.find(|line| line.contains("begun")).expect("the cell runs");
    let interrupt = || std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt().expect("kill runs").success());
    std::thread::sleep(Duration::from_millis(100));
    // It may have ended by now.
    let _ = interrupt();
    assert_eq!(child.wait().expect("ended").signal(), Some(2));
}

#[test]
fn a_socket_that_is_not_there_is_named() {
    let ended = run(&mut cellar(["eval", "-l", "py", "1", "--connect", "/no/such/socket"]));
    let expected = "error: cannot use the session behind `/no/such/socket`\n  caused by: No such file or directory \
                    (os error 2)\nhint: the socket lives as long as the agent call that it was made for\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (3, expected));
    let ended = run(&mut cellar(["eval", "-l", "py", "1", "--connect", "/no/such/socket", "--fuel", "1"]));
    assert_eq!(ended.code, 2);
}

#[test]
fn flags_that_would_mean_nothing_are_refused() {
    for arguments in [
        ["stdio", "--session", "x"],
        ["stdio", "--record", "x"],
        ["stdio", "--connect", "x"],
        ["repl", "--connect", "x"],
        ["repl", "--llm", "x"],
    ] {
        let ended = run(&mut cellar(arguments));
        assert_eq!(ended.code, 2, "{arguments:?}");
        assert!(ended.stderr.contains(&format!("unexpected argument '{}'", arguments[1])), "{}", ended.stderr);
    }
}

#[test]
fn completions_are_scripts() {
    let ended = run(&mut cellar(["completions", "bash"]));
    assert_eq!(ended.code, 0);
    assert!(ended.stdout.contains("_clap_complete_cellar()"));
}
