//! The side that runs cells.

use std::{
    collections::{BTreeSet, HashMap},
    fmt, io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use cellar_engine::{
    Bridges, Session,
    artifacts::RemoteStore,
    bridges::{
        BridgeGrants, Call, CallError, CallErrorKind, CallFuture, Caller, ConnectorSpec, FetchFuture, FetchName,
        PackSpec, ToolsFuture,
    },
};
use cellar_tables::Batches;
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{
    Asked, Asker, FRAMES_WAITING_MAX, Frame, Granted, Notes, Told, artifacts::RemoteAfar, frame, lock, next, write_all,
};
use crate::{Doors, HostBridges, connectors};

/// Maximum number of concurrent visitors of one agent call; more wait.
const VISITORS_MAX: usize = 16;
/// Maximum number of waiting visitors; more are sent away.
const VISITORS_WAITING_MAX: usize = 64;

/// The bridges of a process whose calls another one answers. A cheap handle.
#[derive(Clone)]
pub struct Afar(Arc<Inner>);

struct Inner {
    granted: Granted,
    grants: BridgeGrants,
    connectors: connectors::Held,
    frames: mpsc::Sender<Frame>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    count: AtomicU64,
}

/// A request without an answer so far.
struct Waiting {
    answer: oneshot::Sender<Answered>,
    /// Pieces of its rows that have arrived.
    pieces: Vec<Vec<u8>>,
    /// Queue of the visitors that came through the door of the agent that it called.
    visitors: Option<mpsc::Sender<UnixStream>>,
}

/// An answer, with the rows that came before.
struct Answered {
    told: Told,
    pieces: Vec<Vec<u8>>,
}

impl fmt::Debug for Afar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Afar").field("grants", &self.0.grants).finish_non_exhaustive()
    }
}

impl Afar {
    /// Connects to the answering process. Returns the bridges, and a driver that must be polled as long as they are used.
    /// The driver ends when the other side disconnects: waiting calls fail then.
    ///
    /// # Errors
    /// The other side does not send its grants.
    pub async fn connect(
        connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        mut notes: Notes,
    ) -> io::Result<(Afar, impl Future<Output = io::Result<()>> + Send)> {
        let (mut read, write) = tokio::io::split(connection);
        let Some((Told::Granted(granted), _)) = next(&mut read).await? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let grants = serde_json::from_str(&granted.grants)?;
        let connectors = connectors::Held::told(serde_json::from_str(&granted.connectors)?);
        let (frames, waiting) = mpsc::channel(FRAMES_WAITING_MAX);
        let (waiting_for, count) = (Mutex::default(), AtomicU64::default());
        let inner = Inner { granted, grants, connectors, frames: frames.clone(), waiting: waiting_for, count };
        let afar = Afar(Arc::new(inner));
        let inner = Arc::downgrade(&afar.0);
        let driver = async move {
            let saying = async move {
                while let Some(note) = notes.to_say.recv().await {
                    let _ = frames.send((frame(&Asked::Note(note))?, None)).await;
                }
                std::future::pending::<io::Result<()>>().await
            };
            let hearing = hear(&mut read, inner.clone(), notes.heard);
            let ended = tokio::select! {
                ended = hearing => ended,
                ended = saying => ended,
                ended = write_all(write, waiting) => ended,
            };
            if let Some(inner) = inner.upgrade() {
                lock(&inner.waiting).clear();
            }
            ended
        };
        Ok((afar, driver))
    }

    #[cfg(test)]
    pub(super) fn grants_tool(&self, name: &str) -> bool {
        self.0.granted.tools.contains(name)
    }

    /// Returns true if models are configured in the other process.
    fn has_models(&self) -> bool {
        !self.0.grants.llm.is_empty()
    }

    /// Connects a visitor to the session whose cell called an agent with this call number. A visitor that is too late, or
    /// one too many, is disconnected.
    ///
    /// # Errors
    /// `visitor` is not a connection.
    pub fn visit(&self, number: u64, visitor: OwnedFd) -> io::Result<()> {
        let visitor = std::os::unix::net::UnixStream::from(visitor);
        visitor.set_nonblocking(true)?;
        let visitor = UnixStream::from_std(visitor)?;
        let visitors = lock(&self.0.waiting).get(&number).and_then(|waiting| waiting.visitors.clone());
        if visitors.is_none_or(|visitors| visitors.try_send(visitor).is_err()) {
            tracing::debug!("a client of an agent's session was sent away");
        }
        Ok(())
    }

    /// Returns the object store for artifacts, accessed through the other process. Must be called on the runtime that
    /// drives the connection.
    pub fn artifacts(&self) -> Arc<dyn RemoteStore> {
        Arc::new(RemoteAfar::new(self.clone()))
    }

    /// Asks, and waits for the answer.
    pub(super) async fn ask(&self, question: impl FnOnce(u64) -> Asked) -> Option<Told> {
        self.ask_with(None, question).await.map(|answered| answered.told)
    }

    async fn ask_with(
        &self,
        visitors: Option<mpsc::Sender<UnixStream>>,
        question: impl FnOnce(u64) -> Asked,
    ) -> Option<Answered> {
        let inner = &self.0;
        let number = inner.count.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        lock(&inner.waiting).insert(number, Waiting { answer: sender, pieces: Vec::new(), visitors });
        let place = Place { inner: Arc::downgrade(inner), number };
        inner.frames.send((frame(&question(number)).ok()?, None)).await.ok()?;
        let answer = answer.await.ok();
        drop(place);
        answer
    }
}

/// A waiting request. Dropped before its answer, it cancels the request.
struct Place {
    inner: Weak<Inner>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(inner) = self.inner.upgrade() else { return };
        if lock(&inner.waiting).remove(&self.number).is_some()
            && let Ok(frame) = frame(&Asked::Cancelled(self.number))
        {
            tokio::spawn(async move { inner.frames.send((frame, None)).await });
        }
    }
}

async fn hear(read: &mut (impl AsyncRead + Unpin), inner: Weak<Inner>, heard: mpsc::Sender<String>) -> io::Result<()> {
    while let Some((told, _)) = next(read).await? {
        match told {
            Told::Note(note) => drop(heard.send(note).await),
            Told::Piece(number, piece) => {
                let Some(inner) = inner.upgrade() else { continue };
                if let Some(waiting) = lock(&inner.waiting).get_mut(&number) {
                    waiting.pieces.push(piece);
                }
            }
            Told::Answer(number, _) | Told::Tools(number, _) | Told::Rows(number, _) | Told::Done(number, _) => {
                let waiting = inner.upgrade().and_then(|inner| lock(&inner.waiting).remove(&number));
                if let Some(Waiting { answer, pieces, .. }) = waiting {
                    // Whoever waited may have gone at this moment.
                    let _ = answer.send(Answered { told, pieces });
                }
            }
            Told::Granted(_) => {}
        }
    }
    Ok(())
}

/// Bridges of a session for which another process answers most calls. Its own bridges take precedence: the tools of its
/// answerer, and models that clients offer if none is configured.
#[derive(Clone, Debug)]
pub struct OwnAndAfar {
    /// Bridges that this process answers.
    pub own: HostBridges,
    /// Bridges that another process answers.
    pub afar: Afar,
}

impl Bridges for OwnAndAfar {
    fn tools(&self) -> ToolsFuture {
        let (own, afar) = (self.own.tools(), self.afar.clone());
        Box::pin(async move {
            let mut tools = own.await;
            if let Some(Told::Tools(_, others)) = afar.ask(Asked::Tools).await {
                let names: BTreeSet<String> = tools.iter().map(|tool| tool.name.clone()).collect();
                tools.extend(others.into_iter().filter(|tool| !names.contains(&tool.name)));
            }
            tools
        })
    }

    fn packs(&self) -> Vec<PackSpec> {
        self.afar.0.granted.packs.clone()
    }

    fn has_tool(&self, name: &str) -> bool {
        self.own.has_tool(name) || self.afar.0.granted.tools.contains(name)
    }

    fn has_pack(&self, name: &str) -> bool {
        self.afar.0.granted.packs.iter().any(|pack| pack.name == name)
    }

    fn grants(&self) -> BridgeGrants {
        let mut grants = self.afar.0.grants.clone();
        let own = self.own.grants().tools.into_iter();
        grants.tools.extend(own.filter(|name| !self.afar.0.granted.tools.contains(name)));
        grants
    }

    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        let is_own = match &call {
            Call::Tool { name, .. } => self.own.has_tool(name),
            Call::Llm { .. } => !self.afar.has_models(),
            Call::Input { .. } => true,
            _ => false,
        };
        if is_own {
            return self.own.call(call, caller);
        }
        let afar = self.afar.clone();
        let asker = Asker::of(&caller);
        let doors = self.own.doors().filter(|_| matches!(call, Call::Agent(_)));
        Box::pin(async move {
            let (visitors, waiting) = mpsc::channel(VISITORS_WAITING_MAX);
            let meeting = doors.map(|doors| {
                let session = caller.session.for_agent(caller.depth.saturating_add(1));
                welcome(doors, session, waiting)
            });
            let visitors = meeting.is_some().then_some(visitors);
            let asking = afar.ask_with(visitors, |number| Asked::Call { number, asker, call });
            let answered = match meeting {
                None => asking.await,
                Some(meeting) => tokio::select! {
                    answered = asking => answered,
                    () = meeting => None,
                },
            };
            match answered.map(|answered| answered.told) {
                Some(Told::Answer(_, answer)) => answer,
                _ => Err(gone()),
            }
        })
    }

    fn connectors(&self) -> Vec<ConnectorSpec> {
        self.afar.0.connectors.specs()
    }

    fn fetch_arguments(
        &self,
        name: &FetchName,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, CallError> {
        self.afar.0.connectors.check(name, arguments)
    }

    fn fetch(&self, name: &FetchName, arguments: Map<String, Value>, _caller: Caller) -> FetchFuture {
        let (afar, name) = (self.afar.clone(), name.clone());
        let arguments = Value::Object(arguments).to_string();
        Box::pin(async move {
            let answered = afar.ask_with(None, |number| Asked::Fetch { number, name, arguments }).await;
            let Answered { told, pieces } = answered.ok_or_else(gone)?;
            match told {
                Told::Rows(_, Ok(())) => {}
                Told::Rows(_, Err(error)) | Told::Answer(_, Err(error)) => return Err(error),
                _ => return Err(gone()),
            }
            let read = tokio::task::spawn_blocking(move || Batches::from_pieces(pieces)).await;
            read.ok().and_then(Result::ok).ok_or_else(|| {
                CallError::new(CallErrorKind::Failed, "the rows did not come whole from the process that fetched them")
            })
        })
    }
}

fn gone() -> CallError {
    CallError::new(CallErrorKind::Failed, "the process that answers calls is gone")
}

/// Connects every visitor of an agent's door to its session. Dropping the future ends their visits.
async fn welcome(doors: Arc<dyn Doors>, session: Session, mut visitors: mpsc::Receiver<UnixStream>) {
    let mut inside = JoinSet::new();
    loop {
        tokio::select! {
            visitor = visitors.recv(), if inside.len() < VISITORS_MAX => match visitor {
                Some(visitor) => drop(inside.spawn(doors.meet(session.clone(), visitor))),
                // The call has ended.
                None => return std::future::pending().await,
            },
            Some(_) = inside.join_next() => {}
        }
    }
}
