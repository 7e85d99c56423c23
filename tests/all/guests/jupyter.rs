//! The kernel for Jupyter, used by real clients: Jupyter's own tests of kernels, its client library, nbclient and papermill.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::support::{Ended, cellar, cellar_with_guests, node, root, run};

/// Kernels that clients find in a folder of their own, and nowhere else.
struct Installed(TempDir);

impl Installed {
    fn new() -> Installed {
        let component = root().join("target/guests/python-data/guest.wasm");
        assert!(component.exists(), "no guest at `{}`; run `make data-guest` first", component.display());
        let installed = Installed(tempfile::tempdir().expect("a folder"));
        let ended =
            run(installed.with_folders(&mut cellar_with_guests(["kernel", "install", "--prefix"])).arg("prefix"));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        for name in ["cellar-python", "cellar-python-data", "cellar-javascript"] {
            assert!(ended.stdout.contains(&format!("{name}: ")), "{}", ended.stdout);
        }
        installed
    }

    fn with_folders<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let folder = self.0.path();
        command.current_dir(folder).env("CELLAR_STORE", folder.join("store"))
    }

    /// Runs a script of `fixtures/jupyter` to its end.
    fn play(&self, script: &str, arguments: &[&str]) -> Ended {
        let mut command = client(script, self.0.path());
        command.args(arguments).env("JUPYTER_PATH", self.0.path().join("prefix/share/jupyter"));
        command.env("CELLAR", env!("CARGO_BIN_EXE_cellar")).env("CELLAR_GUESTS", root().join("target/guests"));
        run(self.with_folders(&mut command))
    }
}

/// Returns a command that runs a script of `fixtures/jupyter`. It reads and writes files of Jupyter in this folder only.
pub(crate) fn client(script: &str, folder: &Path) -> Command {
    let python = root().join("target/jupyter/bin/python");
    assert!(python.exists(), "no clients of Jupyter at `{}`; run `make packages` first", python.display());
    let mut command = Command::new(python);
    command.arg(root().join("fixtures/jupyter").join(script)).env("JUPYTER_PLATFORM_DIRS", "1");
    for variable in ["JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"] {
        command.env(variable, folder.join(variable));
    }
    command
}

fn check(script: &str, arguments: &[&str]) {
    let ended = Installed::new().play(script, arguments);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn python_passes_jupyters_own_tests() {
    check("conformance.py", &["python"]);
}

#[test]
fn javascript_passes_jupyters_own_tests() {
    check("conformance.py", &["javascript"]);
}

#[test]
fn what_clients_send_is_answered_or_refused() {
    check("protocol.py", &["Protocol"]);
}

#[test]
fn kernels_begin_and_end_as_clients_expect() {
    let installed = Installed::new();
    let flags = ["kernel", "install", "--prefix", "prefix", "--name", "cellar-broken", "--guest", "python", "--mount"];
    let mut broken = cellar_with_guests(flags);
    let ended = run(installed.with_folders(broken.arg("/no-such-folder:/x")));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let ended = installed.play("protocol.py", &["Lives"]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
}

/// With `CELLAR_BLESS=1` what they show now is kept.
#[test]
fn notebooks_show_what_they_showed() {
    check("notebooks.py", &[]);
}

#[test]
fn notebooks_run_with_parameters() {
    let installed = Installed::new();
    let ended = installed.play("parameters.py", &[&installed.0.path().display().to_string()]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
}

/// Pictures of what was seen are in `target/pictures`.
#[test]
fn a_notebook_is_used_in_jupyterlab() {
    let installed = Installed::new();
    let node = node().display().to_string();
    let ended = installed.play("lab.py", &[&node, "cellar-python-data", &pictures("kernel").display().to_string()]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
}

/// An empty folder for pictures.
pub(crate) fn pictures(of: &str) -> PathBuf {
    let folder = root().join("target/pictures").join(of);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn spec(folder: &Path, name: &str) -> serde_json::Value {
    let path = folder.join("share/jupyter/kernels").join(name).join("kernel.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("a kernelspec")).expect("JSON")
}

#[test]
fn what_is_granted_stands_in_the_kernelspec() {
    let prefix = tempfile::tempdir().expect("a folder");
    let place = prefix.path().display().to_string();
    let flags =
        ["kernel", "install", "--prefix", &place, "--guest", "javascript", "--name", "mine", "--display-name", "Mine"];
    let granted = ["--notebook-folder", "--mount", "data:/data:rw", "--timeout", "9", "--env", "A=b=c", "--no-charts"];
    let mut command = cellar_with_guests(flags.iter().chain(&granted));
    let ended = run(command.current_dir(prefix.path()));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let spec = spec(prefix.path(), "mine");
    assert_eq!((&spec["display_name"], &spec["language"]), (&"Mine".into(), &"javascript".into()));
    let command: Vec<&str> = spec["argv"].as_array().expect("a list").iter().filter_map(|word| word.as_str()).collect();
    let mount = format!("{place}/data:/data:rw");
    let words = ["--guest", "javascript", "--workspace", ".", "--mount", &mount, "--env", "A=b=c", "--timeout", "9"];
    let end = ["--no-charts", "{connection_file}"];
    assert!(command.ends_with(&[&words[..], &end[..]].concat()), "{command:?}");
    // What variables say is for nobody else.
    let file = prefix.path().join("share/jupyter/kernels/mine/kernel.json");
    let mode = std::fs::metadata(file).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}

#[test]
fn kernels_that_cannot_be_are_refused_and_named() {
    let refused = |arguments: &[&str], words: &str| {
        let ended = run(&mut cellar(arguments));
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("connection.json").display().to_string();
    refused(&["kernel", "run", &file], "cannot read");
    std::fs::write(&file, "{\"transport\": \"udp\", \"ip\": \"127.0.0.1\"}").expect("written");
    refused(&["kernel", "run", &file], "$.shell_port: expected a port, found nothing");
    let ports = r#""shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5"#;
    let text = format!(r#"{{"transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "md5", {ports}}}"#);
    std::fs::write(&file, text).expect("written");
    refused(&["kernel", "run", &file], "hmac-sha256");
    refused(&["kernel", "install", "--user", "--sys-prefix"], "cannot be used with");
    refused(&["kernel", "install", "--name", "x"], "--guest");
    let place = folder.path().display().to_string();
    refused(&["kernel", "install", "--prefix", &place, "--guest", "python", "--name", "../x"], "cannot name a kernel");
}
