//! A kernel whose clients come over WebSockets: JupyterLab through a gateway, and programs that speak to one.
//!
//! One connection carries all channels of a client. Its messages have one of two forms: JSON, or the offsets of
//! `v1.kernel.websocket.jupyter.org`. Who may connect, and the connections themselves, are the business of whoever serves
//! them. Read [`WebKernel`] first.

mod frame;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use cellar_config::Folders;
use cellar_core::sync::lock;
use cellar_engine::Language;
use cellar_hub::{HubError, OwnSession};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};

use self::frame::Said;
pub use self::frame::{Form, Frame};
use crate::{
    connection::PORTS,
    kernel::{Inbox, Kernel, Outlet, Stop},
    message::{Message, Voice},
    queue::{Outgoing, Queue, STALL_TIMEOUT, kib},
    zmtp::MESSAGE_BYTES_MAX,
};

/// Bytes of a message.
pub const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
/// Connections of a kernel.
const CLIENTS_MAX: usize = 16;
/// KiB of messages of all clients that wait for an answer.
const WAITING_KIB: usize = (4 * MESSAGE_BYTES_MAX) >> 10;

/// State of a kernel, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its session is being opened.
    Starting,
    /// The kernel answers a request.
    Busy,
    /// The kernel waits for a request.
    Idle,
}

impl State {
    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Busy => "busy",
            State::Idle => "idle",
        }
    }
}

/// Kernel, with the clients that are connected to it. Dropping it ends it: its run is cancelled and its clients are
/// disconnected.
pub struct WebKernel {
    kernel: Arc<Kernel>,
    inbox: Inbox,
    clients: Arc<Clients>,
    /// The room of all messages that wait.
    waiting: Arc<Semaphore>,
    _tasks: JoinSet<()>,
}

impl std::fmt::Debug for WebKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebKernel").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Drop for WebKernel {
    fn drop(&mut self) {
        // Each connection ends when nobody has anything for it any more.
        lock(&self.clients.open).clear();
    }
}

impl WebKernel {
    /// Starts a kernel of this language, whose session is opened meanwhile. `folders` are those of its magics' files.
    pub fn start(
        language: Language,
        folders: Folders,
        opening: impl Future<Output = Result<OwnSession, HubError>> + Send + 'static,
    ) -> WebKernel {
        let clients = Arc::new(Clients {
            voice: Voice::new(),
            open: Mutex::default(),
            count: AtomicU64::new(1),
            last_activity: Mutex::new(SystemTime::now()),
        });
        let mut tasks = JoinSet::new();
        let (kernel, inbox) = Kernel::start(language, folders, Box::new(Outside(clients.clone())), opening, &mut tasks);
        tasks.spawn(restart_when_told(kernel.clone()));
        WebKernel { kernel, inbox, clients, waiting: Arc::new(Semaphore::new(WAITING_KIB)), _tasks: tasks }
    }

    /// Returns its state.
    pub fn state(&self) -> State {
        match (self.kernel.is_open(), self.kernel.is_busy()) {
            (false, _) => State::Starting,
            (true, true) => State::Busy,
            (true, false) => State::Idle,
        }
    }

    /// Returns the number of connected clients.
    pub fn connections(&self) -> usize {
        lock(&self.clients.open).len()
    }

    /// Returns the time of the last message from or to a client.
    pub fn last_activity(&self) -> SystemTime {
        *lock(&self.clients.last_activity)
    }

    /// Interrupts whatever runs; all state is kept.
    pub fn interrupt(&self) {
        self.kernel.interrupt();
    }

    /// Restarts the kernel: stops what runs, drops all names, keeps files.
    ///
    /// # Cancel safety
    /// Not cancel safe: clients may not be told.
    pub async fn restart(&self) {
        self.kernel.restart().await;
    }

    /// Resolves when a client has shut the kernel down. The kernel is to be dropped then.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.kernel.stop.subscribe();
        async move {
            let _ = stop.wait_for(|stop| *stop == Some(Stop::Shutdown)).await;
        }
    }

    /// Connects a client; returns none when there are as many as there may be.
    pub fn connect(&self, form: Form) -> Option<Client> {
        let (queue, outgoing) = Queue::new();
        let mut open = lock(&self.clients.open);
        if open.len() >= CLIENTS_MAX {
            return None;
        }
        let peer = self.clients.count.fetch_add(1, Ordering::Relaxed);
        open.insert(peer, Arc::new(queue));
        let hearing = Hearing {
            form,
            peer,
            clients: self.clients.clone(),
            inbox: self.inbox.clone(),
            waiting: self.waiting.clone(),
        };
        Some(Client { hearing, speaking: Speaking { form, outgoing } })
    }
}

/// Connected client.
#[derive(Debug)]
pub struct Client {
    /// Receiver of the client's messages. Dropping it disconnects the client.
    pub hearing: Hearing,
    /// Sender of messages to the client.
    pub speaking: Speaking,
}

/// Receiver of a client's messages.
pub struct Hearing {
    form: Form,
    peer: u64,
    clients: Arc<Clients>,
    inbox: Inbox,
    waiting: Arc<Semaphore>,
}

impl std::fmt::Debug for Hearing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hearing").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        if let Some(queue) = lock(&self.clients.open).remove(&self.peer) {
            queue.close();
        }
    }
}

impl Hearing {
    /// Hands a frame of the client to the kernel, once there is capacity for it. Returns false if the kernel has ended.
    /// An invalid message is ignored.
    ///
    /// # Cancel safety
    /// Cancel safe: then it is not handed over.
    pub async fn hear(&self, frame: Frame) -> bool {
        let size = kib(frame.len()).min(u32::try_from(WAITING_KIB).unwrap_or(u32::MAX));
        let Ok(room) = self.waiting.clone().acquire_many_owned(size).await else { return false };
        self.clients.note_activity();
        let read = frame::read(self.form, &frame);
        match read.and_then(|(channel, header, content)| Message::new(channel, self.peer, header, content, room)) {
            Ok(message) => self.inbox.put(message).await,
            Err(fault) => {
                tracing::debug!(error = %fault, "a message was refused");
                true
            }
        }
    }
}

/// Sender of messages to a client.
#[derive(Debug)]
pub struct Speaking {
    form: Form,
    outgoing: Outgoing<Arc<Said>>,
}

/// Permit of a frame, to be held until it was sent.
#[derive(Debug)]
pub struct Room {
    _permit: OwnedSemaphorePermit,
}

impl Speaking {
    /// Returns the next frame to send, with its permit; none when the kernel has ended, or when the client has not read
    /// for too long.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<(Frame, Room)> {
        let (said, room) = self.outgoing.next().await?;
        Some((frame::write(self.form, &said), Room { _permit: room }))
    }

    /// Resolves when the client has not read for too long.
    pub fn stalled(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut cut = self.outgoing.cut();
        async move {
            if cut.wait_for(|cut| *cut).await.is_err() {
                // The kernel has ended, which is told by `next`.
                std::future::pending::<()>().await;
            }
            tracing::warn!("a client has taken nothing of what it is sent for {} s", STALL_TIMEOUT.as_secs());
        }
    }
}

/// Clients that are connected.
struct Clients {
    voice: Voice,
    open: Mutex<BTreeMap<u64, Arc<Queue<Arc<Said>>>>>,
    count: AtomicU64,
    last_activity: Mutex<SystemTime>,
}

impl Clients {
    fn note_activity(&self) {
        *lock(&self.last_activity) = SystemTime::now();
    }

    fn said(&self, channel: &'static str, parent: &Value, kind: &str, content: &Value) -> Arc<Said> {
        self.note_activity();
        Arc::new(Said::new(channel, &self.voice.header(kind), parent, content))
    }

    /// Tells one client.
    async fn send(&self, peer: u64, said: Arc<Said>) {
        let queue = lock(&self.open).get(&peer).cloned();
        if let Some(queue) = queue {
            let size = said.len();
            queue.send(said, size).await;
        }
    }
}

/// Outlet that sends the messages of a kernel to the connected clients.
struct Outside(Arc<Clients>);

impl Outlet for Outside {
    fn publish<'a>(&'a self, parent: &'a Value, kind: &'a str, content: &'a Value) -> BoxFuture<'a, ()> {
        let said = self.0.said("iopub", parent, kind, content);
        let queues: Vec<_> = lock(&self.0.open).values().cloned().collect();
        Box::pin(async move {
            let size = said.len();
            futures::future::join_all(queues.iter().map(|queue| queue.send(said.clone(), size))).await;
        })
    }

    fn reply<'a>(&'a self, message: &'a Message, kind: &'a str, content: &'a Value) -> BoxFuture<'a, ()> {
        let said = self.0.said(message.channel.name(), &message.header, kind, content);
        Box::pin(self.0.send(message.peer, said))
    }

    fn answerer(&self, message: &Message) -> Option<u64> {
        lock(&self.0.open).contains_key(&message.peer).then_some(message.peer)
    }

    fn ask<'a>(&'a self, peer: u64, parent: &'a Value, content: &'a Value) -> BoxFuture<'a, ()> {
        let said = self.0.said("stdin", parent, "input_request", content);
        Box::pin(self.0.send(peer, said))
    }

    fn ports(&self) -> Option<[u16; PORTS.len()]> {
        None
    }
}

/// Restarts the kernel whenever a client asks for it.
async fn restart_when_told(kernel: Arc<Kernel>) {
    let mut stop = kernel.stop.subscribe();
    while stop.wait_for(|stop| *stop == Some(Stop::Restart)).await.is_ok() {
        kernel.stop.send_replace(None);
        kernel.restart().await;
    }
}
