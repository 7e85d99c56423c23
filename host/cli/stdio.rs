//! `cellar stdio`: sessions for a program that started this one. It writes requests, one JSON object a line, and reads
//! events and answers the same way; tools that it declares are called by a line and answered by a line.
//!
//! This is a translation of the hub's words into lines. A caller that does not read holds up the guests, not memory:
//! every line goes through one bounded queue. When its requests end, runs end properly, and what waits for an answer of
//! the caller fails. Read [`Server`] first.

mod lines;
mod state;

use std::{sync::Arc, time::Duration};

use cellar_engine::{
    HostConfig, RunResult,
    background::{Background, BackgroundReader},
    results::View,
};
use cellar_hub::{Answerer, Ask, Delivery, Hub, HubConfig, HubError, OnDisconnect, OpenRequest, RunHandle, RunRequest};
use cellar_setup::Overrides;
use cellar_wire::{
    Answer, EventJson, Open, OpenSessionJson, OutputJson, Request, ResultJson, StreamJson, first_outputs, output_page,
    request_from_json, request_types,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Semaphore, SemaphorePermit, mpsc},
    task::JoinSet,
};

use crate::{
    args::{Folders, StdioArguments},
    report::{CliError, EXIT_COMPLETE, print_progress},
    sessions::read_snapshot,
    setup,
    socket::SessionDoors,
    terminal::write_json,
};
use lines::LineRead;
use state::Ended;

/// Of the protocol that [`Answer`] and [`Request`] are.
const PROTOCOL: u32 = 1;
/// Lines that wait for the caller to read them; more suspend the guests.
const LINES_QUEUED_MAX: usize = 64;
/// KiB of events that wait for the caller, as they are before they are written as JSON.
const LINES_KIB_MAX: u32 = 64 << 10;
/// Requests under way that wait for something, runs among them.
const TASKS_MAX: usize = 4_096;
/// Sessions that may be open.
const SESSIONS_MAX: usize = 4_096;
/// The session of requests that name none; it is opened by the first of them.
const DEFAULT_SESSION: &str = "default";

/// What a shell reports of a command that was interrupted.
const EXIT_INTERRUPTED: u8 = 130;

/// Translates for one caller.
struct Server {
    hub: Hub,
    answerer: Answerer,
    answers: mpsc::Sender<Line>,
}

/// An answer that waits for the caller to read it.
struct Line {
    answer: Answer,
    /// Its share of what may wait, if it has much.
    _room: Option<SemaphorePermit<'static>>,
}

impl From<Answer> for Line {
    fn from(answer: Answer) -> Line {
        Line { answer, _room: None }
    }
}

/// Room for what waits to be read, in KiB. A caller that does not read costs no more, whatever its sessions display.
static ROOM: Semaphore = Semaphore::const_new(LINES_KIB_MAX as usize);

/// Serves standard input and output.
///
/// # Errors
/// The configuration is not valid, or the streams fail.
pub(crate) async fn stdio(folders: &Folders, arguments: StdioArguments) -> Result<u8, CliError> {
    let mut config = HubConfig::default();
    (config.runs_max, config.sessions_max) = (TASKS_MAX, SESSIONS_MAX);
    config.overrides = Overrides::from(&arguments.granted);
    let kernels_max = cellar_setup::kernels_max(&config.overrides.file().map_err(HubError::from)?.host);
    let host_config = HostConfig { kernels_max, ..setup::host_config(folders)? };
    config.progress = print_progress;
    let hub = Hub::open(host_config, config, Arc::new(SessionDoors))?;
    let (answers, queue) = mpsc::channel(LINES_QUEUED_MAX);
    let (written, mut writer) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || written.send(write_lines(queue)));
    let server = Server { hub, answerer: answerer(answers.downgrade()), answers };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::Start)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::Start)?;
    tokio::select! {
        served = server.serve() => served?,
        written = &mut writer => return written.unwrap_or(Ok(())).map(|()| EXIT_COMPLETE),
        _ = interrupt.recv() => return Ok(EXIT_INTERRUPTED),
        _ = terminate.recv() => return Ok(EXIT_INTERRUPTED),
    }
    writer.await.unwrap_or(Ok(()))?;
    Ok(EXIT_COMPLETE)
}

/// Asks the caller, by lines. Weak, because what holds this may outlive its session a little, and the output ends with
/// its last writer.
fn answerer(answers: mpsc::WeakSender<Line>) -> Answerer {
    Answerer::new(move |ask| {
        let answers = answers.upgrade();
        Box::pin(async move {
            let line = match ask {
                Ask::Call { call, session, cell, tool, arguments } => {
                    Answer::Call { call, session, cell: cell.0, tool, arguments }
                }
                Ask::Cancelled { call } => Answer::CallCancelled { call },
            };
            match answers {
                Some(answers) => answers.send(line.into()).await.is_ok(),
                None => false,
            }
        })
    })
}

/// Writes the queue to standard output, to its end. A thread of its own waits for the caller, so that no task does.
fn write_lines(mut queue: mpsc::Receiver<Line>) -> Result<(), CliError> {
    let mut lines = String::new();
    while let Some(Line { answer, _room }) = queue.blocking_recv() {
        lines.push_str(&serde_json::to_string(&answer).map_err(|error| CliError::Output(error.into()))?);
        lines.push('\n');
        if queue.is_empty() || lines.len() >= WRITE_BYTES {
            write_json(&lines).map_err(CliError::Output)?;
            lines.clear();
            lines.shrink_to(WRITE_BYTES);
        }
    }
    write_json(&lines).map_err(CliError::Output)
}

/// Bytes of lines that are gathered before they are written.
const WRITE_BYTES: usize = 64 << 10;

impl Server {
    /// Serves requests until there are no more, and then lets the runs end.
    async fn serve(self) -> Result<(), CliError> {
        let hello = Answer::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION"),
            languages: self.hub.languages().into_iter().map(|language| language.code()).collect(),
            requests: request_types(),
        };
        self.say(hello).await;
        let mut lines = lines::read();
        let mut tasks = JoinSet::new();
        let mut count = 0;
        loop {
            tokio::select! {
                Some(ended) = tasks.join_next() => self.ended(ended).await,
                line = lines.recv() => match line {
                    Some(line) => {
                        count += 1;
                        let line = line.map_err(|source| CliError::Read { path: "-".into(), source })?;
                        self.line(line, count, &mut tasks).await;
                    }
                    None => break,
                },
            }
        }
        // The runs hear of it, and what they still have to say is said.
        self.answerer.end();
        while let Some(ended) = tasks.join_next().await {
            self.ended(ended).await;
        }
        Ok(())
    }

    async fn ended(&self, ended: Result<Ended, tokio::task::JoinError>) {
        let (asked, answer) = match ended {
            Ok(Ended::Run) => return,
            Ok(Ended::Saved(asked, saved)) => {
                let answer = saved.map(|()| asked.id.is_some().then(|| Answer::Done { id: asked.id.clone() }));
                (asked, answer)
            }
            Ok(Ended::Read(asked, outputs)) => {
                let answer = outputs.map(|outputs| Some(Answer::Outputs { id: asked.id.clone(), outputs }));
                (asked, answer)
            }
            Ok(Ended::Forked(asked, forked)) => {
                let answer = forked.map(|session| Some(Answer::Opened { id: asked.id.clone(), session }));
                (asked, answer)
            }
            Err(error) => return tracing::error!(%error, "a task of a request failed"),
        };
        self.answer(asked.id, asked.line, answer).await;
    }

    async fn say(&self, answer: Answer) {
        // The writer ends when the caller does not read any more, and this task with it.
        let _ = self.answers.send(answer.into()).await;
    }

    async fn line(&self, line: LineRead, number: u64, tasks: &mut JoinSet<Ended>) {
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
        &self,
        request: Request,
        id: &Option<String>,
        line: u64,
        tasks: &mut JoinSet<Ended>,
    ) -> Result<Option<Answer>, CliError> {
        let asked = || state::Asked { id: id.clone(), line };
        let known = |name: Option<String>| self.hub.session(name.as_deref().unwrap_or(DEFAULT_SESSION));
        match request {
            Request::Open(open) => {
                let session = self.open(*open).await?;
                return Ok(Some(Answer::Opened { id: id.clone(), session }));
            }
            Request::Run { session, cells, keep_going } => {
                check_room(tasks)?;
                let name = session.unwrap_or_else(|| DEFAULT_SESSION.to_owned());
                if name == DEFAULT_SESSION && self.hub.session(&name).is_err() {
                    self.open(Open { session: Some(name.clone()), ..Open::default() }).await?;
                }
                let id = id.clone().unwrap_or_default();
                let on_disconnect = OnDisconnect::Cancel(Duration::ZERO);
                let run = self.hub.start(&name, RunRequest { id, cells, keep_going, is_owned: true, on_disconnect })?;
                tasks.spawn(follow(run, line, self.answers.clone()));
                return Ok(None);
            }
            Request::Cancel => {
                let id = id.as_deref().unwrap_or_default();
                let run = self.hub.run(id).ok().filter(|run| !run.is_ended());
                run.ok_or_else(|| cellar_hub::HubError::RunUnknown(id.to_owned()))?.cancel();
                // The id is that of the run, whose result is the answer.
                return Ok(None);
            }
            Request::ToLlm { run, output, view } => {
                let run = self.hub.ended_run(&run)?;
                check_room(tasks)?;
                let asked = asked();
                tasks.spawn(async move { Ended::Read(asked, pages(run, output, view).await) });
                return Ok(None);
            }
            Request::Reply { call, result } => {
                if !self.answerer.reply(&call, result) {
                    return Err(cellar_hub::HubError::CallUnknown(call).into());
                }
            }
            Request::SubmitInput { session, request_id, value } => {
                let session = known(session)?.session;
                match value {
                    Some(value) => session.submit_input(&request_id, value)?,
                    None => session.end_input(&request_id)?,
                }
            }
            Request::Reset { session, languages } => {
                let session = known(session)?.session;
                languages.into_iter().for_each(|language| session.reset(language));
            }
            Request::Snapshot { session, file } => {
                let session = known(session)?.session;
                check_room(tasks)?;
                tasks.spawn(state::save(session, file, asked()));
                return Ok(None);
            }
            Request::Restore { session, file } => {
                let session = known(session)?.session;
                let snapshot = state::on_a_thread(move || read_snapshot(&file)).await?;
                session.rewind(&snapshot)?;
            }
            Request::Fork { session, new } => {
                let from = session.unwrap_or_else(|| DEFAULT_SESSION.to_owned());
                self.hub.session(&from)?;
                check_room(tasks)?;
                let (hub, asked) = (self.hub.clone(), asked());
                tasks.spawn(async move { Ended::Forked(asked, hub.fork(&from, new).await.map_err(CliError::from)) });
                return Ok(None);
            }
            Request::Sessions => {
                let sessions = self.hub.sessions().into_iter();
                let sessions = sessions.map(|(session, runs)| OpenSessionJson { session, runs }).collect();
                return Ok(Some(Answer::Sessions { id: id.clone(), sessions }));
            }
            Request::Close { session } => {
                self.hub.close(session.as_deref().unwrap_or(DEFAULT_SESSION))?;
            }
        }
        Ok(id.is_some().then(|| Answer::Done { id: id.clone() }))
    }

    /// Opens a session, and returns its name.
    async fn open(&self, open: Open) -> Result<String, CliError> {
        let snapshot = match open.snapshot {
            Some(file) => Some(state::on_a_thread(move || read_snapshot(&file)).await?),
            None => None,
        };
        let request = OpenRequest {
            name: open.session,
            config: open.grants,
            input: open.input,
            workspace: open.workspace.map(Into::into),
            tools: open.tools,
            snapshot,
            ..OpenRequest::default()
        };
        let name = self.hub.open_session(request, Some(self.answerer.clone())).await?;
        let background = self.hub.session(&name)?.session.background();
        tokio::spawn(tell_background(name.clone(), background, self.answers.downgrade()));
        Ok(name)
    }
}

/// Tells what a session's code writes while none of its cells runs.
async fn tell_background(session: String, mut background: BackgroundReader, answers: mpsc::WeakSender<Line>) {
    while let Some(Background { cell, is_stderr, text, .. }) = background.next().await {
        let stream = StreamJson::new(is_stderr);
        let Some(answers) = answers.upgrade() else { return };
        let answer = Answer::Background { session: session.clone(), cell: cell.0, stream, text };
        if answers.send(answer.into()).await.is_err() {
            return;
        }
    }
}

/// Tells the events of a run, and then what it came to.
async fn follow(run: RunHandle, line: u64, answers: mpsc::Sender<Line>) -> Ended {
    let id = run.id().to_owned();
    let mut reader = run.own(0);
    while let Some(delivery) = reader.next().await {
        // What the owner of a run has not read is kept, so there is no gap.
        let Delivery::Event(event) = delivery else { continue };
        // An event is written as JSON when there is room for it, and not before.
        let _room = room(event.kind.size_bytes()).await;
        let answer = Answer::Event { id: id.clone(), event: EventJson::from(&*event) };
        if answers.send(Line { answer, _room }).await.is_err() {
            // Nobody is left to be told.
            return Ended::Run;
        }
    }
    let last = match run.result().await {
        Ok(result) => {
            let _room = room(result.display_bytes()).await;
            let answer = Answer::Result { id, result: Box::new(ResultJson::from(&*result)) };
            Line { answer, _room }
        }
        Err(error) => Answer::Error { id: Some(id), line, error: CliError::Hub(error).refusal() }.into(),
    };
    let _ = answers.send(last).await;
    Ended::Run
}

/// Room for so many bytes to wait in; more than all there is counts as all.
async fn room(bytes: usize) -> Option<SemaphorePermit<'static>> {
    let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX).min(LINES_KIB_MAX);
    if kib > 0 { ROOM.acquire_many(kib).await.ok() } else { None }
}

/// A page of one output of a run that has ended, or the first of each.
///
/// # Errors
/// There is no such output.
async fn pages(run: RunHandle, output: Option<usize>, view: View) -> Result<Vec<OutputJson>, CliError> {
    let result: Arc<RunResult> = run.result().await.map_err(CliError::Hub)?;
    // It reads the files of tables.
    state::on_a_thread(move || {
        let view = View { artifacts: run.session().artifacts().ok(), ..view };
        match output {
            None => Ok(first_outputs(&result, &view)),
            Some(number) => output_page(&result, number, &view).map(|page| vec![page]).map_err(|count| {
                let message = format!("no output `{number}` is in the run, which has {count}");
                CliError::Usage { message, hint: None }
            }),
        }
    })
    .await
}

/// Checks that one more task can be followed.
fn check_room(tasks: &JoinSet<Ended>) -> Result<(), CliError> {
    if tasks.len() < TASKS_MAX { Ok(()) } else { Err(cellar_hub::HubError::RunsFull(TASKS_MAX).into()) }
}
