//! The protocol of `cellar stdio`, whoever carries its lines: requests, one JSON object a line, and events and answers the
//! same way; tools that the caller declares are called by a line and answered by a line.
//!
//! This is a translation of the hub's words into lines. A caller that does not read holds up the guests, not memory: every
//! line goes through one bounded queue. When its requests end, runs end properly, and what waits for an answer of the caller
//! fails. Names of sessions and runs are the caller's own: [`Place`] says what the hub calls them, and what the caller may
//! ask for. Read [`Lines`] first.

mod place;
mod state;

use std::{
    fmt, io,
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};

use cellar_config::Config;
use cellar_engine::{
    Event, EventKind, RunResult,
    background::{Background, BackgroundReader},
    results::View,
};
use cellar_wire::{
    Answer, Caller, EventJson, Open, OpenSessionJson, OriginJson, OriginsJson, OutputJson, REQUEST_BYTES_MAX, Request,
    ResultJson, StreamJson, StubsJson,
    check::{Invalid, Problems},
    first_outputs, output_page, request_from_json, request_types, value_page,
};
use futures::{FutureExt, Stream, StreamExt, future};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::{JoinError, JoinSet},
};

use crate::{
    Answerer, Ask, Delivery, HubError, OnDisconnect, RunHandle, RunRequest, SessionEntry,
    lines::state::{Asked, Names},
    states_json,
};

pub use place::{LineError, Place};

/// Version of the protocol of [`Answer`] and [`Request`].
const PROTOCOL: u32 = 1;
/// Lines that wait for the caller to read them; more suspend the guests.
const LINES_QUEUED_MAX: usize = 64;
/// Requests under way that wait for something, runs among them, on one connection.
pub const TASKS_MAX: usize = 4_096;

/// Translates for one caller.
pub struct Lines<P> {
    voice: Voice<P>,
    caller: Caller,
    answerer: Answerer,
    names: Arc<Names>,
}

/// Sender of answers to the caller. A cheap handle; the stream of answers ends when the last one is dropped.
struct Voice<P> {
    place: Arc<P>,
    answers: mpsc::Sender<Line>,
    room: Arc<Room>,
}

impl<P> Clone for Voice<P> {
    fn clone(&self) -> Voice<P> {
        Voice { place: self.place.clone(), answers: self.answers.clone(), room: self.room.clone() }
    }
}

impl<P: Place> Voice<P> {
    async fn say(&self, answer: Answer) {
        // The writer ends when the caller does not read any more, and this task with it.
        let _ = self.answers.send(answer.into()).await;
    }

    async fn answer(&self, Asked { id, line }: Asked, answer: Result<Option<Answer>, LineError>) {
        match answer {
            Ok(Some(answer)) => self.say(answer).await,
            Ok(None) => {}
            Err(error) => self.say(Answer::Error { id, line, error: self.place.refusal(error) }).await,
        }
    }
}

/// An answer that waits for the caller to read it.
#[derive(Debug)]
pub struct Line {
    /// The answer.
    pub answer: Answer,
    /// Permit for a large answer, held until it was read.
    _room: Option<OwnedSemaphorePermit>,
}

/// Request that was read, or that was too long to be read.
#[derive(Debug)]
pub enum LineRead {
    /// The request, without the end of the line.
    Whole(Vec<u8>),
    /// It had more bytes than a request may have; it was skipped.
    TooLong,
}

impl From<Answer> for Line {
    fn from(answer: Answer) -> Line {
        Line { answer, _room: None }
    }
}

/// Capacity, in KiB, for events and results that wait to be read. A caller that does not read costs no more, whatever
/// its sessions display.
struct Room {
    kib: Arc<Semaphore>,
    kib_max: u32,
}

impl Room {
    fn new(kib_max: u32) -> Room {
        Room { kib: Arc::new(Semaphore::new(kib_max as usize)), kib_max }
    }

    /// Waits for the capacity of this many bytes; more than the whole capacity counts as the whole.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX).min(self.kib_max);
        if kib > 0 { self.kib.clone().acquire_many_owned(kib).await.ok() } else { None }
    }
}

/// Creates the answerer that asks the caller, by lines. Its references are weak, because an answerer may outlive its
/// session a little, and the output ends with its last writer.
fn answerer(answers: mpsc::WeakSender<Line>, names: Weak<Names>) -> Answerer {
    Answerer::new(move |ask| {
        let (answers, names) = (answers.upgrade(), names.upgrade());
        Box::pin(async move {
            let (Some(answers), Some(names)) = (answers, names) else { return false };
            let line = match ask {
                Ask::Call { call, session, cell, tool, arguments } => {
                    Answer::Call { call, session: names.of_session(session), cell: cell.0, tool, arguments }
                }
                Ask::Cancelled { call } => Answer::CallCancelled { call },
            };
            answers.send(line.into()).await.is_ok()
        })
    })
}

impl<P> fmt::Debug for Lines<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("caller", &self.caller).field("names", &self.names).finish_non_exhaustive()
    }
}

impl<P: Place> Lines<P> {
    /// Creates the translator for one caller, and the receiver of its answers. `kib_max` bounds the KiB of events that
    /// wait to be read.
    pub fn new(place: P, caller: Caller, kib_max: u32) -> (Lines<P>, mpsc::Receiver<Line>) {
        let (answers, queue) = mpsc::channel(LINES_QUEUED_MAX);
        let names = Arc::new(Names::new(place.default_session()));
        let answerer = answerer(answers.downgrade(), Arc::downgrade(&names));
        let room = Arc::new(Room::new(kib_max));
        (Lines { voice: Voice { place: Arc::new(place), answers, room }, caller, answerer, names }, queue)
    }

    /// Serves requests until there are no more, and then lets the runs end.
    ///
    /// # Errors
    /// Errors of the reader of the requests.
    ///
    /// # Cancel safety
    /// Dropped, it leaves its runs to the hub, as those of a caller that has gone.
    pub async fn serve(self, lines: impl Stream<Item = io::Result<LineRead>>) -> io::Result<()> {
        let hello = Answer::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION"),
            languages: self.voice.place.hub().languages().into_iter().map(|language| language.code()).collect(),
            requests: request_types(),
        };
        self.voice.say(hello).await;
        let mut lines = std::pin::pin!(lines);
        let mut tasks = JoinSet::new();
        let mut count = 0;
        while let Some(line) = lines.next().await {
            // Those that have ended wake nobody: they are looked for when there may be more.
            while let Some(ended) = tasks.try_join_next() {
                note_failure(ended);
            }
            count = u64::saturating_add(count, 1);
            self.line(line?, count, &mut tasks).await;
        }
        // The runs hear of it, and what they still have to say is said.
        self.answerer.end();
        while let Some(ended) = tasks.join_next().await {
            note_failure(ended);
        }
        Ok(())
    }

    async fn line(&self, line: LineRead, number: u64, tasks: &mut JoinSet<()>) {
        let (id, request) = match line {
            LineRead::Whole(bytes) if bytes.trim_ascii().is_empty() => return,
            LineRead::Whole(bytes) => request_from_json::<Config>(&bytes, &format!("line {number}"), self.caller),
            LineRead::TooLong => (None, Err(too_long(number))),
        };
        let answer = match request {
            Ok(request) => self.request(request, id.clone(), number, tasks).await,
            Err(invalid) => Err(LineError::Invalid(invalid)),
        };
        self.voice.answer(Asked { id, line: number }, answer).await;
    }

    /// Carries out a request.
    ///
    /// # Errors
    /// Reason for the refusal; nothing has changed then.
    #[expect(clippy::too_many_lines, reason = "one arm for each request")]
    async fn request(
        &self,
        request: Request<Config>,
        id: Option<String>,
        line: u64,
        tasks: &mut JoinSet<()>,
    ) -> Result<Option<Answer>, LineError> {
        let asked = || Asked { id: id.clone(), line };
        match request {
            Request::Open(open) => {
                self.voice.place.admit()?;
                let session = self.open(*open).await?;
                return Ok(Some(self.names.opened_answer(id, session)));
            }
            Request::Run { session, cells, keep_going, options } => {
                self.voice.place.admit()?;
                check_room(tasks)?;
                let own = id.clone().unwrap_or_default();
                let session = session.unwrap_or_else(|| self.names.usual.clone());
                if session == self.names.usual && !self.names.is_open(&session) {
                    self.open(Open { session: Some(session.clone()), ..Open::default() }).await?;
                }
                self.names.check_run(&own, self.voice.place.hub())?;
                self.session(Some(session.clone())).await?;
                let id = self.voice.place.run_id(&own);
                let on_disconnect = OnDisconnect::Cancel(Duration::ZERO);
                let request = RunRequest { id: id.clone(), cells, keep_going, options, is_owned: true, on_disconnect };
                let (run, driving) = self.voice.place.hub().begin(&self.names.session(&session)?, request)?;
                self.names.run_started(&own, id);
                let (told, voice) = (Told { own, session, run, line }, self.voice.clone());
                // In this order: what the first adds the second finds.
                tasks.spawn(future::join(driving, follow(told, voice)).map(drop));
                return Ok(None);
            }
            Request::Cancel => {
                let id = id.as_deref().unwrap_or_default();
                let run = self.voice.place.hub().run(&self.names.run(id)).ok().filter(|run| !run.is_ended());
                run.ok_or_else(|| HubError::RunUnknown(id.to_owned()))?.cancel();
                // The id is that of the run, whose result is the answer.
                return Ok(None);
            }
            Request::ToLlm { run, output, view } => {
                let ended = self.voice.place.hub().ended_run(&self.names.run(&run));
                let run = ended.map_err(|error| match error {
                    // What its caller calls it.
                    HubError::RunForgotten { kept, .. } => HubError::RunForgotten { id: run, kept },
                    error => error,
                })?;
                check_room(tasks)?;
                let (voice, asked) = (self.voice.clone(), asked());
                tasks.spawn(async move {
                    let outputs = pages(run, output, view).await;
                    let answer = outputs.map(|outputs| Some(Answer::Outputs { id: asked.id.clone(), outputs }));
                    voice.answer(asked, answer).await;
                });
                return Ok(None);
            }
            Request::Get { session, language, name, view } => {
                let entry = self.session(session).await?;
                let session = entry.session.clone();
                return self.in_turn(&entry, asked(), tasks, async move {
                    let value = session.value(language, &name).await.map_err(HubError::from)?;
                    let unknown =
                        || LineError::refused("usage", format!("no {} name `{name}` is bound", language.title()));
                    let value = value.ok_or_else(unknown)?;
                    // It reads the file of a table.
                    let read = move || value_page(&value, &View { artifacts: session.artifacts().ok(), ..view });
                    let page = tokio::task::spawn_blocking(read).await.map_err(HubError::Task)?;
                    Ok(Some(Answer::Value { id, name, page }))
                });
            }
            Request::Origins { session, languages, name } => {
                let entry = self.session(session).await?;
                let session = entry.session.clone();
                return self.in_turn(&entry, asked(), tasks, async move {
                    let (mut named, mut former) = (Vec::new(), Vec::new());
                    for language in languages {
                        let origins = session.origins(language).await.map_err(HubError::from)?;
                        let before = session.former_origins(language).await.map_err(HubError::from)?;
                        former.extend(before.iter().map(|origin| OriginJson::from(&**origin)));
                        named.extend(origins.iter().map(|(name, origin)| (name.clone(), OriginJson::from(&**origin))));
                    }
                    named.retain(|(each, _)| name.as_ref().is_none_or(|name| each == name));
                    Ok(Some(Answer::Origins { id, origins: OriginsJson::new(named, former) }))
                });
            }
            Request::Stubs { session, language, all } => {
                let entry = self.session(session).await?;
                let session = entry.session.clone();
                return self.in_turn(&entry, asked(), tasks, async move {
                    let catalog = session.catalog().await;
                    let text = if all { catalog.stubs(language) } else { catalog.description(language) };
                    Ok(Some(Answer::Stubs { id, stubs: StubsJson::new(language, catalog.len(), text) }))
                });
            }
            Request::Reply { call, result } => {
                if !self.voice.place.reply(&call, &result) && !self.answerer.reply(&call, result) {
                    return Err(HubError::CallUnknown(call).into());
                }
            }
            Request::SubmitInput { session, request_id, value } => {
                let session = self.session(session).await?.session;
                match value {
                    Some(value) => session.submit_input(&request_id, value).map_err(HubError::from)?,
                    None => session.end_input(&request_id).map_err(HubError::from)?,
                }
            }
            Request::Reset { session, languages } => {
                let entry = self.session(session).await?;
                let session = entry.session.clone();
                return self.in_turn(&entry, asked(), tasks, async move {
                    languages.into_iter().for_each(|language| session.reset(language));
                    Ok(done(id))
                });
            }
            Request::Snapshot { session, file } => {
                let entry = self.session(session).await?;
                let (place, session) = (self.voice.place.clone(), entry.session.clone());
                return self.in_turn(&entry, asked(), tasks, async move {
                    state::save(&*place, &session, file).await?;
                    Ok(done(id))
                });
            }
            Request::Restore { session, file } => {
                let entry = self.session(session).await?;
                let (session, snapshot) = (entry.session.clone(), self.voice.place.read_snapshot(file).await?);
                return self.in_turn(&entry, asked(), tasks, async move {
                    session.rewind(&snapshot).map_err(HubError::from)?;
                    Ok(done(id))
                });
            }
            Request::States { session } => {
                let entry = self.session(session).await?;
                let session = entry.session.clone();
                return self.in_turn(&entry, asked(), tasks, async move {
                    let states = states_json(&session.states().await.map_err(HubError::from)?);
                    Ok(Some(Answer::States { id, states }))
                });
            }
            Request::Back { session, state } => {
                let entry = self.session(session).await?;
                let session = entry.session.clone();
                return self.in_turn(&entry, asked(), tasks, async move {
                    session.back(&state).await.map_err(HubError::from)?;
                    Ok(done(id))
                });
            }
            Request::Fork { session, new, state } => {
                self.voice.place.admit()?;
                let from = session.unwrap_or_else(|| self.names.usual.clone());
                let entry = self.session(Some(from.clone())).await?;
                let (place, names) = (self.voice.place.clone(), self.names.clone());
                return self.in_turn(&entry, asked(), tasks, async move {
                    let session = state::fork(&*place, &names, &from, new, state).await?;
                    Ok(Some(names.opened_answer(id, session)))
                });
            }
            Request::Sessions => {
                let sessions = self.names.list(&self.voice.place.hub().sessions());
                let sessions = sessions.into_iter().map(|(session, runs)| OpenSessionJson { session, runs }).collect();
                return Ok(Some(Answer::Sessions { id, sessions }));
            }
            Request::Close { session } => {
                let own = session.unwrap_or_else(|| self.names.usual.clone());
                let name = self.names.session(&own)?;
                self.voice.place.close(&name).await?;
                self.names.closed(&own);
            }
        }
        Ok(done(id))
    }

    /// Carries out a request about a session once all earlier requests to it have begun, and sends its answer.
    ///
    /// # Errors
    /// There are too many requests under way.
    fn in_turn(
        &self,
        entry: &SessionEntry,
        asked: Asked,
        tasks: &mut JoinSet<()>,
        work: impl Future<Output = Result<Option<Answer>, LineError>> + Send + 'static,
    ) -> Result<Option<Answer>, LineError> {
        check_room(tasks)?;
        let (mut turn, voice) = (entry.turns.take(), self.voice.clone());
        tasks.spawn(async move {
            turn.come().await;
            let mut work = std::pin::pin!(work);
            let begun = futures::poll!(work.as_mut());
            // It may wait for code that runs, which a later reset must be able to end.
            drop(turn);
            let answer = match begun {
                Poll::Ready(answer) => answer,
                Poll::Pending => work.await,
            };
            voice.answer(asked, answer).await;
        });
        Ok(None)
    }

    /// The session that a request is about.
    async fn session(&self, own: Option<String>) -> Result<SessionEntry, LineError> {
        let name = self.names.session(own.as_deref().unwrap_or(&self.names.usual))?;
        self.voice.place.session(&name).await
    }

    /// Opens a session, and returns its name.
    async fn open(&self, open: Open<Config>) -> Result<String, LineError> {
        let own = self.names.new_session(open.session.clone())?;
        let name = self.voice.place.session_name(&own);
        let request = crate::OpenRequest { name: Some(name.clone()), ..self.voice.place.open(open).await? };
        self.voice.place.hub().open_session(request, Some(self.answerer.clone())).await?;
        let background = self.voice.place.hub().session(&name)?.session.background();
        self.names.opened(&own, name);
        tokio::spawn(tell_background(own.clone(), background, self.voice.answers.downgrade()));
        Ok(own)
    }
}

/// Sends the output that a session's code writes while none of its cells runs.
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

/// Run whose events are sent: its id and the name of its session as the caller knows them, and the line that requested
/// it.
struct Told {
    own: String,
    session: String,
    run: RunHandle,
    line: u64,
}

/// Sends the events of a run, and then its result.
async fn follow<P: Place>(told: Told, voice: Voice<P>) {
    let Told { own: id, session, run, line } = told;
    let Voice { place, answers, room } = voice;
    let mut reader = run.own(0);
    while let Some(delivery) = reader.next().await {
        // What the owner of a run has not read is kept, so there is no gap.
        let Delivery::Event(event) = delivery else { continue };
        // An event is written as JSON when there is room for it, and not before.
        let _room = room.take(event.kind.size_bytes()).await;
        let event = match &event.kind {
            EventKind::RunStarted { cells, .. } => {
                let kind = EventKind::RunStarted { session: session.clone(), cells: cells.clone() };
                EventJson::from(&Event { seq: event.seq, kind })
            }
            _ => EventJson::from(&*event),
        };
        if answers.send(Line { answer: Answer::Event { id: id.clone(), event }, _room }).await.is_err() {
            // Nobody is left to be told.
            return;
        }
    }
    let last = match run.result().await {
        Ok(result) => {
            let _room = room.take(result.display_bytes()).await;
            let answer = Answer::Result { id, result: Box::new(ResultJson::from(&*result)) };
            Line { answer, _room }
        }
        Err(error) => Answer::Error { id: Some(id), line, error: place.refusal(error.into()) }.into(),
    };
    let _ = answers.send(last).await;
}

/// Notes that a task of a request ended otherwise than by itself.
fn note_failure(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a task of a request failed");
    }
}

/// A page of one output of a run that has ended, or the first of each.
///
/// # Errors
/// There is no such output.
pub async fn pages(run: RunHandle, output: Option<usize>, view: View) -> Result<Vec<OutputJson>, LineError> {
    let result: Arc<RunResult> = run.result().await?;
    // It reads the files of tables.
    let read = tokio::task::spawn_blocking(move || {
        let view = View { artifacts: run.session().artifacts().ok(), ..view };
        match output {
            None => Ok(first_outputs(&result, &view)),
            Some(number) => output_page(&result, number, &view).map(|page| vec![page]).map_err(|count| {
                LineError::refused("usage", format!("no output `{number}` is in the run, which has {count}"))
            }),
        }
    });
    read.await.map_err(HubError::Task)?
}

/// Returns the answer to a request that was carried out; none if the request has no id.
fn done(id: Option<String>) -> Option<Answer> {
    id.map(|id| Answer::Done { id: Some(id) })
}

/// Checks that one more task can be followed.
fn check_room(tasks: &JoinSet<()>) -> Result<(), LineError> {
    if tasks.len() < TASKS_MAX { Ok(()) } else { Err(HubError::RunsFull(TASKS_MAX).into()) }
}

/// The refusal of a line that was skipped.
fn too_long(number: u64) -> Invalid {
    let mut problems = Problems::default();
    problems.add("$", format_args!("expected at most {REQUEST_BYTES_MAX} bytes"));
    problems.refusal(&format!("line {number}"))
}
