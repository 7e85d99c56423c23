//! Package of Python: its wheels are installed without a network, and its own tests run with what was installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::support::{cellar_with_guests, native_python, python_packages, root, run};

/// Packages that the tests need beside the wheel.
const REQUIREMENTS: &str = "fixtures/python/requirements.txt";

/// Runs a command that must succeed, and returns what it writes.
fn succeed(command: &mut Command) -> String {
    let ended = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(ended.code, 0, "{command:?}: {}{}", ended.stdout, ended.stderr);
    ended.stdout
}

/// Makes the wheel with both languages, as `make dist` does.
fn wheel(folder: &Path) -> PathBuf {
    drop(cellar_with_guests(["--version"]));
    let cellar = Path::new(env!("CARGO_BIN_EXE_cellar"));
    let module = cellar.with_file_name("libcellar_python.so");
    assert!(module.exists(), "no module at `{}`; run `make build` first", module.display());
    let tree = folder.join("tree");
    let mut install = Command::new(root().join(".ci/install"));
    install.arg(cellar).arg("target/guests").arg(&tree).args(["", "javascript", "python"]).current_dir(root());
    succeed(&mut install);
    let mut made = Command::new(root().join(".ci/wheel"));
    made.arg(module).arg("0.1.0").arg(&tree).arg(folder).env("CELLAR_DIST_LEVEL", "1");
    succeed(&mut made);
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.into_iter().find(|path| path.extension().is_some_and(|end| end == "whl")).expect("a wheel")
}

#[test]
fn the_wheel_is_installed_without_a_network_and_does_what_its_tests_and_examples_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let wheel = wheel(folder.path());
    let (venv, home) = (folder.path().join("venv"), folder.path().join("home"));
    fs::create_dir(&home).expect("a folder");
    succeed(Command::new(native_python("python")).args(["-m", "venv"]).arg(&venv));
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]).arg(wheel);
    succeed(&mut pip);
    let packages = python_packages("python", REQUIREMENTS);
    let python = |program: &str| {
        let mut command = Command::new(venv.join("bin").join(program));
        command.current_dir(&home).env_clear().env("HOME", &home).env("PATH", "/usr/bin:/bin");
        command.env("PYTHONPATH", &packages).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    // The command, and what was compiled, came with it.
    assert_eq!(succeed(python("cellar").args(["eval", "-l", "py", "6*7"])).trim(), "42");
    assert_eq!(succeed(python("python").args(["-m", "cellar", "eval", "-l", "js", "6*7"])).trim(), "42");
    let tests = root().join("host/python/tests");
    let pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir"];
    succeed(python("python").args(pytest).arg(&tests).arg(&tests).env("CELLAR_COMMAND", env!("CARGO_BIN_EXE_cellar")));
    // The page and the docstrings.
    succeed(python("python").arg(tests.join("examples.py")).arg(root().join("host/python/README.md")));
    let examples = root().join("fixtures/examples");
    let expected = fs::read_to_string(examples.join("python_package.py.expected")).expect("what it prints");
    assert_eq!(succeed(python("python").arg(examples.join("python_package.py"))), expected);
    // A program with types.
    succeed(python("python").args(["-m", "mypy", "--strict", "--cache-dir", "/dev/null"]).arg(tests.join("typed.py")));
    let found = run(Command::new("find").arg(&home).args(["-type", "f", "!", "-name", "*.checked"]));
    assert_eq!(found.stdout, "", "something was written into the home of the user");
}

/// With the guests of the build, which `make data-guest` makes.
#[test]
fn tables_cross_as_arrow_between_the_program_and_the_data_guest() {
    let cellar = Path::new(env!("CARGO_BIN_EXE_cellar"));
    let module = cellar.with_file_name("libcellar_python.so");
    let folder = tempfile::tempdir().expect("a folder");
    let package = folder.path().join("cellar");
    fs::create_dir(&package).expect("a folder");
    for entry in fs::read_dir(root().join("host/python/cellar")).expect("the package") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|end| end == "py") {
            fs::copy(&path, package.join(path.file_name().expect("a name"))).expect("copied");
        }
    }
    std::os::unix::fs::symlink(module, package.join("_cellar.abi3.so")).expect("a link");
    let packages = python_packages("python", REQUIREMENTS);
    let mut python = Command::new(native_python("python"));
    python.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]);
    python.arg(root().join("host/python/tests/test_frames.py")).current_dir(folder.path());
    let path = std::env::join_paths([folder.path(), &packages]).expect("paths");
    python
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("CELLAR_GUESTS", root().join("target/guests"));
    let said = succeed(python.env("CELLAR_PROGRAM", cellar));
    assert!(said.contains(" passed") && !said.contains("skipped"), "{said}");
}
