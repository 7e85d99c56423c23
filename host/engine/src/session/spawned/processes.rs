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
    time::Instant,
};

use cellar_core::{
    cell::{Cell, Language},
    event::EventKind,
    limits::{
        AGENT_DEPTH_MAX, CODE_BYTES_MAX, Limits, PROCESS_COUNTS_MAX, PROCESS_OUTPUT_BYTES_MAX, PROCESSES_MAX,
        PROCESSES_OF_CELL_MAX, TIMEOUT_MAX,
    },
    outcome::{Failure, FailureCode, FailureKind, Outcome},
    sync::lock,
    text::{describe, prefix},
    time::later,
};
use futures::StreamExt;
use tokio::sync::OwnedSemaphorePermit;

use super::{Role, channels::Channels};
use crate::{
    contract::{
        bridge::{
            CallError, CallErrorKind, CallFuture, OutputStream, PipeEnd, Pipes, ProcessCall, ProcessEnd,
            ProcessFailure, ProcessFailureKind, ProcessRequest, Response,
        },
        config::KernelMode,
        error::Error,
    },
    kernel::{
        calls::{Begun, Permits, Site},
        scheduling::{MemoryPool, Spent},
        state::KernelLink,
    },
    session::{KernelOptions, Origin, OutputOptions, Session, SessionConfig},
    storage::vault::StoredSession,
};

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
    pub(super) memory: Arc<MemoryPool>,
    /// Processes started by each cell, latest cell last. A cell is identified by its session and its number.
    started: Mutex<VecDeque<((String, u32), u32)>>,
    count: AtomicU32,
    pub(super) channels: Channels,
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
    pub(super) root: (String, u32),
    /// Order, which the host does not parse.
    pub(super) order: String,
    /// Reply to its starter, besides its output.
    pub(super) reply: Arc<Mutex<Option<String>>>,
    /// Account that its usage is added to.
    pub(crate) bill: Arc<Spent>,
    pub(crate) memory: Arc<MemoryPool>,
    /// Concurrency permit of the process; a command has none. Its kernel holds the other half.
    pub(crate) place: Option<Arc<OwnedSemaphorePermit>>,
    /// Link of the kernel whose cell started it: what that remembers of fetches, and what it fetches, is the process's as well.
    pub(crate) starter: Arc<KernelLink>,
    /// Storage of the session whose folders it works in; `None` if that is not stored.
    pub(crate) home: Option<Arc<StoredSession>>,
}

/// Result of a process.
#[derive(Debug, Default)]
struct Ended {
    /// Pieces of what it printed, in order.
    output: Vec<(OutputStream, String)>,
    bytes: usize,
    status: Option<i32>,
    /// Reason for which it was ended.
    failure: Option<Failure>,
}

/// Closes a process's ends of its pipes when it goes, and forgets the channels that it made.
struct Ends<'a> {
    session: &'a Session,
    pipes: Pipes,
    child: Option<String>,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let channels = &self.session.inner.shared.processes.channels;
        self.pipes.input.into_iter().for_each(|pipe| channels.close(pipe, PipeEnd::Reading));
        self.pipes.out.into_iter().chain(self.pipes.err).for_each(|pipe| channels.close(pipe, PipeEnd::Writing));
        self.child.iter().for_each(|child| channels.forget_of(child));
    }
}

/// # Errors
/// `Limit` and `Invalid`.
fn check(request: &ProcessRequest) -> Result<(), CallError> {
    if request.code.len() > CODE_BYTES_MAX {
        return Err(refused(CallErrorKind::Limit, format!("a process has at most {CODE_BYTES_MAX} bytes of code")));
    }
    if request.environment.len() > ENVIRONMENT_MAX {
        let message = format!("a process has at most {ENVIRONMENT_MAX} environment variables");
        return Err(refused(CallErrorKind::Limit, message));
    }
    let is_bad =
        |(name, value): &(String, String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
    if request.environment.iter().any(is_bad) {
        let message = "an environment variable has a name, without `=`, and nothing in it has a NUL";
        return Err(refused(CallErrorKind::Invalid, message));
    }
    Ok(())
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
    /// Begins a call of the interface `processes`.
    pub(crate) fn call_process(&self, call: ProcessCall, site: Site, link: &Arc<KernelLink>) -> Begun {
        let session = self.clone();
        match call {
            ProcessCall::Channel(call) => {
                let asked = async move {
                    let answer = session.inner.shared.processes.channels.ask(call, session.id()).await?;
                    Ok(Response::Channel(answer))
                };
                Begun { is_free: true, ..Begun::from(Box::pin(asked) as CallFuture) }
            }
            ProcessCall::Run(request) => {
                // What its processes have burned until now is taken off `fuel_left` already.
                let burned = site.spent.as_ref().map_or(0, |spent| spent.fuel());
                let link = link.clone();
                let future = async move {
                    let _waits = link.resident.process();
                    let starter = session.inner.role.process().map_or_else(|| link.clone(), |own| own.starter.clone());
                    session.run_process(*request, site, burned, starter).await
                };
                Begun { is_process: true, ..Begun::from(Box::pin(future) as CallFuture) }
            }
            ProcessCall::Order => {
                let order = session.process().map(|process| Response::Text(process.order.clone()));
                Begun::from(Box::pin(std::future::ready(order)) as CallFuture)
            }
            ProcessCall::Reply(reply) => {
                let said = session.process().map(|process| *lock(&process.reply) = Some(reply));
                let said = said.map(|()| Response::Done);
                Begun::from(Box::pin(std::future::ready(said)) as CallFuture)
            }
        }
    }

    /// Returns true if the session is a process.
    pub(crate) fn is_process(&self) -> bool {
        self.inner.role.process().is_some()
    }

    /// Returns true if the session is a process whose output is the answer of a call.
    pub(crate) fn answers_a_call(&self) -> bool {
        self.inner.role.process().is_some_and(|process| process.place.is_some())
    }

    fn process(&self) -> Result<&Process, CallError> {
        let process = self.inner.role.process().map(Arc::as_ref);
        process.ok_or_else(|| refused(CallErrorKind::Unknown, "this kernel is no process, so it has no order"))
    }

    async fn run_process(
        &self,
        request: ProcessRequest,
        site: Site,
        burned: u64,
        starter: Arc<KernelLink>,
    ) -> Result<Response, CallError> {
        // However it ends, or if it never begins.
        let mut ends = Ends { session: self, pipes: request.pipes, child: None };
        check(&request)?;
        let ProcessRequest { language, code, order, environment, timeout, pipes } = request;
        let depth = site.depth.saturating_add(1);
        let (hearer, call) = (site.hearer.clone(), site.call);
        let (process, fuel_left) = self.process_of(order, site, burned, starter).await?;
        let process = Arc::new(process);
        let child = self.process_session(process.clone(), environment, fuel_left);
        let child = child.map_err(|error| not_started(&error, language))?;
        ends.child = Some(child.id().to_owned());
        let cell = Cell { timeout: Some(child.limits().timeout_max), ..Cell::new(language, code) };
        let run = child.for_agent(depth).run(vec![cell]);
        let mut run = run.map_err(|error| not_started(&error, language))?;
        let mut ended = Ended::default();
        let goes_on = async {
            while let Some(event) = run.next().await {
                if let (EventKind::Fetched { fetch, .. }, Some(hearer)) = (&event.kind, &hearer) {
                    // What a process fetches is the run's that started it. A run that has ended hears no more.
                    let fetched = EventKind::Fetched { index: hearer.index, call, fetch: fetch.clone() };
                    let _ = hearer.hear(fetched).await;
                }
                if !self.pass_on(pipes, &mut ended, event.kind).await {
                    break;
                }
            }
        };
        let last = timeout.map(|timeout| later(Instant::now(), timeout.min(TIMEOUT_MAX)));
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
        } else if let (Some(failure), Some(pipe)) = (&ended.failure, pipes.err) {
            self.inner.shared.processes.channels.write(pipe, &format!("Killed: {}\n", failure.message)).await;
        }
        // What goes on in it goes no further.
        drop((run, child));
        let reply = lock(&process.reply).take();
        Ok(Response::Process(Box::new(ended.into_end(reply))))
    }

    /// Takes in an event of a process, and writes what it prints to its pipes; whether it may go on.
    async fn pass_on(&self, pipes: Pipes, ended: &mut Ended, kind: EventKind) -> bool {
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
    async fn process_of(
        &self,
        order: String,
        site: Site,
        burned: u64,
        starter: Arc<KernelLink>,
    ) -> Result<(Process, Option<u64>), CallError> {
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
            order,
            reply: Arc::default(),
            bill: spent,
            memory: inner.shared.processes.memory.clone(),
            place: Some(place),
            starter,
            home: inner.claimed_home(),
        };
        Ok((process, fuel_left))
    }

    /// The session of a process.
    pub(super) fn process_session(
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
            EventKind::Stdout { text, .. } => self.print(OutputStream::Stdout, &text),
            EventKind::Stderr { text, .. } => self.print(OutputStream::Stderr, &text),
            EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. } => match data.visible_text() {
                Some(text) => {
                    let end = if text.ends_with('\n') { "" } else { "\n" };
                    self.print(OutputStream::Stdout, text) && self.print(OutputStream::Stdout, end)
                }
                None => true,
            },
            EventKind::CellFinished { outcome, .. } => {
                self.finish(&outcome);
                true
            }
            _ => true,
        }
    }

    fn print(&mut self, stream: OutputStream, text: &str) -> bool {
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
        let said = self.output.extract_if(.., |(stream, _)| *stream == OutputStream::Stderr);
        said.map(|(_, text)| text).collect()
    }

    fn finish(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Complete => self.status = Some(0),
            Outcome::Exited(status) => self.status = Some(status & 0xff),
            Outcome::Failed(failure) => match failure.kind {
                FailureKind::Raised => {
                    self.status = Some(1);
                    self.print(OutputStream::Stderr, &failure.traceback);
                    self.print(OutputStream::Stderr, "\n");
                }
                _ => self.failure = Some((**failure).clone()),
            },
        }
    }

    fn into_end(self, reply: Option<String>) -> ProcessEnd {
        ProcessEnd { status: self.status, output: self.output, failure: self.failure.map(process_failure), reply }
    }
}

/// Failure of a process, as its starter gets it.
fn process_failure(failure: Failure) -> ProcessFailure {
    let kind = match (failure.kind, failure.code) {
        (FailureKind::Output, _) => ProcessFailureKind::Output,
        (FailureKind::Timeout, _) => ProcessFailureKind::Timeout,
        (_, Some(FailureCode::Lost) | None) => ProcessFailureKind::Killed,
        (_, Some(_)) => ProcessFailureKind::NotStarted,
    };
    ProcessFailure { kind, message: failure.message }
}
