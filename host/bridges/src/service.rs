//! Real services for tests: the scripts of `fixtures/bridges`.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

/// A service that listens on a port of this machine until it is dropped.
pub(crate) struct Service {
    process: Child,
    pub(crate) port: u16,
}

impl Service {
    /// Starts a script, which prints its port.
    pub(crate) fn start(script: &str, arguments: &[&OsStr]) -> Service {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bridges").join(script);
        let mut command = Command::new("python3");
        let mut process = command.arg(script).args(arguments).stdout(Stdio::piped()).spawn().expect("python3 starts");
        let mut port = String::new();
        let output = process.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut port).expect("a port");
        Service { process, port: port.trim().parse().expect("a number") }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
