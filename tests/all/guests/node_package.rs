//! Package of Node: it is installed without a network, and its own tests run with what was installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::support::{cellar_with_guests, node, root, run};

/// Runs a command that must succeed, and returns what it writes.
fn succeed(command: &mut Command) -> String {
    let ended = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(ended.code, 0, "{command:?}: {}{}", ended.stdout, ended.stderr);
    ended.stdout
}

/// Makes the package with both languages, as `make dist` does.
fn package(folder: &Path) -> PathBuf {
    drop(cellar_with_guests(["--version"]));
    let cellar = Path::new(env!("CARGO_BIN_EXE_cellar"));
    let module = cellar.with_file_name("libcellar_node.so");
    assert!(module.exists(), "no module at `{}`; run `make build` first", module.display());
    let tree = folder.join("tree");
    let mut install = Command::new(root().join(".ci/install"));
    install.arg(cellar).arg("target/guests").arg(&tree).args(["", "javascript", "python"]).current_dir(root());
    succeed(&mut install);
    let mut made = Command::new(root().join(".ci/npm"));
    made.arg(module).arg("0.1.0").arg(&tree).arg(folder).env("CELLAR_DIST_LEVEL", "1");
    succeed(&mut made);
    folder.join("cellar-sandbox-0.1.0.tgz")
}

/// Names the files of a folder that end like tests.
fn tests_in(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut tests: Vec<PathBuf> = files.filter(|path| path.to_string_lossy().ends_with(".test.mjs")).collect();
    tests.sort();
    assert!(tests.len() > 1, "no tests in `{}`", folder.display());
    tests
}

/// Names what the package is for: the Node of the system, if that is new enough, and a newer one.
fn nodes() -> Vec<PathBuf> {
    let system = run(Command::new("node").arg("--version").stdout(Stdio::piped())).stdout;
    let major: u32 =
        system.trim_start_matches('v').split('.').next().and_then(|part| part.parse().ok()).expect("a version");
    let of_system = (major >= 20).then(|| PathBuf::from("node"));
    of_system.into_iter().chain([node()]).collect()
}

#[test]
fn the_package_is_installed_without_a_network_and_does_what_its_tests_and_examples_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let package = package(folder.path());
    let (app, home) = (folder.path().join("app"), folder.path().join("home"));
    fs::create_dir_all(app.join("node_modules")).expect("a folder");
    fs::create_dir(&home).expect("a folder");
    let command = |program: &Path| {
        let mut command = Command::new(program);
        command.current_dir(&app).env_clear().env("HOME", &home).env("PATH", "/usr/bin:/bin");
        command.env("npm_config_cache", folder.path().join("npm")).env("npm_config_update_notifier", "false");
        command
    };
    let mut npm = command(Path::new("npm"));
    npm.args(["install", "--silent", "--offline", "--no-audit", "--no-fund", "--ignore-scripts"]).arg(package);
    succeed(&mut npm);
    // The command, and what was compiled, came with it.
    let mut npx = command(Path::new("npx"));
    assert_eq!(succeed(npx.args(["--offline", "cellar-sandbox", "eval", "-l", "py", "6*7"])).trim(), "42");
    // TypeScript and Zod, which its tests use.
    for (module, from) in [("typescript", "target/node"), ("zod", "target/packages")] {
        let original = root().join(from).join("node_modules").join(module);
        assert!(original.exists(), "no `{module}` at `{}`; run `make packages` first", original.display());
        std::os::unix::fs::symlink(original, app.join("node_modules").join(module)).expect("a link");
    }
    let tests = app.join("tests");
    fs::create_dir(&tests).expect("a folder");
    for entry in fs::read_dir(root().join("host/node/tests")).expect("the tests") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, tests.join(path.file_name().expect("a name"))).expect("copied");
    }
    for node in nodes() {
        let said = succeed(command(&node).args(["--test", "--test-reporter=tap"]).args(tests_in(&tests)));
        assert!(said.contains("# skipped 0"), "{said}");
    }
    let found = run(Command::new("find").arg(&home).args(["-type", "f", "!", "-name", "*.checked"]));
    assert_eq!(found.stdout, "", "something was written into the home of the user");
}
