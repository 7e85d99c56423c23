//! The programs of `fixtures/examples`, run as a newcomer runs them, against the output that stands beside them.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::serve::Served;
use crate::support::{Ended, node, root, run, run_with_input};

fn examples() -> PathBuf {
    root().join("fixtures/examples")
}

/// A machine with `cellar` on the `PATH`, and nothing kept yet.
pub(super) struct Newcomer(TempDir);

impl Newcomer {
    pub(super) fn new() -> Newcomer {
        let folder = tempfile::tempdir().expect("a folder");
        let (program, guests) = (env!("CARGO_BIN_EXE_cellar"), root().join("target/guests"));
        // What starts it may pass on no variables, as clients of MCP do.
        let script = format!(
            "#!/bin/sh\nexport CELLAR_GUESTS='{}' CELLAR_STORE=\"${{CELLAR_STORE:-{}/store}}\"\nexec '{program}' \"$@\"\n",
            guests.display(),
            folder.path().display()
        );
        let path = folder.path().join("cellar");
        std::fs::write(&path, script).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("executable");
        Newcomer(folder)
    }

    /// Folder of its own, which is on the `PATH`.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut path = OsString::from(self.0.path());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new(program.as_ref());
        command.current_dir(self.0.path()).env("PATH", path).env("NO_COLOR", "1");
        for name in ["CELLAR_SESSION_SOCKET", "CELLAR_LOG", "CELLAR_STORE", "CELLAR_GUESTS"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs an example by a program, and compares its standard output.
    fn check(&self, program: impl AsRef<Path>, example: &str, expected: &str) {
        check(expected, run(self.command(program).arg(examples().join(example))));
    }
}

fn check(expected: &str, ended: Ended) {
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let expected = std::fs::read_to_string(examples().join(expected)).expect("what it prints");
    assert_eq!(ended.stdout, expected, "{}", ended.stderr);
}

fn python_of(folder: &str) -> PathBuf {
    let python = root().join("target").join(folder).join("bin/python");
    assert!(python.exists(), "no `{}`; run `make packages` first", python.display());
    python
}

#[test]
fn embed() {
    let program = Path::new(env!("CARGO_BIN_EXE_cellar")).with_file_name("examples").join("embed");
    let build = "cargo build --release --locked --workspace --example embed";
    assert!(program.exists(), "no `{}`; run `{build}` first", program.display());
    let mut command = Newcomer::new().command(program);
    check("embed.rs.expected", run(command.current_dir(root())));
}

#[test]
fn a_program_for_a_shell() {
    let newcomer = Newcomer::new();
    let mut command = newcomer.command("cellar");
    command.arg("run").arg(examples().join("hello.py")).args(["--", "--name", "Ada", "--times", "2"]);
    check("hello.py.expected", run(&mut command));
}

#[test]
fn a_notebook() {
    let newcomer = Newcomer::new();
    let notebook = newcomer.path().join("notebook.ipynb");
    std::fs::copy(examples().join("notebook.ipynb"), &notebook).expect("copied");
    check("notebook.ipynb.expected", run(newcomer.command("cellar").arg("run").arg(&notebook).arg("--inplace")));
    let written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(notebook).expect("the notebook")).expect("JSON");
    assert_eq!(written["cells"][0]["outputs"][0]["data"]["text/plain"], serde_json::json!(["45"]), "{written}");
}

#[test]
fn files_of_tests() {
    let mut ended = run(Newcomer::new().command("cellar").args(["test", "tests"]).current_dir(examples()));
    // The rest are times.
    let is_count = |line: &&str| line.contains("3 passed");
    assert!(ended.stdout.lines().any(|line| is_count(&line)), "{}", ended.stdout);
    "3 passed\n".clone_into(&mut ended.stdout);
    check("tests/expected", ended);
}

#[test]
fn stdio_from_python() {
    Newcomer::new().check("python3", "stdio.py", "stdio.py.expected");
}

#[test]
fn stdio_from_node() {
    Newcomer::new().check(node(), "stdio.mjs", "stdio.mjs.expected");
}

#[test]
fn mcp() {
    Newcomer::new().check(python_of("mcp"), "mcp_client.py", "mcp_client.py.expected");
}

/// Its model is a script behind an endpoint of this machine, which holds it to what the agent says.
#[test]
fn agent() {
    let newcomer = Newcomer::new();
    let mut model = newcomer.command("python3");
    let mut model = model.arg(root().join("fixtures/mcp/scripted_model.py")).spawn().expect("it starts");
    let mut url = String::new();
    BufReader::new(model.stdout.take().expect("a pipe")).read_line(&mut url).expect("an address");
    let mut command = newcomer.command(python_of("mcp"));
    let variables = [("OPENAI_BASE_URL", url.trim()), ("OPENAI_API_KEY", "scripted"), ("OPENAI_MODEL", "scripted")];
    let ended = run(command.arg(examples().join("agent.py")).envs(variables));
    let _ = model.kill();
    let _ = model.wait();
    check("agent.py.expected", ended);
}

#[test]
fn e2b() {
    let newcomer = Newcomer::new();
    let served = Served::start(newcomer.0.path(), &[]);
    let url = format!("http://{}/e2b", served.address);
    let mut command = newcomer.command(python_of("e2b/python"));
    command.arg(root().join("fixtures/e2b/run.py")).arg(examples().join("e2b_sandbox.py"));
    command.envs([("E2B_API_URL", &url), ("E2B_SANDBOX_URL", &url), ("E2B_API_KEY", &served.token)]);
    check("e2b_sandbox.py.expected", run(&mut command));
}

#[test]
fn http_with_tools() {
    let newcomer = Newcomer::new();
    let served = Served::start(newcomer.0.path(), &[]);
    let mut command = newcomer.command("python3");
    command.arg(examples().join("http_tools.py"));
    command.env("CELLAR", format!("http://{}", served.address)).env("CELLAR_TOKEN", &served.token);
    check("http_tools.py.expected", run(&mut command));
}

#[test]
fn approval() {
    let newcomer = Newcomer::new();
    let ended = run_with_input(newcomer.command("python3").arg(examples().join("approval.py")), b"y\nn\n");
    check("approval.py.expected", ended);
}

#[test]
fn fork() {
    Newcomer::new().check("sh", "fork.sh", "fork.sh.expected");
}

#[test]
fn replay() {
    Newcomer::new().check("sh", "replay.sh", "replay.sh.expected");
}

#[test]
fn data() {
    let guest = root().join("target/guests/python-data/guest.wasm");
    assert!(guest.exists(), "no guest at `{}`; run `make data-guest` first", guest.display());
    Newcomer::new().check("sh", "data/run.sh", "data/expected");
}

#[test]
fn tenants() {
    Newcomer::new().check("python3", "tenants/run.py", "tenants/expected");
}

/// The page of the examples links to each, and each is run by a test above.
#[test]
fn every_example_is_listed_and_run() {
    let page = std::fs::read_to_string(examples().join("README.md")).expect("the page");
    let linked: BTreeSet<&str> = page.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let entries = std::fs::read_dir(examples()).expect("the folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
    let there: Vec<String> = names.filter(|name| !name.ends_with(".expected") && name != "README.md").collect();
    assert_eq!(linked, there.iter().map(String::as_str).collect());
    let tests = [include_str!("examples.rs"), include_str!("python_package.rs")].concat();
    for name in linked {
        let is_run =
            [format!("\"{name}.expected\""), format!("\"{name}/expected\"")].iter().any(|it| tests.contains(it));
        assert!(is_run, "no test runs `{name}`");
    }
}

/// Each figure of the README is one of the page of figures, as it stands there.
#[test]
fn figures_of_the_readme_stand_on_their_page() {
    let [readme, page] =
        ["README.md", "host/FIGURES.md"].map(|page| std::fs::read_to_string(root().join(page)).expect("a page"));
    let part = readme.split("\n## Figures\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("figures");
    let words: Vec<&str> = part.split_whitespace().collect();
    let is_figure = |pair: &[&str]| pair[0].parse::<f64>().is_ok() && ["µs", "ms", "MB", "x"].contains(&unit(pair[1]));
    let figures: Vec<String> =
        words.windows(2).filter(|pair| is_figure(pair)).map(|pair| format!("{} {}", pair[0], unit(pair[1]))).collect();
    let missing: Vec<&String> = figures.iter().filter(|figure| !page.contains(&format!(" {figure} "))).collect();
    assert!(figures.len() >= 12, "{figures:?}");
    assert!(missing.is_empty(), "host/FIGURES.md has no {missing:?}");
}

fn unit(word: &str) -> &str {
    word.trim_end_matches([',', '.'])
}
