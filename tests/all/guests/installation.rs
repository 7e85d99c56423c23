//! Result of `make install`: a command that runs cells at once, wherever it lies.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use crate::support::{cellar_with_guests, root, run};

/// Installs the command and the guest `python` below a folder, as `make install` does.
fn install(folder: &Path) {
    // The guest must be there.
    drop(cellar_with_guests(["--version"]));
    let mut install = Command::new(root().join(".ci/install"));
    install
        .args([env!("CARGO_BIN_EXE_cellar"), "target/guests"])
        .arg(folder)
        .args(["/usr", "python"])
        .current_dir(root());
    let ended = run(install.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn an_installed_command_runs_cells_at_once_and_writes_nothing_at_home() {
    let folder = tempfile::tempdir().expect("a folder");
    install(folder.path());
    let usr = folder.path().join("usr");
    let home = folder.path().join("home");
    fs::create_dir(&home).expect("a folder");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o555)).expect("it is ours");
    for more in [&[][..], &["--fuel", "1000000000"]] {
        let mut eval = Command::new(usr.join("bin/cellar"));
        eval.args(["eval", "-l", "py", "6*7"]).args(more).current_dir(&home).env_clear().env("HOME", &home);
        let ended = run(eval.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert_eq!((ended.code, ended.stdout.trim(), &*ended.stderr), (0, "42", ""), "{more:?}");
    }
    // Root may write there all the same: a note that the code was compared with its list.
    let found = run(Command::new("find").arg(&home).args(["-type", "f", "!", "-name", "*.checked"]));
    assert_eq!(found.stdout, "", "something was written into the home of the user");
}

#[test]
fn manual_pages_and_completions_are_installed_for_each_command() {
    let folder = tempfile::tempdir().expect("a folder");
    install(folder.path());
    let share = folder.path().join("usr/share");
    let read = |path: &str| fs::read_to_string(share.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    for page in ["cellar", "cellar-eval", "cellar-serve"] {
        assert!(read(&format!("man/man1/{page}.1")).contains(".TH"), "{page}");
    }
    for script in
        ["bash-completion/completions/cellar", "zsh/site-functions/_cellar", "fish/vendor_completions.d/cellar.fish"]
    {
        assert!(read(script).contains("cellar"), "{script}");
    }
    assert!(!share.join("man/man1/cellar-work.1").exists(), "what this program asks of itself is not for people");
}
