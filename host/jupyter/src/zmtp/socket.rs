//! Sockets that are bound: their peers, and what is on its way to each.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cellar_core::sync::lock;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    task::JoinSet,
    time::timeout,
};

use super::frame::{Broken, Received, WAITING_KIB, greet, kib, read, write};
use crate::connection::{Address, Listener};

/// Peers of a socket.
const PEERS_MAX: usize = 64;
/// Topics that a peer subscribes to, and bytes of one.
const TOPICS_MAX: usize = 64;
const TOPIC_BYTES_MAX: usize = 256;
/// Time that a peer may take to greet.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages of all peers of a socket that wait for their signatures to be looked at.
const WAITING_MAX: usize = 16;
/// Messages that wait for one peer, and KiB of them: a larger one waits alone.
const OUTGOING_MAX: usize = 1_024;
const OUTGOING_KIB_MAX: usize = 32 << 10;
/// Time that a peer may take nothing while something waits for it that has no room. It is cut off then.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that what is on its way gets when a socket is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Requests, each answered to the peer that sent it.
    Router,
    /// What all peers hear that have subscribed to it.
    Publisher,
    /// Each message is answered before the next.
    Replier,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Router => "ROUTER",
            Kind::Publisher => "XPUB",
            Kind::Replier => "REP",
        }
    }

    /// Whether a socket of this name may connect.
    pub(super) fn goes_with(self, name: &[u8]) -> bool {
        let names: &[&[u8]] = match self {
            Kind::Router => &[b"DEALER", b"REQ", b"ROUTER"],
            Kind::Publisher => &[b"SUB", b"XSUB"],
            Kind::Replier => &[b"REQ", b"DEALER"],
        };
        names.contains(&name)
    }
}

/// A message of a peer. To a publisher, these are the topics that it newly subscribes to.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Number of the peer, never used twice.
    pub(crate) peer: u64,
    /// How the peer calls itself; empty where it does not say.
    pub(crate) identity: Bytes,
    /// The message.
    pub(crate) frames: Vec<Bytes>,
    /// What it takes of the room of its socket, until it was answered.
    pub(crate) room: OwnedSemaphorePermit,
}

/// What is on its way to a peer, with what it takes of the peer's room.
type Outgoing = (Arc<[Bytes]>, OwnedSemaphorePermit);

struct Peer {
    identity: Bytes,
    topics: Mutex<Vec<Bytes>>,
    outgoing: mpsc::Sender<Outgoing>,
    room: Arc<Semaphore>,
    /// Set when it is cut off.
    cut: watch::Sender<bool>,
}

struct Shared {
    kind: Kind,
    peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
    count: AtomicU64,
    waiting: Arc<Semaphore>,
}

/// A bound socket. A cheap handle; its connections live as long as the task that [`Socket::bind`] gives.
#[derive(Clone)]
pub(crate) struct Socket(Arc<Shared>);

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("kind", &self.0.kind).finish_non_exhaustive()
    }
}

impl Socket {
    /// Binds a socket, gives what its peers send, and has `tasks` let them in.
    ///
    /// # Errors
    /// The address is in use, or none of this machine.
    pub(crate) async fn bind(
        kind: Kind,
        address: &Address,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<(Socket, mpsc::Receiver<Incoming>)> {
        let listener = Listener::bind(address).await?;
        let waiting = Arc::new(Semaphore::new(WAITING_KIB));
        let socket = Socket(Arc::new(Shared { kind, peers: Mutex::default(), count: AtomicU64::new(1), waiting }));
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        tasks.spawn(socket.clone().accept(listener, sender));
        Ok((socket, receiver))
    }

    async fn accept(self, listener: Listener, incoming: mpsc::Sender<Incoming>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < PEERS_MAX => match accepted {
                    Ok(stream) => {
                        let (socket, incoming) = (self.clone(), incoming.clone());
                        connections.spawn(async move {
                            match socket.serve(stream, incoming).await {
                                Err(Broken::Gone) | Ok(()) => {}
                                Err(broken) => {
                                    let socket = socket.0.kind.name();
                                    tracing::warn!(socket, error = %broken, "a connection was ended");
                                }
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection cannot be accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// One connection, from its greeting to its end.
    async fn serve<S>(&self, mut stream: S, incoming: mpsc::Sender<Incoming>) -> Result<(), Broken>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let late = || Broken::Protocol(format!("it has not greeted within {} s", GREETING_TIMEOUT.as_secs()));
        let greeted = timeout(GREETING_TIMEOUT, greet(&mut stream, self.0.kind));
        let identity = greeted.await.map_err(|_| late())??;
        let (outgoing, mut queue) = mpsc::channel::<Outgoing>(OUTGOING_MAX);
        let room = Arc::new(Semaphore::new(OUTGOING_KIB_MAX));
        let (cut, mut is_cut) = watch::channel(false);
        let peer = Arc::new(Peer { identity: identity.clone(), topics: Mutex::default(), outgoing, room, cut });
        let number = self.0.count.fetch_add(1, Ordering::Relaxed);
        lock(&self.0.peers).insert(number, peer.clone());
        let _leaving = Leaving { shared: &self.0, number };
        let (mut reader, writer) = tokio::io::split(stream);
        let mut writer = BufWriter::with_capacity(64 << 10, writer);
        let writing = async {
            while let Some((frames, permit)) = queue.recv().await {
                write(&mut writer, &frames).await?;
                drop(permit);
                if queue.is_empty() {
                    writer.flush().await?;
                }
            }
            writer.flush().await?;
            writer.shutdown().await?;
            Ok(())
        };
        let reading = async {
            loop {
                let (received, room) = read(&mut reader, &self.0.waiting).await?;
                let Some(frames) = self.understood(&peer, received)? else { continue };
                let message = Incoming { peer: number, identity: identity.clone(), frames, room };
                // When the receiver has gone, so has the kernel.
                if incoming.send(message).await.is_err() {
                    return Ok(());
                }
            }
        };
        tokio::select! {
            ended = writing => ended,
            ended = reading => ended,
            _ = is_cut.wait_for(|cut| *cut) => {
                let seconds = STALL_TIMEOUT.as_secs();
                Err(Broken::Protocol(format!("it has taken nothing of what it is sent for {seconds} s")))
            }
        }
    }

    /// What a peer has sent, if that is for whoever reads this socket.
    fn understood(&self, peer: &Peer, received: Received) -> Result<Option<Vec<Bytes>>, Broken> {
        match received {
            Received::Message(frames) if self.0.kind == Kind::Publisher => {
                let Some(frame) = frames.first() else { return Ok(None) };
                match frame.first() {
                    Some(1) => subscribe(peer, frame.slice(1..)),
                    Some(0) => {
                        lock(&peer.topics).retain(|topic| topic[..] != frame[1..]);
                        Ok(None)
                    }
                    // What else is sent to a publisher has no meaning.
                    _ => Ok(None),
                }
            }
            Received::Message(frames) => Ok(Some(frames)),
            // Version 3.1 has commands for subscriptions and pings, which a peer does not send to one of 3.0.
            Received::Command(name, _) => {
                Err(Broken::Protocol(format!("it sent the command {:?}", String::from_utf8_lossy(&name))))
            }
        }
    }

    /// Sends a message to a peer; whether it is still there.
    pub(crate) async fn send(&self, peer: u64, frames: Vec<Bytes>) -> bool {
        let found = lock(&self.0.peers).get(&peer).cloned();
        match found {
            Some(found) => send(&found, frames.into()).await,
            None => false,
        }
    }

    /// Sends a message to all peers that have subscribed to what it begins with. One that takes nothing holds up whoever
    /// publishes, until it is cut off.
    pub(crate) async fn publish(&self, frames: Vec<Bytes>) {
        let Some(topic) = frames.first().cloned() else { return };
        let frames: Arc<[Bytes]> = frames.into();
        let is_subscribed =
            |peer: &&Arc<Peer>| lock(&peer.topics).iter().any(|subscribed| topic.starts_with(subscribed));
        let peers: Vec<Arc<Peer>> = lock(&self.0.peers).values().filter(is_subscribed).cloned().collect();
        futures::future::join_all(peers.iter().map(|peer| send(peer, frames.clone()))).await;
    }

    /// The peer that calls itself so; of several the first, as with ZeroMQ's own sockets: who comes later may be anybody.
    pub(crate) fn peer(&self, identity: &[u8]) -> Option<u64> {
        let peers = lock(&self.0.peers);
        let found = peers.iter().find(|(_, peer)| peer.identity[..] == *identity);
        found.map(|(number, _)| *number)
    }

    /// Lets what is on its way arrive, and forgets all peers.
    pub(crate) async fn close(&self) {
        let peers: Vec<Arc<Peer>> = std::mem::take(&mut *lock(&self.0.peers)).into_values().collect();
        let gone = async {
            for peer in peers {
                let all = u32::try_from(OUTGOING_KIB_MAX).unwrap_or(u32::MAX);
                // All of a peer's room is free when everything was written.
                let _ = peer.room.acquire_many(all).await;
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, gone).await;
    }
}

/// Notes a subscription. Says what is newly subscribed to.
fn subscribe(peer: &Peer, topic: Bytes) -> Result<Option<Vec<Bytes>>, Broken> {
    let mut topics = lock(&peer.topics);
    if topics.contains(&topic) {
        return Ok(None);
    }
    if topics.len() == TOPICS_MAX || topic.len() > TOPIC_BYTES_MAX {
        let message = format!("it subscribes to more than {TOPICS_MAX} topics, or to one of {} bytes", topic.len());
        return Err(Broken::Protocol(message));
    }
    topics.push(topic.clone());
    Ok(Some(vec![topic]))
}

async fn send(peer: &Peer, frames: Arc<[Bytes]>) -> bool {
    let bytes: usize = frames.iter().map(|frame| frame.len() + 64).sum();
    let most = u32::try_from(OUTGOING_KIB_MAX).unwrap_or(u32::MAX);
    let room = peer.room.clone().acquire_many_owned(kib(bytes).min(most));
    let sent = timeout(STALL_TIMEOUT, async {
        let Ok(permit) = room.await else { return false };
        peer.outgoing.send((frames, permit)).await.is_ok()
    });
    match sent.await {
        Ok(is_there) => is_there,
        Err(_) => {
            peer.cut.send_replace(true);
            false
        }
    }
}

/// Forgets a peer when its connection ends, however it ends.
struct Leaving<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(peer) = lock(&self.shared.peers).remove(&self.number) {
            // Whoever waits for room is told.
            peer.room.close();
        }
    }
}
