//! Bound sockets: their peers, and the messages that are queued for each.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cellar_core::sync::lock;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use super::frame::{
    Broken, Received, Room, STRANGER_TIMEOUT, STRANGERS_KIB, STRANGERS_SMALL_KIB, WAITING_KIB, greet, read, write,
};
use crate::{
    connection::{Address, Listener},
    queue::{Queue, STALL_TIMEOUT},
};

/// Peers of a socket. A new one beyond that replaces the peer that has been a stranger for longest.
const PEERS_MAX: usize = 64;
/// Identities of peers that have sent a signed message, on any socket.
const NAMES_MAX: usize = PEERS_MAX;
/// Topics that a peer subscribes to, and bytes of one.
const TOPICS_MAX: usize = 64;
const TOPIC_BYTES_MAX: usize = 256;
/// Timeout of a peer's greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages of all peers of a socket that wait for the check of their signatures.
const WAITING_MAX: usize = 16;
/// Time for queued messages to be written when a socket is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Requests, each answered to the peer that sent it.
    Router,
    /// Messages to all peers that have subscribed to their topic.
    Publisher,
    /// Requests of a peer, each answered before the next.
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

    /// Returns true if a peer's socket of this type may connect.
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
    /// Identity of the peer; empty where it gives none.
    pub(crate) identity: Bytes,
    /// The message.
    pub(crate) frames: Vec<Bytes>,
    /// Permit for the message, held until it was answered.
    pub(crate) room: OwnedSemaphorePermit,
}

struct Peer {
    identity: Bytes,
    /// True when the peer is no stranger any more; shared with the place of its connection.
    is_known: Arc<AtomicBool>,
    topics: Mutex<Vec<Bytes>>,
    queue: Queue<Arc<[Bytes]>>,
}

struct Shared {
    kind: Kind,
    peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
    count: AtomicU64,
    /// Capacity for the messages of known peers, and of strangers.
    waiting: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    strangers_small: Arc<Semaphore>,
    /// Identities of known peers, the oldest first.
    names: Mutex<VecDeque<Bytes>>,
}

/// The place of a connection.
struct Place {
    is_known: Arc<AtomicBool>,
    connection: AbortHandle,
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
        let socket = Socket(Arc::new(Shared {
            kind,
            peers: Mutex::default(),
            count: AtomicU64::new(1),
            waiting: Arc::new(Semaphore::new(WAITING_KIB)),
            strangers: Arc::new(Semaphore::new(STRANGERS_KIB)),
            strangers_small: Arc::new(Semaphore::new(STRANGERS_SMALL_KIB)),
            names: Mutex::default(),
        }));
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        tasks.spawn(socket.clone().accept(listener, sender));
        Ok((socket, receiver))
    }

    async fn accept(self, listener: Listener, incoming: mpsc::Sender<Incoming>) {
        let mut connections = JoinSet::new();
        // By number: the oldest first.
        let mut places: BTreeMap<u64, Place> = BTreeMap::new();
        loop {
            places.retain(|_, place| !place.connection.is_finished());
            let stranger = places.iter().find(|(_, place)| !place.is_known.load(Ordering::Relaxed));
            let stranger = stranger.map(|(number, _)| *number);
            let is_full = places.len() >= PEERS_MAX;
            tokio::select! {
                accepted = listener.accept(), if !is_full || stranger.is_some() => match accepted {
                    Ok(stream) => {
                        if is_full && let Some(place) = stranger.and_then(|number| places.remove(&number)) {
                            tracing::warn!(socket = self.0.kind.name(), "a stranger's connection was ended for another's");
                            place.connection.abort();
                        }
                        let (socket, incoming) = (self.clone(), incoming.clone());
                        let number = self.0.count.fetch_add(1, Ordering::Relaxed);
                        let is_known = Arc::new(AtomicBool::new(false));
                        let known = is_known.clone();
                        let connection = connections.spawn(async move {
                            match socket.serve(stream, number, known, incoming).await {
                                Err(Broken::Gone) | Ok(()) => {}
                                Err(broken) => {
                                    let socket = socket.0.kind.name();
                                    tracing::warn!(socket, error = %broken, "a connection was ended");
                                }
                            }
                        });
                        places.insert(number, Place { is_known, connection });
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
    async fn serve<S>(
        &self,
        mut stream: S,
        number: u64,
        is_known: Arc<AtomicBool>,
        incoming: mpsc::Sender<Incoming>,
    ) -> Result<(), Broken>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let late = || Broken::Protocol(format!("it has not greeted within {} s", GREETING_TIMEOUT.as_secs()));
        let greeted = timeout(GREETING_TIMEOUT, greet(&mut stream, self.0.kind));
        let identity = greeted.await.map_err(|_| late())??;
        let (queue, mut outgoing) = Queue::<Arc<[Bytes]>>::new();
        let mut is_cut = outgoing.cut();
        let peer = Arc::new(Peer { identity: identity.clone(), is_known, topics: Mutex::default(), queue });
        {
            let mut peers = lock(&self.0.peers);
            // Of several with a known name it is the first that has it.
            let is_first = !peers.values().any(|other| other.identity == identity);
            if is_first && lock(&self.0.names).contains(&identity) {
                peer.is_known.store(true, Ordering::Relaxed);
            }
            peers.insert(number, peer.clone());
        }
        let _leaving = Leaving { shared: &self.0, number };
        let (mut reader, writer) = tokio::io::split(stream);
        let mut writer = BufWriter::with_capacity(64 << 10, writer);
        let writing = async {
            while let Some((frames, permit)) = outgoing.next().await {
                write(&mut writer, &frames).await?;
                drop(permit);
                if outgoing.is_empty() {
                    writer.flush().await?;
                }
            }
            writer.flush().await?;
            writer.shutdown().await?;
            Ok(())
        };
        let reading = async {
            loop {
                let (received, room) = read(&mut reader, || self.room_of(&peer)).await?;
                let Some(frames) = self.understood(&peer, received)? else { continue };
                if self.0.kind != Kind::Router {
                    // Nothing is signed here: a peer is known once it uses the socket for what it is for.
                    peer.is_known.store(true, Ordering::Relaxed);
                }
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

    fn room_of(&self, peer: &Peer) -> Room {
        let Shared { waiting, strangers, strangers_small, .. } = &*self.0;
        match peer.is_known.load(Ordering::Relaxed) {
            true => Room { small: waiting.clone(), large: waiting.clone(), patience: None },
            false => {
                Room { small: strangers_small.clone(), large: strangers.clone(), patience: Some(STRANGER_TIMEOUT) }
            }
        }
    }

    /// Marks the peer of a signed message as known, so that its place is not taken from it. Returns the permit that the
    /// message holds from now on, of the capacity for known peers.
    ///
    /// # Cancel safety
    /// Cancel safe: a message that is dropped takes no room.
    pub(crate) async fn know(&self, peer: u64, room: OwnedSemaphorePermit) -> OwnedSemaphorePermit {
        if let Some(peer) = lock(&self.0.peers).get(&peer) {
            peer.is_known.store(true, Ordering::Relaxed);
        }
        if Arc::ptr_eq(room.semaphore(), &self.0.waiting) {
            return room;
        }
        let kib = u32::try_from(room.num_permits()).unwrap_or(u32::MAX);
        // It is never closed; a stranger's room would do as well.
        self.0.waiting.clone().acquire_many_owned(kib).await.unwrap_or(room)
    }

    /// Marks the peer of this identity as known, now or when it connects: it has sent a signed message on another
    /// socket. Of several peers with the identity it is the first.
    pub(crate) fn know_name(&self, identity: &Bytes) {
        if identity.is_empty() {
            return;
        }
        let peers = lock(&self.0.peers);
        if let Some(peer) = peers.values().find(|peer| peer.identity == *identity) {
            peer.is_known.store(true, Ordering::Relaxed);
        }
        let mut names = lock(&self.0.names);
        if !names.contains(identity) {
            if names.len() == NAMES_MAX {
                names.pop_front();
            }
            names.push_back(identity.clone());
        }
    }

    /// Returns the message in what a peer has sent, or the topic that it newly subscribes to; none if the reader of
    /// this socket need not see it.
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

    /// Sends a message to a peer; returns false if it has gone.
    pub(crate) async fn send(&self, peer: u64, frames: Vec<Bytes>) -> bool {
        let found = lock(&self.0.peers).get(&peer).cloned();
        match found {
            Some(found) => send(&found, frames.into()).await,
            None => false,
        }
    }

    /// Sends a message to all peers that have subscribed to its topic. A peer that does not read makes the publisher
    /// wait, until it is disconnected.
    pub(crate) async fn publish(&self, frames: Vec<Bytes>) {
        let Some(topic) = frames.first().cloned() else { return };
        let frames: Arc<[Bytes]> = frames.into();
        let is_subscribed =
            |peer: &&Arc<Peer>| lock(&peer.topics).iter().any(|subscribed| topic.starts_with(subscribed));
        let peers: Vec<Arc<Peer>> = lock(&self.0.peers).values().filter(is_subscribed).cloned().collect();
        futures::future::join_all(peers.iter().map(|peer| send(peer, frames.clone()))).await;
    }

    /// Returns the peer of this identity; of several the first, as ZeroMQ's own sockets do, because a later one may be
    /// anybody.
    pub(crate) fn peer(&self, identity: &[u8]) -> Option<u64> {
        let peers = lock(&self.0.peers);
        let found = peers.iter().find(|(_, peer)| peer.identity[..] == *identity);
        found.map(|(number, _)| *number)
    }

    /// Waits until queued messages are written, at most `CLOSE_TIMEOUT`, and forgets all peers.
    pub(crate) async fn close(&self) {
        let peers: Vec<Arc<Peer>> = std::mem::take(&mut *lock(&self.0.peers)).into_values().collect();
        let gone = async {
            for peer in peers {
                peer.queue.written().await;
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, gone).await;
    }
}

/// Records a subscription. Returns the topic if it is new.
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
    let bytes: usize = frames.iter().map(|frame| frame.len().saturating_add(64)).sum();
    peer.queue.send(frames, bytes).await
}

/// Guard that forgets a peer when its connection ends, in whatever way.
struct Leaving<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(peer) = lock(&self.shared.peers).remove(&self.number) {
            // Whoever waits for room is told.
            peer.queue.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt as _, net::UnixStream};

    use super::*;

    /// Longer than any of these tests should take.
    const TIMEOUT: Duration = Duration::from_secs(60);

    fn on_runtime(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { timeout(TIMEOUT, work).await.expect("it ends") });
    }

    /// A socket of the file system, and where it is.
    struct Bound {
        socket: Socket,
        incoming: mpsc::Receiver<Incoming>,
        path: std::path::PathBuf,
        _folder: tempfile::TempDir,
        _tasks: JoinSet<()>,
    }

    impl Bound {
        async fn new() -> Bound {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("socket");
            let mut tasks = JoinSet::new();
            let (socket, incoming) =
                Socket::bind(Kind::Router, &Address::Ipc(path.clone()), &mut tasks).await.expect("bound");
            Bound { socket, incoming, path, _folder: folder, _tasks: tasks }
        }

        /// A peer that has greeted.
        async fn peer(&self, name: &[u8]) -> UnixStream {
            let mut stream = UnixStream::connect(&self.path).await.expect("connected");
            let mut bytes = vec![0_u8; 64];
            (bytes[0], bytes[9], bytes[10]) = (0xff, 0x7f, 3);
            bytes[12..16].copy_from_slice(b"NULL");
            let mut ready = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0".to_vec();
            ready.push(name.len() as u8);
            ready.extend(name);
            bytes.extend([4, ready.len() as u8]);
            bytes.extend(ready);
            stream.write_all(&bytes).await.expect("written");
            let mut answer = [0_u8; 64 + 2];
            stream.read_exact(&mut answer).await.expect("a greeting");
            let mut ready = vec![0_u8; usize::from(answer[65])];
            stream.read_exact(&mut ready).await.expect("a command");
            stream
        }

        /// Sends a message of one frame from a peer, and gives it as it came.
        async fn say(&mut self, peer: &mut UnixStream, bytes: usize) -> Incoming {
            let mut frame = vec![2];
            frame.extend((bytes as u64).to_be_bytes());
            frame.resize(9 + bytes, 7);
            let (written, incoming) = tokio::join!(peer.write_all(&frame), self.incoming.recv());
            written.expect("written");
            let incoming = incoming.expect("a message");
            assert_eq!(incoming.frames.concat().len(), bytes);
            incoming
        }
    }

    async fn is_cut_off(stream: &mut UnixStream) -> bool {
        let mut byte = [0];
        matches!(stream.read(&mut byte).await, Ok(0) | Err(_))
    }

    #[test]
    fn silent_strangers_lose_their_places_and_who_has_signed_does_not() {
        on_runtime(async {
            let mut bound = Bound::new().await;
            let (mut signer, mut friend) = (bound.peer(b"signer").await, bound.peer(b"friend").await);
            let Incoming { peer, room, .. } = bound.say(&mut signer, 5).await;
            drop(bound.socket.know(peer, room).await);
            bound.socket.know_name(&Bytes::from_static(b"friend"));
            let mut strangers = Vec::new();
            for _ in 0..2 * PEERS_MAX {
                strangers.push(bound.peer(b"").await);
            }
            // Those that came first have gone, and as many as there are places stay.
            let places = PEERS_MAX - 2;
            for stranger in &mut strangers[..2 * PEERS_MAX - places] {
                assert!(is_cut_off(stranger).await);
            }
            let mut late = bound.peer(b"late").await;
            bound.say(&mut late, 5).await;
            bound.say(&mut friend, 5).await;
            assert!(bound.socket.send(peer, vec![Bytes::from_static(b"x")]).await);
            let mut answer = [0; 3];
            signer.read_exact(&mut answer).await.expect("an answer");
            assert_eq!(answer, *b"\0\x01x");
        });
    }

    #[test]
    fn strangers_do_not_take_the_room_of_who_has_signed() {
        on_runtime(async {
            let mut bound = Bound::new().await;
            let mut signer = bound.peer(b"signer").await;
            let Incoming { peer, room, .. } = bound.say(&mut signer, 5).await;
            let room = bound.socket.know(peer, room).await;
            assert!(Arc::ptr_eq(room.semaphore(), &bound.socket.0.waiting));
            let mut strangers = Vec::new();
            for _ in 0..8 {
                let mut stranger = bound.peer(b"").await;
                stranger.write_all(&[2, 0, 0, 0, 0, 1, 0, 0, 0]).await.expect("written");
                strangers.push(stranger);
            }
            while bound.socket.0.strangers.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(bound.socket.0.waiting.available_permits(), WAITING_KIB - room.num_permits());
            bound.say(&mut signer, 1 << 20).await;
            // Nor that of a stranger with something short to say.
            let mut late = bound.peer(b"late").await;
            bound.say(&mut late, 5).await;
        });
    }
}
