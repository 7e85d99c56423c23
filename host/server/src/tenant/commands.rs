//! Commands of the shell in sessions: each a kernel of its own, beside the cells and beside other commands.
//!
//! A command is a run of the hub, whose only cell has the guest read an *order*: what to run, where, and the number of the
//! pipe that is its standard input. The shell and all programs are the guest's.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use cellar_core::{exact::unescape_text, sync::lock};
use cellar_engine::{
    Cell, CommandInput, EventKind, Language, Outcome,
    config::{RunOptions, WORKSPACE},
    limits::TIMEOUT_MIN,
    outcome::FailureKind,
};
use cellar_files::{FileKind, ROOT};
use cellar_hub::{Delivery, Driving, OnDisconnect, Reader, RunHandle, RunRequest};
use cellar_wire::CommandJson;
use http::StatusCode;
use serde_json::{Value, json};

use super::{Tenant, minted, on_a_thread};
use crate::problem::Problem;

/// Commands of a session that run at once.
pub(crate) const COMMANDS_MAX: usize = 16;
/// Distance between the numbers of commands, so that there is room for those of their processes.
const PID_STEP: u32 = 1_024;
/// Cell by which a guest reads its order.
const ENTRY: &str = "%%process";
/// Bytes of each end of a stream that an answer has.
const END_BYTES: usize = 64 << 10;
/// Time after which a session may have room for another command.
const RETRY: Duration = Duration::from_secs(1);

/// Program of a command.
#[derive(Debug)]
pub(crate) enum Program {
    /// Words of a shell and its arguments.
    Shell(Vec<String>),
    /// A shell at a terminal, in a state that another one has left.
    Terminal(Option<String>),
}

/// Request for a command.
#[derive(Debug)]
pub(crate) struct CommandRequest {
    pub(crate) program: Program,
    /// Folder as cells see it.
    pub(crate) folder: Option<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// Time that it may take; as much as a cell at most.
    pub(crate) timeout: Option<Duration>,
    /// True if standard input stays open until it is closed.
    pub(crate) has_input: bool,
    /// True if its output has a reader from the first event on.
    pub(crate) is_owned: bool,
    pub(crate) on_disconnect: OnDisconnect,
}

impl CommandRequest {
    /// A line, as after `bash -c`.
    pub(crate) fn line(line: &str) -> CommandRequest {
        CommandRequest {
            program: Program::Shell(["bash", "-c", line].map(str::to_owned).to_vec()),
            folder: None,
            environment: Vec::new(),
            timeout: None,
            has_input: false,
            is_owned: true,
            on_disconnect: OnDisconnect::Cancel(Duration::ZERO),
        }
    }
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) pid: u32,
    pub(crate) run: RunHandle,
    /// Standard input; none once the command has ended.
    input: Mutex<Option<Arc<CommandInput>>>,
}

impl Command {
    /// Standard input, unless the command has ended.
    pub(crate) fn input(&self) -> Option<Arc<CommandInput>> {
        lock(&self.input).clone()
    }

    /// Writes all of its standard input, and ends that.
    pub(crate) fn give(&self, text: Option<String>) {
        if let Some((text, input)) = text.zip(self.input()) {
            tokio::spawn(async move {
                input.write(text.as_bytes()).await;
                input.close();
            });
        }
    }
}

/// Numbers of the commands that run, by session.
#[derive(Debug, Default)]
pub(crate) struct Commands(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    last: u32,
    by_session: BTreeMap<String, Vec<u32>>,
}

/// Place of a command among those of its session, which it gives back when it goes.
#[derive(Debug)]
pub(crate) struct Place {
    table: Arc<Mutex<Table>>,
    session: String,
    pub(crate) pid: u32,
}

impl Commands {
    /// Takes a place for a command of a session.
    pub(crate) fn place(&self, session: &str) -> Result<Place, Problem> {
        let mut table = lock(&self.0);
        let next = table.last.checked_add(PID_STEP).unwrap_or(PID_STEP);
        let pids = table.by_session.entry(session.to_owned()).or_default();
        if pids.len() >= COMMANDS_MAX {
            let detail = format!("a sandbox may run {COMMANDS_MAX} commands at once");
            return Err(Problem::limit("commands", detail, RETRY));
        }
        pids.push(next);
        table.last = next;
        Ok(Place { table: self.0.clone(), session: session.to_owned(), pid: next })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        if let Some(pids) = table.by_session.get_mut(&self.session) {
            pids.retain(|pid| *pid != self.pid);
            if pids.is_empty() {
                table.by_session.remove(&self.session);
            }
        }
    }
}

impl Tenant {
    /// Checks that a session may run commands.
    ///
    /// # Errors
    /// They are not granted.
    pub(crate) fn check_commands(&self, session: &str) -> Result<(), Problem> {
        let config = self.opening(session).config(self.hub.file())?;
        let granted = config.as_ref().unwrap_or(self.hub.file()).session.commands;
        if granted == Some(true) {
            return Ok(());
        }
        let problem =
            Problem::new(StatusCode::FORBIDDEN, "commands", "this sandbox is not granted commands of a shell");
        Err(problem.hint("`commands = true` in `[session]` of the `cellar.toml`, or of a template, grants them"))
    }

    /// Begins a command in a session, which is woken if it is not open.
    ///
    /// # Errors
    /// Commands are not granted, too many run, or its folder is not there.
    pub(crate) async fn command(
        &self,
        session: &str,
        request: CommandRequest,
        place: Arc<Place>,
    ) -> Result<(Arc<Command>, Driving), Problem> {
        let entry = self.session(session).await?.session;
        let longest = entry.limits().timeout_max.max(TIMEOUT_MIN);
        if let Some(folder) = request.folder.clone().filter(|folder| folder != WORKSPACE) {
            let looked = folder.clone();
            let found = on_a_thread(move || entry.files().stat_at(ROOT, &looked, true)).await?;
            if !found.is_ok_and(|found| found.kind == FileKind::Directory) {
                return Err(Problem::bad(format!("there is no folder `{folder}`")));
            }
        }
        let timeout = request.timeout.unwrap_or(Duration::MAX).clamp(TIMEOUT_MIN, longest);
        let run = RunRequest {
            id: minted("run"),
            cells: vec![Cell { timeout: Some(timeout), ..Cell::new(Language::Python, ENTRY) }],
            keep_going: false,
            options: RunOptions::default(),
            is_owned: request.is_owned,
            on_disconnect: request.on_disconnect,
        };
        let pid = place.pid;
        let folder = request.folder.as_deref().unwrap_or(WORKSPACE);
        let order = |input| order(&request.program, folder, pid, input);
        let (run, driving, input) = self.hub.begin_command(session, run, request.environment.clone(), order)?;
        if !request.has_input {
            input.close();
        }
        let command = Arc::new(Command { pid, run: run.clone(), input: Mutex::new(Some(Arc::new(input))) });
        let ended = command.clone();
        tokio::spawn(async move {
            let _ = run.result().await;
            lock(&ended.input).take();
            drop(place);
        });
        Ok((command, driving))
    }
}

/// Order of a command.
fn order(program: &Program, folder: &str, pid: u32, input: u64) -> String {
    let mut order = json!({"cwd": folder, "pid": pid, "ppid": 1, "input": input, "live": true});
    match program {
        Program::Shell(words) => {
            order["program"] = "shell".into();
            order["argv"] = words.as_slice().into();
        }
        Program::Terminal(state) => {
            order["program"] = "terminal".into();
            order["argv"] = json!(["bash"]);
            order["state"] = state.as_deref().map_or(Value::Null, Value::from);
        }
    }
    order.to_string()
}

/// Part of the output of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Out(Vec<u8>),
    Err(Vec<u8>),
    End(End),
}

/// End of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It ended itself with this status.
    Exited(i32),
    /// It ran out of its time.
    Late,
    /// It was ended, for this reason.
    Killed(String),
}

/// Returns what an event of a command's run says of it, in order.
pub(crate) fn parts(kind: &EventKind) -> Vec<Part> {
    let bytes = |text: &str| unescape_text(text).into_owned();
    match kind {
        EventKind::Stdout { text, .. } => vec![Part::Out(bytes(text))],
        EventKind::Stderr { text, .. } => vec![Part::Err(bytes(text))],
        EventKind::Background { text, is_stderr: false, .. } => vec![Part::Out(bytes(text))],
        EventKind::Background { text, .. } => vec![Part::Err(bytes(text))],
        EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => {
            let text = data.visible_text().map(|text| format!("{}\n", text.trim_end_matches('\n')));
            text.into_iter().map(|text| Part::Out(bytes(&text))).collect()
        }
        EventKind::CellFinished { outcome, .. } => match outcome {
            Outcome::Complete => vec![Part::End(End::Exited(0))],
            Outcome::Exited(status) => vec![Part::End(End::Exited(status & 0xff))],
            Outcome::Failed(failure) => match failure.kind {
                FailureKind::Raised => {
                    vec![Part::Err(bytes(&format!("{}\n", failure.traceback))), Part::End(End::Exited(1))]
                }
                FailureKind::Timeout => vec![Part::End(End::Late)],
                FailureKind::Interrupted => vec![Part::End(End::Killed("signal: killed".to_owned()))],
                _ => vec![Part::End(End::Killed(failure.message.clone()))],
            },
        },
        _ => Vec::new(),
    }
}

/// Follows a command to its end, and returns what it came to.
///
/// # Errors
/// It was refused, and nothing ran.
pub(crate) async fn collect(run: &RunHandle, mut reader: Reader) -> Result<CommandJson, Problem> {
    let (mut out, mut err, mut end) = (Ends::default(), Ends::default(), None);
    let mut json = CommandJson::default();
    run.id().clone_into(&mut json.run);
    while let Some(delivery) = reader.next().await {
        let Delivery::Event(event) = delivery else {
            json.is_cut = true;
            continue;
        };
        if let EventKind::CellFinished { kept, duration, .. } = &event.kind {
            json.duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
            kept.iter().for_each(|kept| json.keep(kept));
        }
        for part in parts(&event.kind) {
            match part {
                Part::Out(bytes) => out.push(&bytes),
                Part::Err(bytes) => err.push(&bytes),
                Part::End(ended) => end = Some(ended),
            }
        }
    }
    run.result().await?;
    json.is_cut |= out.left_out > 0 || err.left_out > 0;
    (json.stdout, json.stderr) = (out.text(), err.text());
    match end {
        Some(End::Exited(status)) => json.exit_code = Some(status),
        Some(End::Late) => json.error = Some("the command ran past the time that it was given".to_owned()),
        Some(End::Killed(why)) => json.error = Some(why),
        None => json.error = Some("the command did not start".to_owned()),
    }
    Ok(json)
}

/// The two ends of a stream.
#[derive(Debug, Default)]
struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
    left_out: usize,
}

impl Ends {
    fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(END_BYTES.saturating_sub(self.head.len())));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        // Not with every piece, so that little is moved.
        if self.tail.len() > END_BYTES.saturating_mul(2) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let over = self.tail.len().saturating_sub(END_BYTES);
        self.tail.drain(..over);
        self.left_out = self.left_out.saturating_add(over);
    }

    fn text(&mut self) -> String {
        self.cut();
        let [head, tail] = [&self.head, &self.tail].map(|bytes| String::from_utf8_lossy(bytes));
        match self.left_out {
            0 => String::from_utf8_lossy(&[self.head.as_slice(), &self.tail].concat()).into_owned(),
            bytes => format!("{head}\n… {bytes} bytes are left out …\n{tail}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_so_many_commands_and_no_more() {
        let commands = Commands::default();
        let mut held: Vec<Place> = (0..COMMANDS_MAX).map(|_| commands.place("a").expect("a place")).collect();
        assert!(commands.place("a").is_err() && commands.place("b").is_ok());
        let gone = held.pop().expect("one").pid;
        assert!(commands.place("a").expect("a place").pid > gone);
        drop(held);
        assert!(lock(&commands.0).by_session.is_empty());
    }

    #[test]
    fn the_middle_of_a_long_stream_is_left_out() {
        let mut ends = Ends::default();
        ends.push("é".as_bytes());
        (0..10).for_each(|_| ends.push(&[b'x'; END_BYTES]));
        ends.push(b"end");
        let text = ends.text();
        assert!(
            text.starts_with('é') && text.ends_with("end") && text.contains("bytes are left out"),
            "{}",
            text.len()
        );
        assert!(text.len() < 3 * END_BYTES);
        let mut short = Ends::default();
        short.push(b"a\xff");
        assert_eq!(short.text(), "a\u{fffd}");
    }
}
