//! `cellar stdio`: sessions for a program that started this one. It writes requests, one JSON object a line, and reads
//! events and answers the same way; tools that it declares are called by a line and answered by a line.
//!
//! A caller that does not read holds up the guests, not memory: every line goes through one bounded queue. When its
//! requests end, runs end properly, and what waits for an answer of the caller fails. Read [`Server`] first.

mod calls;
mod lines;
mod runs;
mod state;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cellar_bridges::{HostBridges, Tools};
use cellar_engine::{Host, HostConfig, Language, Session, SessionConfig, ToolSpec, guest_status};
use tokio::{
    io::AsyncWriteExt,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    args::{Folders, SessionArguments, StdioArguments},
    report::{CliError, EXIT_COMPLETE},
    setup,
    socket::SessionDoors,
    wire::{Answer, Open, Request, request_from_json, request_types},
};
use calls::Calls;
use lines::{LineRead, Lines};
use runs::Task;

/// Of the protocol that [`Answer`] and [`Request`] are.
const PROTOCOL: u32 = 1;
/// Lines that wait for the caller to read them; more suspend the guests.
const LINES_QUEUED_MAX: usize = 64;
/// Runs under way.
const RUNS_MAX: usize = 256;
/// Sessions that are open.
const SESSIONS_MAX: usize = 1_024;
/// Live kernels of each flavour.
const KERNELS_MAX: u32 = 64;
/// The session of requests that name none; it is opened by the first of them.
const DEFAULT_SESSION: &str = "default";

/// What a shell reports of a command that was interrupted.
const EXIT_INTERRUPTED: u8 = 130;

/// The sessions and runs of one caller.
struct Server {
    host: Host,
    host_config: Arc<HostConfig>,
    arguments: SessionArguments,
    answers: mpsc::Sender<Answer>,
    sessions: HashMap<String, Session>,
    /// By the ids of the caller, with the session of each and what stops it.
    runs: HashMap<String, (String, watch::Sender<bool>)>,
    calls: Arc<Calls>,
    /// Turns true when the caller will say nothing more.
    is_over: watch::Sender<bool>,
    /// Sessions whose names were made up.
    unnamed: u64,
}

/// Serves standard input and output.
///
/// # Errors
/// The configuration is not valid, or the streams fail.
pub(crate) async fn stdio(folders: &Folders, arguments: StdioArguments) -> Result<u8, CliError> {
    // Faults of the configuration are told before the first line.
    setup::Granted::new(&arguments.session, None)?;
    let host_config = Arc::new(HostConfig { kernels_max: KERNELS_MAX, ..setup::host_config(folders)? });
    let host = Host::open(HostConfig::clone(&host_config))?;
    let (answers, queue) = mpsc::channel(LINES_QUEUED_MAX);
    let mut writer = tokio::spawn(write_lines(queue));
    let server = Server {
        host,
        host_config,
        arguments: arguments.session,
        calls: Arc::new(Calls::new(answers.downgrade())),
        answers,
        sessions: HashMap::new(),
        runs: HashMap::new(),
        is_over: watch::Sender::new(false),
        unnamed: 0,
    };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::Start)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::Start)?;
    tokio::select! {
        served = server.serve() => served?,
        written = &mut writer => return written.map_err(|error| CliError::Output(error.into()))?.map(|()| EXIT_COMPLETE),
        _ = interrupt.recv() => return Ok(EXIT_INTERRUPTED),
        _ = terminate.recv() => return Ok(EXIT_INTERRUPTED),
    }
    writer.await.map_err(|error| CliError::Output(error.into()))??;
    Ok(EXIT_COMPLETE)
}

/// Writes the queue to standard output, to its end.
async fn write_lines(mut queue: mpsc::Receiver<Answer>) -> Result<(), CliError> {
    let mut stdout = tokio::io::stdout();
    while let Some(answer) = queue.recv().await {
        let mut line = serde_json::to_vec(&answer).map_err(|error| CliError::Output(error.into()))?;
        line.push(b'\n');
        stdout.write_all(&line).await.map_err(CliError::Output)?;
        if queue.is_empty() {
            stdout.flush().await.map_err(CliError::Output)?;
        }
    }
    stdout.flush().await.map_err(CliError::Output)
}

impl Server {
    /// Serves requests until there are no more, and then lets the runs end.
    async fn serve(mut self) -> Result<(), CliError> {
        let languages = [Language::Python, Language::JavaScript].into_iter();
        let languages = languages.filter(|language| guest_status(&self.host_config, *language).digest.is_some());
        let hello = Answer::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION"),
            languages: languages.map(|language| language.code()).collect(),
            requests: request_types(),
        };
        self.say(hello).await;
        let mut lines = Lines::new(tokio::io::stdin());
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                Some(ended) = tasks.join_next() => self.forget(ended),
                line = lines.next() => match line.map_err(|source| CliError::Read { path: "-".into(), source })? {
                    Some(line) => self.line(line, lines.count(), &mut tasks).await,
                    None => break,
                },
            }
        }
        // The runs hear of it, and what they still have to say is said.
        self.is_over.send_replace(true);
        self.calls.end();
        while let Some(ended) = tasks.join_next().await {
            self.forget(ended);
        }
        Ok(())
    }

    fn forget(&mut self, ended: Result<String, tokio::task::JoinError>) {
        match ended {
            Ok(id) => drop(self.runs.remove(&id)),
            Err(error) => tracing::error!(%error, "a run failed to be followed"),
        }
    }

    async fn say(&self, answer: Answer) {
        // The writer ends when the caller does not read any more, and this task with it.
        let _ = self.answers.send(answer).await;
    }

    async fn line(&mut self, line: LineRead, number: u64, tasks: &mut JoinSet<String>) {
        let (id, request) = match line {
            LineRead::Whole(bytes) if bytes.trim_ascii().is_empty() => return,
            LineRead::Whole(bytes) => request_from_json(&bytes, &format!("line {number}")),
            LineRead::TooLong => (None, Err(lines::too_long(number))),
        };
        let answer = match request {
            Ok(request) => self.request(request, &id, number, tasks),
            Err(invalid) => Err(CliError::Invalid(invalid)),
        };
        match answer {
            Ok(Some(answer)) => self.say(answer).await,
            Ok(None) => {}
            Err(error) => self.say(Answer::Error { id, line: number, error: error.refusal() }).await,
        }
    }

    /// Carries out a request.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    fn request(
        &mut self,
        request: Request,
        id: &Option<String>,
        line: u64,
        tasks: &mut JoinSet<String>,
    ) -> Result<Option<Answer>, CliError> {
        let done = |id: &Option<String>| id.is_some().then(|| Answer::Done { id: id.clone() });
        match request {
            Request::Open(open) => {
                let session = self.open(*open)?;
                return Ok(Some(Answer::Opened { id: id.clone(), session }));
            }
            Request::Run { session, cells, keep_going } => {
                let id = id.clone().unwrap_or_default();
                self.check_new_run(&id)?;
                let name = session.unwrap_or_else(|| DEFAULT_SESSION.to_owned());
                let session = self.session(&name)?;
                let (cancel, cancelled) = watch::channel(false);
                self.runs.insert(id.clone(), (name, cancel));
                let (host, answers) = (self.host_config.clone(), self.answers.clone());
                let over = self.is_over.subscribe();
                tasks.spawn(Task { id, line, session, cells, keep_going, host, cancelled, over, answers }.follow());
                return Ok(None);
            }
            Request::Cancel => {
                let id = id.as_deref().unwrap_or_default();
                let (_, cancel) = self.runs.get(id).ok_or_else(|| unknown("run", id, "is under way"))?;
                cancel.send_replace(true);
                // The id is that of the run, whose result is the answer.
                return Ok(None);
            }
            Request::Reply { call, result } => {
                if !self.calls.reply(&call, result) {
                    return Err(unknown("call", &call, "waits for an answer"));
                }
            }
            Request::SubmitInput { session, request_id, value } => {
                let session = self.known(session.as_deref())?;
                match value {
                    Some(value) => session.submit_input(&request_id, value)?,
                    None => session.end_input(&request_id)?,
                }
            }
            Request::Reset { session, languages } => {
                let session = self.known(session.as_deref())?;
                languages.into_iter().for_each(|language| session.reset(language));
            }
            Request::Close { session } => {
                let name = session.as_deref().unwrap_or(DEFAULT_SESSION);
                self.sessions.remove(name).ok_or_else(|| unknown("session", name, "is open"))?;
                self.runs.values().filter(|(session, _)| session == name).for_each(|(_, cancel)| {
                    cancel.send_replace(true);
                });
            }
        }
        Ok(done(id))
    }

    fn check_new_run(&self, id: &str) -> Result<(), CliError> {
        if self.runs.contains_key(id) {
            return Err(CliError::usage(format!("a run `{id}` is under way"), "give each run an id of its own"));
        }
        if self.runs.len() >= RUNS_MAX {
            let message = format!("{RUNS_MAX} runs are under way");
            return Err(CliError::usage(message, "wait until some of them have ended"));
        }
        Ok(())
    }

    fn known(&self, name: Option<&str>) -> Result<&Session, CliError> {
        let name = name.unwrap_or(DEFAULT_SESSION);
        self.sessions.get(name).ok_or_else(|| unknown("session", name, "is open"))
    }

    /// The session of a run. That of requests which name none needs no `open`.
    fn session(&mut self, name: &str) -> Result<Session, CliError> {
        if name == DEFAULT_SESSION && !self.sessions.contains_key(name) {
            let open =
                Open { session: Some(name.to_owned()), grants: None, workspace: None, tools: Vec::new(), input: None };
            self.open(open)?;
        }
        self.known(Some(name)).cloned()
    }

    /// Opens a session, and returns its name.
    async fn open(&mut self, open: Open) -> Result<String, CliError> {
        let name = self.name(open.session);
        self.check_new_session(&name)?;
        let granted = setup::Granted::new(&self.arguments, open.grants)?;
        let bridges = HostBridges::new(granted.bridges).with_doors(Arc::new(SessionDoors));
        let with_tools = Arc::new(self.with_tools(&name, &bridges, &open.tools));
        let mut config = SessionConfig { id: Some(name.clone()), bridges: with_tools, ..granted.session };
        if let Some(input) = open.input {
            config.input = input.then_some(granted.input_timeout);
        }
        if let Some(workspace) = open.workspace {
            config.workspace = Some(workspace.into());
        }
        self.sessions.insert(name.clone(), self.host.session(config)?);
        Ok(name)
    }
}

fn unknown(what: &str, name: &str, state: &str) -> CliError {
    CliError::Usage { message: format!("no {what} `{name}` {state}"), hint: None }
}
