//! Adapters of the package of Python: the frameworks themselves, from their registry, with models that follow a script.

use std::{fs, path::Path, process::Command};

use crate::support::{cellar_with_guests, native_python, python_packages, root, run};

/// The frameworks.
const REQUIREMENTS: &str = "fixtures/adapters/requirements.txt";
/// Lines of an adapter.
const LINES_MAX: usize = 60;

/// Runs the tests of one framework with the package as it is here.
fn passes(framework: &str) {
    drop(cellar_with_guests(["--version"]));
    let cellar = Path::new(env!("CARGO_BIN_EXE_cellar"));
    let folder = tempfile::tempdir().expect("a folder");
    let (package, sources) = (folder.path().join("cellar"), root().join("host/python/cellar"));
    fs::create_dir(&package).expect("a folder");
    for entry in fs::read_dir(&sources).expect("the package") {
        let path = entry.expect("an entry").path();
        if path.is_dir() || path.extension().is_some_and(|end| end == "py") {
            let name = path.file_name().expect("a name");
            std::os::unix::fs::symlink(&path, package.join(name)).expect("a link");
        }
    }
    let module = cellar.with_file_name("libcellar_python.so");
    assert!(module.exists(), "no module at `{}`; run `make build` first", module.display());
    std::os::unix::fs::symlink(module, package.join("_cellar.abi3.so")).expect("a link");
    let packages = python_packages("adapters", REQUIREMENTS);
    let mut python = Command::new(native_python("python"));
    python.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir"]).arg(folder.path());
    python.arg(root().join("fixtures/adapters").join(format!("test_{framework}.py"))).current_dir(folder.path());
    let path = std::env::join_paths([folder.path(), &packages]).expect("paths");
    python.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1").env("HOME", folder.path());
    python.env("CELLAR_GUESTS", root().join("target/guests")).env("CELLAR_CACHE", crate::support::cache());
    // Nothing is reported to anybody.
    python.env("OPENAI_AGENTS_DISABLE_TRACING", "1").env("LANGSMITH_TRACING", "false");
    let ended = run(python
        .env("CELLAR_PROGRAM", cellar)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped()));
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn agents_of_smolagents_run_their_code() {
    passes("smolagents");
}

#[test]
fn agents_of_the_openai_sdk_run_code() {
    passes("openai_agents");
}

#[test]
fn agents_of_the_openai_sdk_have_its_sandboxes() {
    passes("openai_sandbox");
}

#[test]
fn deep_agents_have_its_files_and_commands() {
    passes("deepagents");
}

#[test]
fn agents_of_pydantic_ai_run_code() {
    passes("pydantic_ai");
}

#[test]
fn agents_of_autogen_run_blocks() {
    passes("autogen");
}

#[test]
fn adapters_are_short() {
    for entry in fs::read_dir(root().join("host/python/cellar/adapters")).expect("the adapters") {
        let path = entry.expect("an entry").path();
        let is_adapter = path.extension().is_some_and(|end| end == "py") && !path.ends_with("_parts.py");
        let lines = if is_adapter { fs::read_to_string(&path).expect("text").lines().count() } else { 0 };
        assert!(lines < LINES_MAX, "{} has {lines} lines", path.display());
    }
}
