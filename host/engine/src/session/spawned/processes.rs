//! Processes: further kernels of a session, which its cells start.
//!
//! A process is a session of one cell: it has the folders, bridges and budgets of the session that started it, names of its
//! own, and a kernel of its own. Guests make and read its task, its *order*; the host passes it on. It ends with the call
//! that runs it, and that call with the cell that made it. Its output goes into pipes, which can be read meanwhile, or into
//! the answer of that call.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use cellar_core::{
    cell::{Cell, Language},
    event::EventKind,
    limits::{
        AGENT_DEPTH_MAX, CODE_BYTES_MAX, Limits, PROCESS_COUNTS_MAX, PROCESS_OUTPUT_BYTES_MAX, PROCESSES_MAX,
        PROCESSES_OF_CELL_MAX, TIMEOUT_MAX,
    },
    outcome::{Failure, FailureKind, Outcome},
    sync::lock,
    text::{describe, prefix},
    time::later,
};
use futures::StreamExt;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::{Role, channels::Channels};
use crate::{
    contract::{
        bridge::{CallError, CallErrorKind, CallFuture, Response},
        config::KernelMode,
        error::Error,
    },
    kernel::{
        calls::{Begun, Permits, Site},
        scheduling::{MemoryPool, Spent},
        state::{CHANNEL_PRIMITIVE, KernelLink},
    },
    session::{KernelOptions, Origin, OutputOptions, Session, SessionConfig},
    storage::vault::StoredSession,
};

/// Prefix of the primitives of processes. Guests start processes with them; no list that cells see has them.
const PROCESS: &str = "process.";
/// Bytes that a piece of output counts besides its text.
const PIECE_BYTES: usize = 64;
/// Exit status of a process whose output has no reader any more: it ends as by SIGPIPE.
const STATUS_BROKEN_PIPE: i32 = -13;
/// Environment variables of a process.
const ENVIRONMENT_MAX: usize = 10_000;

/// The budgets of processes, shared by a session and all that its cells make of it.
#[derive(Debug)]
pub(crate) struct Processes {
    permits: Permits,
    memory: Arc<MemoryPool>,
    /// Processes started by each cell, latest cell last. A cell is identified by its session and its number.
    started: Mutex<VecDeque<((String, u32), u32)>>,
    count: AtomicU32,
    channels: Channels,
}

impl Processes {
    pub(crate) fn new(limits: &Limits) -> Processes {
        let at_once = if limits.fuel.is_some() { 1 } else { PROCESSES_MAX };
        Processes {
            permits: Permits::new(at_once),
            memory: Arc::new(MemoryPool::new(limits.memory_bytes)),
            started: Mutex::default(),
            count: AtomicU32::new(0),
            channels: Channels::default(),
        }
    }

    /// Counts one more process of a cell. Returns false if the cell may not start it.
    fn admit(&self, root: &(String, u32)) -> bool {
        let mut started = lock(&self.started);
        if let Some((_, count)) = started.iter_mut().find(|(cell, _)| cell == root) {
            *count = count.saturating_add(1);
            return *count <= PROCESSES_OF_CELL_MAX;
        }
        if started.len() >= PROCESS_COUNTS_MAX {
            started.pop_front();
        }
        started.push_back((root.clone(), 1));
        true
    }
}

/// State of a session that is a process.
pub(crate) struct Process {
    /// Cell that started it, directly or through other processes.
    root: (String, u32),
    order: String,
    /// Reply to its starter, besides its output.
    reply: Mutex<Option<String>>,
    /// Account that its usage is added to.
    pub(crate) bill: Arc<Spent>,
    pub(crate) memory: Arc<MemoryPool>,
    /// Concurrency permit of the process. Its kernel holds the other half.
    pub(crate) place: Arc<OwnedSemaphorePermit>,
    /// Storage of the session whose folders it works in; `None` if that is not stored.
    pub(crate) home: Option<Arc<StoredSession>>,
}

/// Request of a guest for a process.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    language: String,
    /// The cell that reads the order and does what it says.
    code: String,
    /// Order as JSON text, which the host does not parse.
    order: String,
    environment: Vec<(String, String)>,
    /// Timeout in milliseconds.
    #[serde(default)]
    timeout: Option<u64>,
    #[serde(default)]
    pipes: Pipes,
}

/// The pipes of a process. Their other ends are its starter's, and these ends are closed when it has ended.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Pipes {
    /// Pipe that it reads.
    input: Option<u64>,
    /// Pipe for its standard output, as `err` is for standard error; that output is left out of the answer.
    out: Option<u64>,
    err: Option<u64>,
}

/// Result of a process.
#[derive(Debug, Default)]
struct Ended {
    /// Pieces of what it printed, in order: the number of the stream, and text.
    output: Vec<(u8, String)>,
    bytes: usize,
    status: Option<i32>,
    /// Reason for which it was ended.
    failure: Option<Failure>,
}

/// Result of a process, as the guest receives it.
#[derive(Serialize)]
struct Told<'a> {
    status: Option<i32>,
    output: &'a [(u8, String)],
    failure: Option<Value>,
    reply: Option<String>,
}

/// Closes a process's ends of its pipes when it goes, and forgets the channels that it made.
struct Ends<'a> {
    session: &'a Session,
    pipes: &'a Pipes,
    child: Option<String>,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let channels = &self.session.inner.shared.processes.channels;
        self.pipes.input.into_iter().for_each(|pipe| channels.close(pipe, true));
        self.pipes.out.into_iter().chain(self.pipes.err).for_each(|pipe| channels.close(pipe, false));
        self.child.iter().for_each(|child| channels.forget_of(child));
    }
}

impl Start {
    /// # Errors
    /// `Limit` and `Invalid`.
    fn check(&self) -> Result<(), CallError> {
        if self.code.len() > CODE_BYTES_MAX {
            return Err(refused(CallErrorKind::Limit, format!("a process has at most {CODE_BYTES_MAX} bytes of code")));
        }
        if self.environment.len() > ENVIRONMENT_MAX {
            let message = format!("a process has at most {ENVIRONMENT_MAX} environment variables");
            return Err(refused(CallErrorKind::Limit, message));
        }
        let is_bad =
            |(name, value): &(String, String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
        if self.environment.iter().any(is_bad) {
            let message = "an environment variable has a name, without `=`, and nothing in it has a NUL";
            return Err(refused(CallErrorKind::Invalid, message));
        }
        if serde_json::from_str::<IgnoredAny>(&self.order).is_err() {
            return Err(refused(CallErrorKind::Invalid, "`/order`: expected JSON as a text"));
        }
        Ok(())
    }
}

fn refused(kind: CallErrorKind, message: impl Into<String>) -> CallError {
    CallError::new(kind, message)
}

/// Error for a process that could not be started. Hides the host's message, which may name a folder of the host.
fn not_started(error: &Error, language: Language) -> CallError {
    tracing::warn!(error = describe(error), "no process");
    refused(CallErrorKind::Failed, format!("the host cannot run programs in {} now", language.title()))
}

impl Session {
    /// Begins a call of a guest that has to do with processes. `name` is that of a primitive.
    pub(crate) fn call_process(
        &self,
        name: &str,
        arguments: &str,
        site: &Site,
        link: &Arc<KernelLink>,
    ) -> Option<Begun> {
        let is_channel = name == CHANNEL_PRIMITIVE;
        let name = name.strip_prefix(PROCESS)?;
        let session = self.clone();
        let (arguments, site) = (arguments.to_owned(), site.clone());
        let begun = match name {
            _ if is_channel => {
                let asked = async move {
                    let answer = session.inner.shared.processes.channels.ask(&arguments, session.id()).await?;
                    Ok(Response::Json(answer.to_string()))
                };
                Begun { is_free: true, ..Begun::from(Box::pin(asked) as CallFuture) }
            }
            "run" => {
                // What its processes have burned until now is taken off `fuel_left` already.
                let burned = site.spent.as_ref().map_or(0, |spent| spent.fuel());
                let link = link.clone();
                let future = async move {
                    let _waits = link.resident.process();
                    session.run_process(&arguments, site, burned).await
                };
                Begun { is_process: true, ..Begun::from(Box::pin(future) as CallFuture) }
            }
            "order" => {
                let order = session.process().map(|process| Response::Json(process.order.clone()));
                Begun::from(Box::pin(std::future::ready(order)) as CallFuture)
            }
            "reply" => {
                let said = session.process().map(|process| *lock(&process.reply) = Some(arguments));
                let said = said.map(|()| Response::Json(Value::Null.to_string()));
                Begun::from(Box::pin(std::future::ready(said)) as CallFuture)
            }
            _ => return None,
        };
        Some(begun)
    }

    /// Returns true if the session is a process.
    pub(crate) fn is_process(&self) -> bool {
        self.inner.role.process().is_some()
    }

    fn process(&self) -> Result<&Process, CallError> {
        let process = self.inner.role.process().map(Arc::as_ref);
        process.ok_or_else(|| refused(CallErrorKind::Unknown, "this kernel is no process, so it has no order"))
    }

    async fn run_process(&self, arguments: &str, site: Site, burned: u64) -> Result<Response, CallError> {
        let start: Start = serde_json::from_str(arguments)
            .map_err(|error| refused(CallErrorKind::Invalid, format!("the arguments do not fit: {error}")))?;
        // However it ends, or if it never begins.
        let mut ends = Ends { session: self, pipes: &start.pipes, child: None };
        let Some(language) = Language::from_code(&start.language) else {
            return Err(refused(CallErrorKind::Invalid, "`/language`: expected \"py\" or \"js\""));
        };
        start.check()?;
        let depth = site.depth.saturating_add(1);
        let (process, fuel_left) = self.process_of(&start, site, burned).await?;
        let process = Arc::new(process);
        let child = self.process_session(process.clone(), start.environment, fuel_left);
        let child = child.map_err(|error| not_started(&error, language))?;
        ends.child = Some(child.id().to_owned());
        let cell = Cell { timeout: Some(child.limits().timeout_max), ..Cell::new(language, start.code) };
        let run = child.for_agent(depth).run(vec![cell]);
        let mut run = run.map_err(|error| not_started(&error, language))?;
        let mut ended = Ended::default();
        let goes_on = async {
            while let Some(event) = run.next().await {
                if !self.pass_on(&start.pipes, &mut ended, event.kind).await {
                    break;
                }
            }
        };
        let last = start.timeout.map(|timeout| later(Instant::now(), Duration::from_millis(timeout).min(TIMEOUT_MAX)));
        let is_late = match last {
            Some(last) => tokio::time::timeout_at(last.into(), goes_on).await.is_err(),
            None => {
                goes_on.await;
                false
            }
        };
        if is_late {
            let message = "the process ran past the time that it was given";
            ended.failure = Some(Failure::new(FailureKind::Timeout, "CellTimeout", message));
        } else if let (Some(failure), Some(pipe)) = (&ended.failure, start.pipes.err) {
            self.inner.shared.processes.channels.write(pipe, &format!("Killed: {}\n", failure.message)).await;
        }
        // What goes on in it goes no further.
        drop((run, child));
        let reply = lock(&process.reply).take();
        Ok(Response::Json(ended.to_json(reply.as_deref())))
    }

    /// Takes in an event of a process, and writes what it prints to its pipes; whether it may go on.
    async fn pass_on(&self, pipes: &Pipes, ended: &mut Ended, kind: EventKind) -> bool {
        let (pipe, text) = match &kind {
            EventKind::Stdout { text, .. } => (pipes.out, Some(text.as_str())),
            EventKind::Stderr { text, .. } => (pipes.err, Some(text.as_str())),
            EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => (pipes.out, data.visible_text()),
            _ => (None, None),
        };
        let channels = &self.inner.shared.processes.channels;
        let (Some(pipe), Some(text)) = (pipe, text) else {
            let may_go_on = ended.take_in(kind);
            // What is said of its failure goes where its errors go.
            let said = pipes.err.map(|pipe| (pipe, ended.take_errors()));
            if let Some((pipe, said)) = said.filter(|(_, said)| !said.is_empty()) {
                channels.write(pipe, &said).await;
            }
            return may_go_on;
        };
        let is_line =
            matches!(kind, EventKind::Display { .. } | EventKind::UpdateDisplay { .. }) && !text.ends_with('\n');
        let is_read = channels.write(pipe, text).await && (!is_line || channels.write(pipe, "\n").await);
        if !is_read {
            ended.status = Some(STATUS_BROKEN_PIPE);
        }
        is_read
    }

    /// Waits for a permit for a process and returns the process, and the fuel that it may burn.
    async fn process_of(&self, start: &Start, site: Site, burned: u64) -> Result<(Process, Option<u64>), CallError> {
        let Some(spent) = site.spent else {
            let message = "a process belongs to the cell that starts it, and that cell has ended";
            return Err(refused(CallErrorKind::Failed, message));
        };
        let depth = site.depth.saturating_add(1);
        if depth > AGENT_DEPTH_MAX {
            let message = format!(
                "processes may be nested {AGENT_DEPTH_MAX} deep, with the agents and forks around them; this one would be \
                 at depth {depth}"
            );
            return Err(refused(CallErrorKind::Limit, message));
        }
        let inner = &self.inner;
        let root = inner.role.process().map_or_else(|| (self.id().to_owned(), site.cell.0), |own| own.root.clone());
        if !inner.shared.processes.admit(&root) {
            let message =
                format!("a cell may start {PROCESSES_OF_CELL_MAX} processes, those of its processes included");
            return Err(refused(CallErrorKind::Limit, message));
        }
        // A process never waits for room that those who wait for it have.
        if !inner.host.sweep().goes_on(inner.share().claim()) {
            let message = "all kernels of this host wait for processes of theirs; raise `kernels` in [host]";
            return Err(refused(CallErrorKind::Limit, message));
        }
        let closed = || refused(CallErrorKind::Failed, "the session is ending");
        let place = Arc::new(inner.shared.processes.permits.one(depth).await.ok_or_else(closed)?);
        let fuel_left = site.fuel_left.map(|left| left.saturating_sub(spent.fuel().saturating_sub(burned)));
        if fuel_left == Some(0) {
            return Err(refused(CallErrorKind::Limit, "the cell and its processes have used up their fuel"));
        }
        let process = Process {
            root,
            order: start.order.clone(),
            reply: Mutex::default(),
            bill: spent,
            memory: inner.shared.processes.memory.clone(),
            place,
            home: inner.claimed_home(),
        };
        Ok((process, fuel_left))
    }

    /// The session of a process.
    fn process_session(
        &self,
        process: Arc<Process>,
        environment: Vec<(String, String)>,
        fuel_left: Option<u64>,
    ) -> Result<Session, Error> {
        let inner = &self.inner;
        let number = inner.shared.processes.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let limits = &inner.config.limits;
        let base = inner.config.clone();
        let config = SessionConfig {
            id: Some(format!("{}::process::{number}", self.id())),
            environment,
            limits: Limits { fuel: limits.fuel.map(|limit| fuel_left.unwrap_or(limit)), ..limits.clone() },
            input: None,
            kernels: KernelOptions { seeds: HashMap::new(), mode: KernelMode::PerCall, ..base.kernels },
            record: None,
            outputs: OutputOptions { renderers: Vec::new(), ..base.outputs },
            ..base
        };
        let kin = self.kin(Role::Process(process));
        let lent = Some(inner.folders.clone());
        let child = Session::open(inner.host.clone(), config, Origin { kin: Some(kin), lent, ..Origin::default() })?;
        Ok(Session { lineage: self.lineage.elsewhere(None), ..child })
    }
}

impl Ended {
    /// Takes in an event of the process; whether it may go on.
    fn take_in(&mut self, kind: EventKind) -> bool {
        match kind {
            EventKind::Stdout { text, .. } => self.print(1, &text),
            EventKind::Stderr { text, .. } => self.print(2, &text),
            EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => match data.visible_text() {
                Some(text) => self.print(1, text) && self.print(1, if text.ends_with('\n') { "" } else { "\n" }),
                None => true,
            },
            EventKind::CellFinished { outcome, .. } => {
                self.finish(&outcome);
                true
            }
            _ => true,
        }
    }

    fn print(&mut self, stream: u8, text: &str) -> bool {
        if self.output.last().is_none_or(|(last, _)| *last != stream) {
            self.bytes = self.bytes.saturating_add(PIECE_BYTES);
        }
        let room = PROCESS_OUTPUT_BYTES_MAX.saturating_sub(self.bytes);
        let fits = text.len() <= room;
        let text = if fits { text } else { prefix(text, room as u64) };
        self.bytes = self.bytes.saturating_add(text.len());
        match self.output.last_mut() {
            Some((last, piece)) if *last == stream => piece.push_str(text),
            _ => self.output.push((stream, text.to_owned())),
        }
        if !fits {
            let message = format!("the process printed more than {} MiB", PROCESS_OUTPUT_BYTES_MAX >> 20);
            self.failure = Some(Failure::new(FailureKind::Output, "CellOutputLimit", message));
        }
        fits
    }

    /// Takes the text that it has printed to standard error.
    fn take_errors(&mut self) -> String {
        let (said, rest) = std::mem::take(&mut self.output).into_iter().partition(|(stream, _)| *stream == 2);
        self.output = rest;
        Vec::<(u8, String)>::into_iter(said).map(|(_, text)| text).collect()
    }

    fn finish(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Complete => self.status = Some(0),
            Outcome::Exited(status) => self.status = Some(status & 0xff),
            Outcome::Failed(failure) => match failure.kind {
                FailureKind::Raised => {
                    self.status = Some(1);
                    self.print(2, &failure.traceback);
                    self.print(2, "\n");
                }
                _ => self.failure = Some((**failure).clone()),
            },
        }
    }

    fn to_json(&self, reply: Option<&str>) -> String {
        let failure = self.failure.as_ref().map(|failure| {
            let code = failure.code.map(|code| code.as_str());
            json!({"kind": failure.kind.as_str(), "code": code, "message": failure.message})
        });
        // Anything else than a text would take many times its size.
        let reply = reply.and_then(|reply| serde_json::from_str::<String>(reply).ok());
        let told = Told { status: self.status, output: &self.output, failure, reply };
        serde_json::to_string(&told).unwrap_or_default()
    }
}
