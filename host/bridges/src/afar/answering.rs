//! The side that answers.

use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex},
};

use cellar_engine::{
    Bridges,
    bridges::{CallError, CallErrorKind},
};
use cellar_tables::Batches;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
    sync::{Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
};

use super::{
    Asked, FRAMES_WAITING_MAX, Frame, Granted, Notes, Told,
    artifacts::{ArtifactsAfar, Transfers},
    frame, lock, next, write_all,
};
use crate::{Held, HostBridges, Origin};

/// Calls of one process that are under way.
const CALLS_MAX: usize = 1_024;
/// KiB of calls of one process that are under way; with more, it is not listened to.
const CALLS_KIB_MAX: usize = 256 << 10;
/// KiB of answers that wait until the other process reads them: eight of the largest. One that finds no room is not kept.
const ANSWERS_KIB_MAX: usize = 512 << 10;
/// Sessions whose budgets are kept.
const SESSIONS_KEPT: usize = 10_000;

/// Callback that hands over a visitor of the agent whose call has this number: a connection to the agent's session socket.
pub type Visits = Arc<dyn Fn(u64, UnixStream) -> io::Result<()> + Send + Sync>;

/// Configuration for answering the calls of another process.
pub struct Answers {
    /// Bridges whose grants apply to the other process.
    pub bridges: HostBridges,
    /// Object store with copies of its artifacts, if there is one.
    pub artifacts: Option<ArtifactsAfar>,
    /// Callback that connects agents to its sessions.
    pub visits: Visits,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("bridges", &self.bridges).finish_non_exhaustive()
    }
}

/// Result of a request of the other process.
enum Found {
    Answer(Told),
    Rows(Result<Batches, CallError>),
}

type Work = Pin<Box<dyn Future<Output = Found> + Send>>;

/// Answers the calls of another process until it disconnects.
///
/// # Errors
/// The connection fails, or the other side sends an invalid message.
///
/// # Cancel safety
/// Dropping the future drops all calls in progress.
pub async fn answer_afar(
    answers: Answers,
    connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    notes: Notes,
) -> io::Result<()> {
    let Answers { bridges, artifacts, visits } = answers;
    let (mut read, write) = tokio::io::split(connection);
    let (frames, waiting) = mpsc::channel(FRAMES_WAITING_MAX);
    let mut tasks = JoinSet::new();
    tasks.spawn(write_all(write, waiting));
    let _ = frames.send((frame(&Told::Granted(granted(&bridges)))?, None)).await;
    tasks.spawn(pass_notes(notes.to_say, frames.clone()));
    let under_way: Arc<Mutex<HashMap<u64, AbortHandle>>> = Arc::default();
    let mut budgets = Budgets::default();
    let transfers = artifacts.map(|artifacts| Arc::new(Transfers::new(artifacts)));
    let room = Arc::new(Semaphore::new(CALLS_KIB_MAX));
    let answers = Arc::new(Semaphore::new(ANSWERS_KIB_MAX));
    loop {
        while tasks.try_join_next().is_some() {}
        let Some((asked, bytes)) = next(&mut read).await? else { return Ok(()) };
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        // The bound is that of two of the largest frames at least, and is never closed.
        let held = room.clone().acquire_many_owned(kib).await.map_err(io::Error::other)?;
        let (number, work): (u64, Work) = match asked {
            Asked::Note(note) => {
                let _ = notes.heard.send(note).await;
                continue;
            }
            Asked::Cancelled(number) => {
                if let Some(call) = lock(&under_way).remove(&number) {
                    call.abort();
                }
                continue;
            }
            Asked::Tools(number) => {
                let tools = bridges.tools();
                (number, Box::pin(async move { Found::Answer(Told::Tools(number, tools.await)) }))
            }
            Asked::Call { number, asker, call } => {
                let held = budgets.of(&asker.session);
                let origin = Origin::Afar { number, asker, held, visits: visits.clone() };
                let answer = bridges.clean_answer(call, origin);
                (number, Box::pin(async move { Found::Answer(Told::Answer(number, answer.await)) }))
            }
            Asked::Fetch { number, name, arguments } => {
                let rows = bridges.fetch_afar(name, arguments);
                (number, Box::pin(async move { Found::Rows(rows.await) }))
            }
            Asked::Errand(number, errand) => {
                let transfers = transfers.clone();
                let work = async move {
                    let done = match transfers {
                        Some(transfers) => transfers.run(errand).await,
                        None => Err("artifacts are kept nowhere else".to_owned()),
                    };
                    Found::Answer(Told::Done(number, done))
                };
                (number, Box::pin(work))
            }
        };
        // Not by their numbers, which the other side chooses.
        if tasks.len() >= CALLS_MAX {
            let error = CallError::new(CallErrorKind::Limit, format!("{CALLS_MAX} calls are under way already"));
            let _ = frames.send((frame(&Told::Answer(number, Err(error)))?, None)).await;
            continue;
        }
        let saying = Saying { number, frames: frames.clone(), answers: answers.clone() };
        let others = under_way.clone();
        // It takes its place before it can have ended.
        let mut places = lock(&under_way);
        let call = tasks.spawn(async move {
            let found = work.await;
            drop(held);
            lock(&others).remove(&number);
            match found {
                Found::Answer(answer) => saying.answer(answer).await,
                Found::Rows(Ok(rows)) => saying.rows(rows).await,
                Found::Rows(Err(error)) => saying.say(&Told::Rows(number, Err(error))).await,
            }
        });
        places.insert(number, call);
    }
}

/// Says the answer to one call.
struct Saying {
    number: u64,
    frames: mpsc::Sender<Frame>,
    answers: Arc<Semaphore>,
}

impl Saying {
    async fn say(&self, told: &Told) -> io::Result<()> {
        let _ = self.frames.send((frame(told)?, None)).await;
        Ok(())
    }

    fn refused(&self, reason: String) -> Told {
        Told::Answer(self.number, Err(CallError::new(CallErrorKind::Limit, reason)))
    }

    /// Returns the error for an answer that is dropped because the answer buffer is full. Waiting for room would hold the
    /// answer in memory as well; dropping it keeps the cost of a process bounded that asks for much and reads nothing.
    fn full(&self) -> Told {
        let mib = ANSWERS_KIB_MAX >> 10;
        self.refused(format!("{mib} MiB of answers to other calls were not read yet"))
    }

    async fn answer(self, answer: Told) -> io::Result<()> {
        let too_large = || frame(&self.refused("the answer is too large to be passed on".to_owned()));
        let whole = frame(&answer).or_else(|_| too_large())?;
        drop(answer);
        match self.answers.clone().try_acquire_many_owned(kib(whole.len())) {
            Ok(room) => drop(self.frames.send((whole, Some(room))).await),
            Err(_) => self.say(&self.full()).await?,
        }
        Ok(())
    }

    /// Sends rows piece by piece, interleaved with other messages.
    async fn rows(self, rows: Batches) -> io::Result<()> {
        let Ok(_room) = self.answers.try_acquire_many(kib(rows.size_bytes())) else {
            return self.say(&self.full()).await;
        };
        for piece in rows.into_pieces() {
            let said = piece.ok().and_then(|piece| frame(&Told::Piece(self.number, piece)).ok());
            let Some(said) = said else {
                return self.say(&self.refused("the rows cannot be passed on".to_owned())).await;
            };
            let _ = self.frames.send((said, None)).await;
        }
        self.say(&Told::Rows(self.number, Ok(()))).await
    }
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes >> 10).unwrap_or(u32::MAX)
}

async fn pass_notes(mut to_say: mpsc::Receiver<String>, frames: mpsc::Sender<Frame>) -> io::Result<()> {
    while let Some(note) = to_say.recv().await {
        let _ = frames.send((frame(&Told::Note(note))?, None)).await;
    }
    Ok(())
}

fn granted(bridges: &HostBridges) -> Granted {
    let grants = bridges.grants();
    let tools = grants.tools.iter().cloned().collect();
    Granted {
        grants: serde_json::to_string(&grants).unwrap_or_default(),
        packs: bridges.packs(),
        tools,
        connectors: bridges.connectors_told(),
    }
}

/// Budgets spent by sessions of the other process. Only the latest sessions are retained.
#[derive(Default)]
struct Budgets {
    held: HashMap<String, Arc<Held>>,
    in_order: VecDeque<String>,
}

impl Budgets {
    fn of(&mut self, session: &str) -> Arc<Held> {
        if let Some(held) = self.held.get(session) {
            return held.clone();
        }
        if self.in_order.len() >= SESSIONS_KEPT
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.held.remove(&oldest);
        }
        let held = Arc::<Held>::default();
        self.held.insert(session.to_owned(), held.clone());
        self.in_order.push_back(session.to_owned());
        held
    }
}
