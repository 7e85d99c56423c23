//! The table of what imports where, which is made by importing it in each image: `guests/IMPORTS.md`. With `CELLAR_BLESS=1` it is
//! written.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use serde::Deserialize;
use similar::TextDiff;

use crate::support::{cellar, root, run};

const HEAD: &str = "# What imports where

This page is made by importing everything in each image, and checked by the tests: `make bless` writes it. Packages that no image has
are [added by the owner of a host](../host/cli/README.md#packages), when they are in pure Python or JavaScript.
";

/// Imports all that the library of a Python image has, and all modules of the standard library that there are anywhere.
const PYTHON: &str = r#"
import contextlib, importlib, importlib.metadata, io, json, pkgutil, sys
def tried(name):
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            importlib.import_module(name)
        return ""
    except Exception as error:
        return str(error)
there = {name for _, name, _ in pkgutil.iter_modules(["/usr/lib/python3.13"]) if name.isidentifier()}
owners = {}
for each in importlib.metadata.distributions():
    name = each.metadata["Name"]
    modules = {file.parts[0].removesuffix(".py") for file in each.files or ()}
    modules.add({"pillow": "PIL"}.get(name, name.replace("-", "_")))
    owners |= {module: f"{name} {each.version}" for module in modules}
owners["pylab"] = owners.get("matplotlib")
packages = {}
for name in there - sys.stdlib_module_names:
    if not name.startswith("_") and not tried(name):
        packages[name] = owners.get(name) or "the image's own"
of_windows = {"msvcrt", "nt", "winreg", "winsound"}
public = [name for name in sys.stdlib_module_names - of_windows if not name.startswith("_")]
missing = {name: why for name in public if (why := tried(name))}
print(json.dumps({"packages": packages, "missing": missing}))
"#;

/// Imports every module that Node has.
const JAVASCRIPT: &str = r#"
const names = `assert assert/strict async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns
dns/promises domain events fs fs/promises http http2 https inspector module net os path path/posix path/win32 perf_hooks process
punycode querystring readline readline/promises repl sea sqlite stream stream/consumers stream/promises stream/web string_decoder
sys test timers timers/promises tls trace_events tty url util util/types v8 vm wasi worker_threads zlib`.split(/\s+/);
const missing = {};
const packages = {};
for (const name of [...new Set([...names, ...require("module").builtinModules.map((name) => name.replace("node:", ""))])]) {
  try {
    await import(`node:${name}`);
    packages[name] = "";
  } catch (error) {
    missing[name] = error.message;
  }
}
console.log(JSON.stringify({ packages, missing }));
"#;

/// Packages of an image, and those missing that there are elsewhere, with the reasons.
#[derive(Deserialize)]
struct Image {
    packages: BTreeMap<String, String>,
    missing: BTreeMap<String, String>,
}

fn image(guest: &str, language: &str, code: &str) -> Image {
    let ended =
        run(&mut cellar(["eval", "-l", language, code, "--guest", guest, "--memory", "2048", "--timeout", "300"]));
    assert_eq!(ended.code, 0, "{guest}: {}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{guest}: {error}\n{}", ended.stdout))
}

/// A table with a column for each of two images.
fn table(page: &mut String, what: [&str; 2], guests: [&str; 2], [first, second]: [&BTreeMap<String, String>; 2]) {
    let _ = writeln!(page, "| {} | {} | `{}` | `{}` |\n|---|---|---|---|", what[0], what[1], guests[0], guests[1]);
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    for name in names {
        let has = |image: &BTreeMap<String, String>| if image.contains_key(name) { "yes" } else { "" };
        let package = second.get(name).or(first.get(name)).expect("one has it");
        let _ = writeln!(page, "| `{name}` | {package} | {} | {} |", has(first), has(second));
    }
}

/// Returns the reason for a missing module from the message about it.
fn reason(message: &str) -> &str {
    message.split_once("': ").map_or("", |(_, why)| why)
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let [python, data] = ["python", "python-data"].map(|guest| image(guest, "py", PYTHON));
    page.push_str("\n## Python: packages\n\n");
    let packages = [&python.packages, &data.packages];
    table(&mut page, ["import", "package"], ["python", "python-data"], packages);
    page.push_str("\n## Python: the standard library\n\nAll of it imports in both images, but for these modules:\n\n| import | why not |\n|---|---|\n");
    assert_eq!(python.missing.keys().collect::<Vec<_>>(), data.missing.keys().collect::<Vec<_>>());
    for (name, message) in &data.missing {
        let _ = writeln!(page, "| `{name}` | {} |", reason(message).replace('|', "\\|"));
    }
    let script = image("javascript", "js", JAVASCRIPT);
    let list =
        |names: &BTreeMap<String, String>| names.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let _ = write!(
        page,
        "\n## JavaScript\n\nOf Node's own modules, with `node:` before them, `javascript` imports:\n{}.\n\nThese are not there: {}. What a sandbox cannot do is refused when it is used: [javascript](javascript/README.md#what-programs-find).\n",
        list(&script.packages),
        list(&script.missing)
    );
    page
}

#[test]
fn the_page_says_what_imports_where() {
    let path = root().join("guests/IMPORTS.md");
    let found = page();
    if std::env::var_os("CELLAR_BLESS").is_some() {
        fs::write(&path, &found).expect("written");
    }
    let kept = fs::read_to_string(&path).expect("the page");
    let diff = TextDiff::from_lines(&kept, &found);
    assert!(kept == found, "`make bless` accepts it\n{}", diff.unified_diff().header("kept", "found"));
}

/// Imports what `names` names, and prints each whose refusal does not name the guest that has it.
const REFUSALS: &str = r#"
for name in names.split():
    try:
        __import__(name)
        print(name, "is there")
    except ModuleNotFoundError as error:
        if "`python-data`" not in str(error):
            print(error)
"#;

#[test]
fn whoever_misses_a_package_of_the_other_guest_is_told_of_it() {
    let page = fs::read_to_string(root().join("guests/IMPORTS.md")).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix("|  | yes |"));
    let names: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert!(names.len() > 40, "{names:?}");
    let code = format!("names = {:?}\n{REFUSALS}", names.join(" "));
    let ended = run(&mut cellar(["eval", "-l", "py", &code]));
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""), "{}", ended.stderr);
}
