//! `cellar stdio`: sessions for a program that started this one. It writes requests, one JSON object a line, and reads
//! events and answers the same way; tools that it declares are called by a line and answered by a line.
//!
//! A caller that does not read holds up the guests, not memory: every line goes through one bounded queue. When its
//! requests end, runs end properly, and what waits for an answer of the caller fails. Read [`Server`] first.

mod calls;
mod finished;
mod lines;
mod runs;
mod state;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cellar_bridges::{HostBridges, Tools};
use cellar_charts::Charts;
use cellar_engine::{Host, HostConfig, Language, Session, SessionConfig, ToolSpec, guest_status};
use tokio::{
    io::AsyncWriteExt,
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    args::{Folders, GrantArguments, StdioArguments},
    report::{CliError, EXIT_COMPLETE},
    sessions::read_snapshot,
    setup,
    socket::SessionDoors,
    wire::{Answer, Open, OpenSessionJson, Request, request_from_json, request_types},
};
use calls::Calls;
use finished::Finished;
use lines::{LineRead, Lines};
use runs::Task;
use state::Ended;

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
    charts: Charts,
    host: Host,
    host_config: Arc<HostConfig>,
    arguments: GrantArguments,
    answers: mpsc::Sender<Answer>,
    /// Ordered, so that lists of them are.
    sessions: BTreeMap<String, OpenSession>,
    /// By the ids of the caller, with the session of each and what stops it.
    runs: HashMap<String, (String, watch::Sender<bool>)>,
    finished: Arc<Finished>,
    calls: Arc<Calls>,
    /// Turns true when the caller will say nothing more.
    is_over: watch::Sender<bool>,
    /// Sessions whose names were made up.
    unnamed: u64,
}

/// A session, and what its forks need of it.
struct OpenSession {
    session: Session,
    /// The bridges without the tools of the caller, which are called with the session's name.
    bridges: HostBridges,
    tools: Vec<ToolSpec>,
}

/// Serves standard input and output.
///
/// # Errors
/// The configuration is not valid, or the streams fail.
pub(crate) async fn stdio(folders: &Folders, arguments: StdioArguments) -> Result<u8, CliError> {
    // Faults of the configuration are told before the first line.
    setup::Granted::new(&arguments.granted, None)?;
    let host_config = Arc::new(HostConfig { kernels_max: KERNELS_MAX, ..setup::host_config(folders)? });
    let host = Host::open(HostConfig::clone(&host_config))?;
    let (answers, queue) = mpsc::channel(LINES_QUEUED_MAX);
    let mut writer = tokio::spawn(write_lines(queue));
    let server = Server {
        charts: Charts::new(host.clone()),
        host,
        host_config,
        arguments: arguments.granted,
        finished: Arc::default(),
        calls: Arc::new(Calls::new(answers.downgrade())),
        answers,
        sessions: BTreeMap::new(),
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
        let languages = languages.filter(|language| guest_status(&self.host_config, language.guest()).digest.is_some());
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
                Some(ended) = tasks.join_next() => self.ended(ended).await,
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
            self.ended(ended).await;
        }
        Ok(())
    }

    async fn ended(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        let (asked, answer) = match ended {
            Ok(Ended::Run(id)) => return drop(self.runs.remove(&id)),
            Ok(Ended::Saved(asked, saved)) => {
                let answer = saved.map(|()| asked.id.is_some().then(|| Answer::Done { id: asked.id.clone() }));
                (asked, answer)
            }
            Ok(Ended::Read(asked, outputs)) => {
                let answer = outputs.map(|outputs| Some(Answer::Outputs { id: asked.id.clone(), outputs }));
                (asked, answer)
            }
            Ok(Ended::Forked(asked, forked)) => {
                let answer = forked.and_then(|(name, open)| {
                    // Another may have been opened meanwhile.
                    self.check_new_session(&name)?;
                    self.sessions.insert(name.clone(), *open);
                    Ok(Some(Answer::Opened { id: asked.id.clone(), session: name }))
                });
                (asked, answer)
            }
            Err(error) => return tracing::error!(%error, "a task of a request failed"),
        };
        self.answer(asked.id, asked.line, answer).await;
    }

    async fn say(&self, answer: Answer) {
        // The writer ends when the caller does not read any more, and this task with it.
        let _ = self.answers.send(answer).await;
    }

    async fn line(&mut self, line: LineRead, number: u64, tasks: &mut JoinSet<Ended>) {
        let (id, request) = match line {
            LineRead::Whole(bytes) if bytes.trim_ascii().is_empty() => return,
            LineRead::Whole(bytes) => request_from_json(&bytes, &format!("line {number}")),
            LineRead::TooLong => (None, Err(lines::too_long(number))),
        };
        let answer = match request {
            Ok(request) => self.request(request, &id, number, tasks).await,
            Err(invalid) => Err(CliError::Invalid(invalid)),
        };
        self.answer(id, number, answer).await;
    }

    async fn answer(&self, id: Option<String>, line: u64, answer: Result<Option<Answer>, CliError>) {
        match answer {
            Ok(Some(answer)) => self.say(answer).await,
            Ok(None) => {}
            Err(error) => self.say(Answer::Error { id, line, error: error.refusal() }).await,
        }
    }

    /// Carries out a request.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    async fn request(
        &mut self,
        request: Request,
        id: &Option<String>,
        line: u64,
        tasks: &mut JoinSet<Ended>,
    ) -> Result<Option<Answer>, CliError> {
        let done = |id: &Option<String>| id.is_some().then(|| Answer::Done { id: id.clone() });
        match request {
            Request::Open(open) => {
                let session = self.open(*open).await?;
                return Ok(Some(Answer::Opened { id: id.clone(), session }));
            }
            Request::Run { session, cells, keep_going } => {
                let id = id.clone().unwrap_or_default();
                self.check_new_run(&id)?;
                check_room(tasks)?;
                let name = session.unwrap_or_else(|| DEFAULT_SESSION.to_owned());
                let session = self.session(&name).await?;
                let (cancel, cancelled) = watch::channel(false);
                self.runs.insert(id.clone(), (name, cancel));
                let (host, answers) = (self.host_config.clone(), self.answers.clone());
                let (over, finished) = (self.is_over.subscribe(), self.finished.clone());
                finished.forget(&id);
                let task = Task { id, line, session, cells, keep_going, host, cancelled, over, answers, finished };
                tasks.spawn(task.follow());
                return Ok(None);
            }
            Request::Cancel => {
                let id = id.as_deref().unwrap_or_default();
                let (_, cancel) = self.runs.get(id).ok_or_else(|| unknown("run", id, "is under way"))?;
                cancel.send_replace(true);
                // The id is that of the run, whose result is the answer.
                return Ok(None);
            }
            Request::ToLlm { run, output, view } => {
                let kept = self.finished.run(&run)?;
                check_room(tasks)?;
                let asked = state::Asked { id: id.clone(), line };
                tasks.spawn(async move { Ended::Read(asked, kept.pages(output, view).await) });
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
            Request::Snapshot { session, file } => {
                let session = self.known(session.as_deref())?.clone();
                check_room(tasks)?;
                tasks.spawn(state::save(session, file, state::Asked { id: id.clone(), line }));
                return Ok(None);
            }
            Request::Restore { session, file } => {
                let session = self.known(session.as_deref())?.clone();
                let snapshot = state::on_a_thread(move || read_snapshot(&file)).await?;
                session.rewind(&snapshot)?;
            }
            Request::Fork { session, new } => {
                let from = self.open_session(session.as_deref())?;
                let (session, bridges, tools) = (from.session.clone(), from.bridges.clone(), from.tools.clone());
                let name = self.name(new);
                self.check_new_session(&name)?;
                check_room(tasks)?;
                let granted = self.with_tools(&name, &bridges, &tools);
                let asked = state::Asked { id: id.clone(), line };
                let fork = async move {
                    let forked = session.fork_with(Some(name.clone()), Arc::new(granted)).await;
                    let forked = forked.map(|session| (name, Box::new(OpenSession { session, bridges, tools })));
                    Ended::Forked(asked, forked.map_err(CliError::from))
                };
                tasks.spawn(fork);
                return Ok(None);
            }
            Request::Sessions => {
                let runs_of = |name: &str| {
                    let runs = self.runs.iter().filter(|(_, (session, _))| session == name);
                    let mut runs: Vec<String> = runs.map(|(id, _)| id.clone()).collect();
                    runs.sort_unstable();
                    runs
                };
                let open = self.sessions.keys();
                let sessions =
                    open.map(|name| OpenSessionJson { session: name.clone(), runs: runs_of(name) }).collect();
                return Ok(Some(Answer::Sessions { id: id.clone(), sessions }));
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
        Ok(())
    }

    fn known(&self, name: Option<&str>) -> Result<&Session, CliError> {
        Ok(&self.open_session(name)?.session)
    }

    fn open_session(&self, name: Option<&str>) -> Result<&OpenSession, CliError> {
        let name = name.unwrap_or(DEFAULT_SESSION);
        self.sessions.get(name).ok_or_else(|| unknown("session", name, "is open"))
    }

    fn check_new_session(&self, name: &str) -> Result<(), CliError> {
        if self.sessions.contains_key(name) {
            return Err(CliError::usage(format!("a session `{name}` is open"), "close it, or choose another name"));
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(CliError::usage(format!("{SESSIONS_MAX} sessions are open"), "close some of them"));
        }
        Ok(())
    }

    /// The name of a session, made up if need be.
    fn name(&mut self, given: Option<String>) -> String {
        given.unwrap_or_else(|| {
            self.unnamed += 1;
            format!("session-{}", self.unnamed)
        })
    }

    /// The bridges of the session of this name.
    fn with_tools(&self, name: &str, bridges: &HostBridges, tools: &[ToolSpec]) -> HostBridges {
        let of_caller = |tools: Tools, spec: &ToolSpec| tools.with(spec.clone(), self.calls.tool(name, &spec.name));
        bridges.clone().with_tools(tools.iter().fold(Tools::new(), of_caller))
    }

    /// The session of a run. That of requests which name none needs no `open`.
    async fn session(&mut self, name: &str) -> Result<Session, CliError> {
        if name == DEFAULT_SESSION && !self.sessions.contains_key(name) {
            self.open(Open { session: Some(name.to_owned()), ..Open::default() }).await?;
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
        if granted.charts {
            config.renderers = vec![self.charts.clone().into()];
        }
        if let Some(input) = open.input {
            config.input = input.then_some(granted.input_timeout);
        }
        if let Some(workspace) = open.workspace {
            config.workspace = Some(workspace.into());
        }
        let session = match open.snapshot {
            None => self.host.session(config)?,
            Some(file) => {
                let snapshot = state::on_a_thread(move || read_snapshot(&file)).await?;
                self.host.restore(&snapshot, config)?
            }
        };
        self.sessions.insert(name.clone(), OpenSession { session, bridges, tools: open.tools });
        Ok(name)
    }
}

/// Checks that one more task can be followed.
fn check_room(tasks: &JoinSet<Ended>) -> Result<(), CliError> {
    if tasks.len() < RUNS_MAX {
        return Ok(());
    }
    Err(CliError::usage(format!("{RUNS_MAX} runs are under way"), "wait until some of them have ended"))
}

fn unknown(what: &str, name: &str, state: &str) -> CliError {
    CliError::Usage { message: format!("no {what} `{name}` {state}"), hint: None }
}
