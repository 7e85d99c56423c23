//! Native interpreters of the guests' own versions, to compare with.

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use cellar_engine::{GuestName, Language};

/// Returns the native program: the loops, then answers to lines with their names.
fn program(guest: GuestName) -> String {
    match guest.language() {
        Language::Python => {
            let answer = "import sys\nfor name in sys.stdin:\n    print(LOOPS[name.strip()](), flush=True)\n";
            format!("{}\n{answer}", crate::loops::source(guest))
        }
        _ => {
            let answer =
                "for (let name; (name = std.in.getline()) !== null;) { print(LOOPS[name]()); std.out.flush() }";
            format!("import * as std from 'qjs:std';\n{}\n{answer}\n", crate::loops::source(guest))
        }
    }
}

/// A native interpreter that waits for the names of loops.
#[derive(Debug)]
pub(crate) struct Native {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _program: tempfile::NamedTempFile,
}

impl Native {
    /// Starts one, built first if the machine has none.
    pub(crate) fn start(guest: GuestName) -> Native {
        let suffix = if guest.language() == Language::Python { ".py" } else { ".mjs" };
        let mut file = tempfile::Builder::new().suffix(suffix).tempfile().expect("a temporary file");
        file.write_all(program(guest).as_bytes()).expect("a program can be written");
        let mut command = Command::new(interpreter(guest));
        command.arg(file.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the native interpreter can be started");
        let input = child.stdin.take().expect("it was asked for");
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        Native { child, input, output, _program: file }
    }

    /// Runs a loop; returns its result and the processor time that the process took for it.
    pub(crate) fn run(&mut self, name: &str) -> (String, Duration) {
        let before = self.processor_time();
        writeln!(self.input, "{name}").expect("the native interpreter reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the native interpreter answers");
        (line.trim().to_owned(), self.processor_time() - before)
    }

    /// Processor time so far. A process with one thread is told from outside by nanoseconds.
    fn processor_time(&self) -> Duration {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()));
        let text = text.expect("the kernel keeps scheduler statistics");
        let nanoseconds = text.split(' ').next().and_then(|number| number.parse().ok());
        Duration::from_nanos(nanoseconds.expect("a number of nanoseconds"))
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Path of a native interpreter. The builder of the guests knows where one is, or makes it of the guest's own sources.
pub(crate) fn interpreter(guest: GuestName) -> PathBuf {
    let builder = cellar_bench::command().with_file_name("cellar-guests");
    let output = Command::new(&builder).args(["native", guest.name()]).stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("`{}`: {error}; run `make build`", builder.display()));
    assert!(output.status.success(), "there is no native `{guest}` to compare with");
    PathBuf::from(String::from_utf8(output.stdout).expect("a path in UTF-8").trim())
}

/// Returns the output of a native interpreter that runs a program.
pub(crate) fn output(guest: GuestName, program: &str) -> String {
    let option = if guest.language() == Language::Python { "-c" } else { "-e" };
    let output = Command::new(interpreter(guest)).args([option, program]).stderr(Stdio::inherit()).output();
    let output = output.expect("the native interpreter can be started");
    assert!(output.status.success(), "the native program failed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Describes the native interpreter to compare with, in a few words.
pub(crate) fn describe(guest: GuestName) -> String {
    let question = match guest {
        GuestName::Python => {
            "import platform, sysconfig\nflags = sysconfig.get_config_var('CONFIG_ARGS') or ''\n\
             how = 'with' if '--enable-optimizations' in flags else 'without'\n\
             print('CPython', platform.python_version(), how, 'PGO')"
        }
        GuestName::PythonData => {
            "import numpy, pandas\nprint('NumPy', numpy.__version__, 'with OpenBLAS, pandas', pandas.__version__)"
        }
        _ => {
            return "QuickJS-ng from the guest's sources, cc -O3".to_owned();
        }
    };
    output(guest, question).trim().to_owned()
}
