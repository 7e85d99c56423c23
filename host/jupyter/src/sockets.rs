//! A kernel that a client has started: its sockets, who reads each, and its end.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cellar_bridges::Doors;
use cellar_config::{Folders, Overrides, Progress, SessionRequest};
use cellar_core::sync::lock;
use cellar_engine::{Language, config::HistoryOptions};
use cellar_hub::OwnSession;
use futures::future::BoxFuture;
use rustix::io::Errno;
use serde_json::{Value, json};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    connection::{Address, Connection, PORTS},
    error::KernelError,
    kernel::{Inbox, Kernel, Outlet},
    message::{Channel, Message, Signer, Voice},
    zmtp::{Incoming, Kind, Socket},
};

/// Live kernels of each flavour: that of the notebook, those of its forks, and one that draws charts.
const KERNELS_MAX: u32 = 16;
/// Interval between checks whether the client that started the kernel still runs.
const PARENT_INTERVAL: Duration = Duration::from_secs(1);
/// Environment variable that holds the process id of the client.
const PARENT_VARIABLE: &str = "JPY_PARENT_PID";

/// Configuration of a kernel: its folders, grants and language.
#[derive(Clone, Debug)]
pub struct KernelConfig {
    /// Folders of Cellar's own files.
    pub folders: Folders,
    /// Grants of the cells.
    pub overrides: Overrides,
    /// Language of the cells.
    pub language: Language,
    /// Called with the progress of a guest's preparation.
    pub progress: Progress,
}

/// Serves the clients of a connection file, until one of them, a signal, or the end of the process that started it
/// stops the kernel.
///
/// # Errors
/// The configuration or the connection file cannot be used, or a port is in use. That a session cannot be opened later is
/// told to whoever runs a cell.
pub async fn serve(config: KernelConfig, connection: Connection, doors: Arc<dyn Doors>) -> Result<(), KernelError> {
    let KernelConfig { folders, mut overrides, language, progress } = config;
    overrides.input = true;
    // Whoever works at a prompt wants to undo.
    overrides.history = Some(HistoryOptions::default());
    // Nobody at a prompt expects a limit of which nothing was said.
    overrides.untimed = true;
    let limits = overrides.file()?.limits;
    if limits.timeout.is_none() {
        overrides.limits.timeout = overrides.limits.timeout.or(limits.timeout_max);
    }
    let signer = Signer::new(&connection.scheme, &connection.key);
    let signer = signer.map_err(|fault| KernelError::Signature(fault.to_string()))?;
    if !signer.is_signing() {
        tracing::warn!("the connection file has no key: whoever reaches the ports of this kernel can use it");
    }
    let mut tasks = JoinSet::new();
    let (shell, shell_messages) = bind(Kind::Router, &connection.shell, &mut tasks).await?;
    let (control, control_messages) = bind(Kind::Router, &connection.control, &mut tasks).await?;
    let (stdin, stdin_messages) = bind(Kind::Router, &connection.stdin, &mut tasks).await?;
    let (iopub, subscriptions) = bind(Kind::Publisher, &connection.iopub, &mut tasks).await?;
    let (heartbeat, beats) = bind(Kind::Replier, &connection.heartbeat, &mut tasks).await?;
    let sockets = Sockets {
        voice: Arc::new(Voice::new()),
        signer: Arc::new(signer),
        shell,
        control,
        stdin,
        iopub,
        ports: connection.ports,
    };
    tasks.spawn(beat(heartbeat, beats));
    tasks.spawn(sockets.clone().welcome(subscriptions));
    let opening = {
        let folders = folders.clone();
        async move {
            let request = SessionRequest { overrides, ..SessionRequest::default() };
            OwnSession::open(&folders, request, doors, KERNELS_MAX, progress).await
        }
    };
    let (kernel, inbox) = Kernel::start(language, folders, Box::new(sockets.clone()), opening, &mut tasks);
    for (channel, messages) in
        [(Channel::Shell, shell_messages), (Channel::Control, control_messages), (Channel::Stdin, stdin_messages)]
    {
        tasks.spawn(sockets.clone().listen(channel, messages, inbox.clone()));
    }
    until_stopped(&kernel).await?;
    if let Some(run) = lock(&kernel.run).take() {
        run.cancel();
    }
    tokio::join!(sockets.control.close(), sockets.shell.close(), sockets.iopub.close(), sockets.stdin.close());
    tasks.shutdown().await;
    for address in [&connection.shell, &connection.control, &connection.stdin, &connection.iopub, &connection.heartbeat]
    {
        if let Address::Ipc(path) = address {
            let _ = std::fs::remove_file(path);
        }
    }
    Ok(())
}

async fn bind(
    kind: Kind,
    address: &Address,
    tasks: &mut JoinSet<()>,
) -> Result<(Socket, mpsc::Receiver<Incoming>), KernelError> {
    let place = match address {
        Address::Tcp(ip, port) => format!("{ip}:{port}"),
        Address::Ipc(path) => path.display().to_string(),
    };
    Socket::bind(kind, address, tasks).await.map_err(|source| KernelError::Bind { address: place, source })
}

/// Echoes heartbeats, so that clients know that the kernel lives.
async fn beat(socket: Socket, mut beats: mpsc::Receiver<Incoming>) {
    while let Some(Incoming { peer, frames, .. }) = beats.recv().await {
        socket.send(peer, frames).await;
    }
}

/// The sockets of a kernel that all tasks share. A cheap handle.
#[derive(Clone)]
struct Sockets {
    voice: Arc<Voice>,
    signer: Arc<Signer>,
    shell: Socket,
    control: Socket,
    stdin: Socket,
    iopub: Socket,
    ports: [u16; PORTS.len()],
}

impl Sockets {
    /// Returns a signed message as frames.
    fn frames(&self, kind: &str, parent: &Value, content: &Value) -> Vec<Bytes> {
        self.signer.frames(&self.voice.header(kind), parent, content)
    }

    /// Returns the socket of a channel.
    fn socket(&self, channel: Channel) -> &Socket {
        match channel {
            Channel::Shell => &self.shell,
            Channel::Control => &self.control,
            Channel::Stdin => &self.stdin,
        }
    }

    /// Confirms each new subscription to its subscriber.
    async fn welcome(self, mut subscriptions: mpsc::Receiver<Incoming>) {
        while let Some(Incoming { peer, frames, .. }) = subscriptions.recv().await {
            let Some(topic) = frames.into_iter().next() else { continue };
            let content = json!({"subscription": String::from_utf8_lossy(&topic)});
            let mut frames = vec![topic];
            frames.extend(self.frames("iopub_welcome", &json!({}), &content));
            self.iopub.send(peer, frames).await;
        }
    }

    /// Passes on messages with a valid signature.
    async fn listen(self, channel: Channel, mut incoming: mpsc::Receiver<Incoming>, inbox: Inbox) {
        while let Some(incoming) = incoming.recv().await {
            match Message::read(incoming, channel, &self.signer) {
                Ok(mut message) => {
                    if let Some(room) = message.room.take() {
                        message.room = Some(self.socket(channel).know(message.peer, room).await);
                    }
                    // Its sockets have one name, and that for answers to questions may be silent for ever.
                    self.stdin.know_name(&message.identity);
                    if !inbox.put(message).await {
                        return;
                    }
                }
                Err(fault) => tracing::warn!(socket = channel.name(), error = %fault, "a message was refused"),
            }
        }
    }
}

impl Outlet for Sockets {
    fn publish<'a>(&'a self, parent: &'a Value, kind: &'a str, content: &'a Value) -> BoxFuture<'a, ()> {
        let mut frames = vec![self.voice.topic(kind)];
        frames.extend(self.frames(kind, parent, content));
        Box::pin(self.iopub.publish(frames))
    }

    fn reply<'a>(&'a self, message: &'a Message, kind: &'a str, content: &'a Value) -> BoxFuture<'a, ()> {
        let mut frames = message.envelope();
        frames.extend(self.frames(kind, &message.header, content));
        let socket = self.socket(message.channel);
        Box::pin(async move {
            socket.send(message.peer, frames).await;
        })
    }

    fn answerer(&self, message: &Message) -> Option<u64> {
        self.stdin.peer(&message.identity)
    }

    fn ask<'a>(&'a self, peer: u64, parent: &'a Value, content: &'a Value) -> BoxFuture<'a, ()> {
        let frames = self.frames("input_request", parent, content);
        Box::pin(async move {
            self.stdin.send(peer, frames).await;
        })
    }

    fn ports(&self) -> Option<[u16; PORTS.len()]> {
        Some(self.ports)
    }
}

/// Waits until the kernel is to end.
async fn until_stopped(kernel: &Kernel) -> Result<(), KernelError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(KernelError::Start)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(KernelError::Start)?;
    let mut stop = kernel.stop.subscribe();
    let parent = std::env::var(PARENT_VARIABLE).ok().and_then(|pid| pid.parse::<i32>().ok());
    let own_parent = || rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    // Another process may stand between the client and this one.
    let is_child = parent == own_parent();
    let is_gone = || {
        let client = parent.and_then(rustix::process::Pid::from_raw);
        let is_there = client.is_none_or(|client| rustix::process::test_kill_process(client) != Err(Errno::SRCH));
        !is_there || (is_child && own_parent() != parent)
    };
    let mut looks = tokio::time::interval(PARENT_INTERVAL);
    loop {
        tokio::select! {
            _ = stop.wait_for(Option::is_some) => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => kernel.interrupt(),
            _ = looks.tick(), if parent.is_some() => if is_gone() {
                return Ok(());
            },
        }
    }
}
