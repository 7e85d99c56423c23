//! Runs a configured command: bytes in on standard input, bytes out on standard output.
//!
//! Each command has its own process group, a minimal environment, a deadline, and a limit on its output. However the call
//! ends, the group is killed: a command leaves nothing running behind it, unless it left its group.

use std::{ffi::OsString, io, process::ExitStatus};

use cellar_engine::bridges::{CallError, CallErrorKind};
use cellar_worker::{Input, Process, Recipe};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::ChildStdin,
};

use crate::options::{AgentTransport, Command, Connector, McpTransport, Options, Program};

/// Bytes a command may print as its result.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Bytes of its standard error that are kept, the last ones.
pub(crate) const ERROR_BYTES_MAX: usize = 8 << 10;
/// Lines of its standard error that a message repeats, the last ones.
const ERROR_LINES_MAX: usize = 10;
/// Variables of Cellar's own environment that a command receives by default.
const ENVIRONMENT: [&str; 3] = ["PATH", "HOME", "LANG"];

/// Runs `command` with `input` on its standard input and returns what it printed. `who` names it in messages, `extra`
/// are variables for this call.
///
/// # Errors
/// It cannot be started, ran past its deadline, printed too much, or ended with a status other than 0: then with the
/// last lines of its standard error.
///
/// # Cancel safety
/// Dropping the future kills the process group.
pub(crate) async fn run(
    command: &Command,
    who: &str,
    input: Vec<u8>,
    extra: &[(&str, &str)],
) -> Result<Vec<u8>, CallError> {
    let failed = |what: String| CallError::new(CallErrorKind::Failed, format!("{who} {what}"));
    let started = start(command, extra).await;
    let mut process = started.map_err(|error| failed(format!("cannot be started: {error}")))?;
    let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    let work = async {
        tokio::try_join!(feed(stdin, &input), read_all(stdout, OUTPUT_BYTES_MAX), read_tail(stderr), async {
            process.wait().await.map_err(Fault::from)
        })
    };
    let ended = tokio::time::timeout(command.timeout, work).await.map_err(|_| {
        let seconds = command.timeout.as_secs();
        CallError::new(CallErrorKind::Limit, format!("{who} did not end within {seconds} s and was stopped"))
    })?;
    let ((), output, errors, status) = ended.map_err(|error| match error {
        Fault::TooMuch => {
            let mib = OUTPUT_BYTES_MAX >> 20;
            CallError::new(CallErrorKind::Limit, format!("{who} printed more than {mib} MiB and was stopped"))
        }
        Fault::Io(error) => failed(format!("cannot be talked to: {error}")),
    })?;
    if status.success() {
        return Ok(output);
    }
    Err(failed(format!("{}{}", ending(status), last_lines(&errors))))
}

/// Starts `command`. `extra` are variables for this process, whose names begin with `CELLAR_`.
///
/// # Errors
/// It cannot be started.
pub(crate) async fn start(command: &Command, extra: &[(&str, &str)]) -> io::Result<Process> {
    // What is a credential is known from here on.
    inherited(&command.inherit, &command.environment);
    let extra: Vec<_> = extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    cellar_worker::start(&recipe(command), &[], &extra, Input::Pipe).await
}

/// Returns the recipe of a configured command.
fn recipe(command: &Command) -> Recipe {
    Recipe {
        argv: command.argv.clone(),
        folder: Some(command.folder.clone()),
        environment: command.environment.clone(),
        inherit: ENVIRONMENT.into_iter().map(str::to_owned).chain(command.inherit.iter().cloned()).collect(),
        is_open: false,
        is_quiet: false,
        memory_bytes: None,
    }
}

/// Returns the recipes of all commands in the options.
pub fn recipes(options: &Options) -> Vec<Recipe> {
    let programs = options
        .tools
        .values()
        .chain(options.runtime.values().flat_map(|pack| pack.primitives.values().map(|primitive| &primitive.tool)));
    let programs = programs.filter_map(|tool| match &tool.program {
        Program::Command(command) => Some(command),
        Program::Component(_) => None,
    });
    let servers = options.mcp.values().filter_map(|server| match &server.transport {
        McpTransport::Command(command) => Some(command),
        McpTransport::Http { .. } => None,
    });
    let agents = options.agents.values().filter_map(|agent| match &agent.transport {
        AgentTransport::Command(command) => Some(command),
        _ => None,
    });
    let connectors = options.connectors.values().filter_map(|connector| match connector {
        Connector::Command { command, .. } => Some(command),
        _ => None,
    });
    programs.chain(servers).chain(agents).chain(connectors).map(recipe).collect()
}

/// Returns the variables of Cellar's own environment with these names. They and the variables in `beside` are treated as
/// credentials from then on.
pub(crate) fn inherited(names: &[String], beside: &[(String, String)]) -> Vec<(String, OsString)> {
    let inherited = names.iter().filter_map(|name| Some((name.clone(), std::env::var_os(name)?)));
    let inherited: Vec<_> = inherited.collect();
    for (name, value) in inherited.iter().filter(|(name, _)| !ENVIRONMENT.contains(&name.as_str())) {
        cellar_secrets::learn_variable(name, &value.to_string_lossy(), true);
    }
    beside.iter().for_each(|(name, value)| cellar_secrets::learn_variable(name, value, false));
    inherited
}

enum Fault {
    TooMuch,
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Io(error)
    }
}

/// Writes `input` and closes. A command need not read all of it.
async fn feed(stdin: Option<ChildStdin>, input: &[u8]) -> Result<(), Fault> {
    let Some(mut stdin) = stdin else { return Ok(()) };
    match stdin.write_all(input).await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

async fn read_all(from: Option<impl AsyncRead + Unpin>, bytes_max: usize) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let Some(from) = from else { return Ok(bytes) };
    from.take((bytes_max as u64).saturating_add(1)).read_to_end(&mut bytes).await?;
    if bytes.len() > bytes_max { Err(Fault::TooMuch) } else { Ok(bytes) }
}

async fn read_tail(from: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, Fault> {
    let mut tail = Vec::new();
    let Some(mut from) = from else { return Ok(tail) };
    let mut chunk = [0; 4096];
    loop {
        let count = from.read(&mut chunk).await?;
        if count == 0 {
            return Ok(tail);
        }
        tail.extend_from_slice(&chunk[..count]);
        let excess = tail.len().saturating_sub(ERROR_BYTES_MAX);
        tail.drain(..excess);
    }
}

pub(crate) fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed with exit status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "failed".to_owned(),
    }
}

/// The last lines of standard error, to stand behind a message.
pub(crate) fn last_lines(errors: &[u8]) -> String {
    // Where the beginning is missing, a credential may be cut in two.
    let start = if errors.len() >= ERROR_BYTES_MAX { cellar_secrets::longest().min(errors.len()) } else { 0 };
    let text = String::from_utf8_lossy(&errors[start..]);
    let text = cellar_secrets::hide(&text);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let start = lines.len().saturating_sub(ERROR_LINES_MAX);
    if lines.is_empty() { String::new() } else { format!(":\n{}", lines[start..].join("\n")) }
}
