//! A kernel: its sockets, who reads each, and what it answers.
//!
//! Requests on the shell socket are answered one after the other, as clients expect. Those on the control socket (interrupt,
//! shutdown) are answered at once. What a cell shows is published while it runs; a subscriber that takes nothing holds the
//! cell up, and is cut off in the end.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use cellar_bridges::Doors;
use cellar_core::{sync::lock, text::describe};
use cellar_engine::{Language, background::Background};
use cellar_hub::{OwnSession, RunHandle};
use cellar_setup::{Folders, Overrides, Progress, SessionRequest};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    connection::{Address, Connection, PORTS},
    error::KernelError,
    history::History,
    looks,
    message::{Fault, Message, Signer, Voice},
    profile,
    zmtp::{Incoming, Kind, Socket},
};

/// Live kernels of each flavour: that of the notebook, those of its forks, and one that draws charts.
const KERNELS_MAX: u32 = 16;
/// Signed messages that wait for an answer.
const MESSAGES_MAX: usize = 4_096;
/// How often it is looked whether the client that started the kernel is still there.
const PARENT_INTERVAL: Duration = Duration::from_secs(1);
/// The variable by which clients say which process they are.
const PARENT_VARIABLE: &str = "JPY_PARENT_PID";

/// What a kernel is granted, and where its guests are.
#[derive(Clone, Debug)]
pub struct KernelConfig {
    /// Where Cellar keeps its own things.
    pub folders: Folders,
    /// What cells are granted.
    pub overrides: Overrides,
    /// What cells are written in.
    pub language: Language,
    /// What hears that a guest is being made ready.
    pub progress: Progress,
}

/// What a kernel says when something fails that is not a cell: as clients show errors.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) name: String,
    pub(crate) message: String,
    pub(crate) traceback: Vec<String>,
}

impl Trouble {
    pub(crate) fn new(name: &str, message: impl Into<String>) -> Trouble {
        let message = message.into();
        Trouble { name: name.to_owned(), traceback: vec![format!("{name}: {message}")], message }
    }

    /// The members that an error has in every message.
    pub(crate) fn content(&self) -> Map<String, Value> {
        let mut content = Map::new();
        content.insert("ename".to_owned(), self.name.as_str().into());
        content.insert("evalue".to_owned(), self.message.as_str().into());
        content.insert("traceback".to_owned(), self.traceback.clone().into());
        content
    }
}

impl From<&Fault> for Trouble {
    fn from(fault: &Fault) -> Trouble {
        Trouble::new("InvalidRequest", fault.to_string())
    }
}

/// A session that is there, is not there yet, or cannot be.
type Opened = Option<Result<OwnSession, Trouble>>;

/// What all tasks of a kernel share.
pub(crate) struct Kernel {
    pub(crate) language: Language,
    pub(crate) folders: Folders,
    pub(crate) voice: Voice,
    pub(crate) stdin: Socket,
    shell: Socket,
    control: Socket,
    iopub: Socket,
    ports: [u16; PORTS.len()],
    opened: watch::Receiver<Opened>,
    /// How often the kernel was told to interrupt what it does.
    interrupts: watch::Sender<u64>,
    /// The run that is under way.
    pub(crate) run: Mutex<Option<RunHandle>>,
    pub(crate) asked: Mutex<VecDeque<Asked>>,
    pub(crate) history: Mutex<History>,
    stop: watch::Sender<bool>,
}

/// A request for input that a cell waits for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: String,
    pub(crate) prompt: String,
    /// The header of what runs the cell.
    pub(crate) parent: Value,
    /// The client that answers.
    pub(crate) peer: u64,
}

/// Serves the clients of a connection file, until one of them, a signal, or the end of whoever started it says that it is
/// enough.
///
/// # Errors
/// The configuration or the connection file cannot be used, or a port is in use. That a session cannot be opened later is
/// told to whoever runs a cell.
pub async fn serve(config: KernelConfig, connection: Connection, doors: Arc<dyn Doors>) -> Result<(), KernelError> {
    let KernelConfig { folders, mut overrides, language, progress } = config;
    overrides.input = true;
    // Nobody at a prompt expects a limit of which nothing was said.
    overrides.untimed = true;
    let limits = overrides.file()?.limits;
    if limits.timeout.is_none() {
        overrides.timeout_seconds = overrides.timeout_seconds.or(limits.timeout_max);
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
    let (opened_sender, opened) = watch::channel(None);
    let kernel = Arc::new(Kernel {
        language,
        folders: folders.clone(),
        voice: Voice::new(signer),
        stdin,
        shell,
        control,
        iopub,
        ports: connection.ports,
        opened,
        interrupts: watch::Sender::new(0),
        run: Mutex::default(),
        asked: Mutex::default(),
        history: Mutex::default(),
        stop: watch::Sender::new(false),
    });
    tasks.spawn(beat(heartbeat, beats));
    tasks.spawn(kernel.clone().welcome(subscriptions));
    let (shell_sender, shell_queue) = mpsc::channel(MESSAGES_MAX);
    let (control_sender, control_queue) = mpsc::channel(MESSAGES_MAX);
    let (stdin_sender, stdin_queue) = mpsc::channel(MESSAGES_MAX);
    tasks.spawn(kernel.clone().listen("shell", kernel.shell.clone(), shell_messages, shell_sender));
    tasks.spawn(kernel.clone().listen("control", kernel.control.clone(), control_messages, control_sender));
    tasks.spawn(kernel.clone().listen("stdin", kernel.stdin.clone(), stdin_messages, stdin_sender));
    tasks.spawn(kernel.clone().answer_shell(shell_queue));
    tasks.spawn(kernel.clone().answer_control(control_queue));
    tasks.spawn(kernel.clone().take_input(stdin_queue));
    // A guest may have to be baked first, and clients want to hear from the kernel sooner.
    let opening = kernel.clone();
    tasks.spawn(async move {
        let request = SessionRequest { overrides, ..SessionRequest::default() };
        let opened = async {
            let own = OwnSession::open(&folders, request, doors, KERNELS_MAX, progress).await?;
            own.make_ready(&[language]).await.map(|()| own)
        };
        let opened = opened.await;
        if let Ok(own) = &opened {
            let mut background = own.session().background();
            opened_sender.send_replace(Some(Ok(own.clone())));
            while let Some(text) = background.next().await {
                opening.tell_background(text).await;
            }
        } else if let Err(error) = opened {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            let words = describe(&error);
            tracing::error!(error = words, "the session of this kernel cannot be opened");
            opened_sender.send_replace(Some(Err(Trouble::new("CellarError", format!("{words}{hint}")))));
        }
        // What waits for the session finds it as long as its sender lives.
        std::future::pending::<()>().await;
    });
    kernel.until_stopped().await?;
    if let Some(run) = lock(&kernel.run).take() {
        run.cancel();
    }
    tokio::join!(kernel.control.close(), kernel.shell.close(), kernel.iopub.close(), kernel.stdin.close());
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

/// Gives back what it is sent: so clients know that the kernel lives.
async fn beat(socket: Socket, mut beats: mpsc::Receiver<Incoming>) {
    while let Some(Incoming { peer, frames, .. }) = beats.recv().await {
        socket.send(peer, frames).await;
    }
}

impl Kernel {
    /// Tells each subscriber that it is heard from now on.
    async fn welcome(self: Arc<Kernel>, mut subscriptions: mpsc::Receiver<Incoming>) {
        while let Some(Incoming { peer, frames, .. }) = subscriptions.recv().await {
            let Some(topic) = frames.into_iter().next() else { continue };
            let content = json!({"subscription": String::from_utf8_lossy(&topic)});
            let mut frames = vec![topic];
            frames.extend(self.voice.frames("iopub_welcome", &json!({}), &content));
            self.iopub.send(peer, frames).await;
        }
    }

    /// Passes on what is signed.
    async fn listen(
        self: Arc<Kernel>,
        name: &'static str,
        socket: Socket,
        mut incoming: mpsc::Receiver<Incoming>,
        messages: mpsc::Sender<Message>,
    ) {
        while let Some(incoming) = incoming.recv().await {
            match Message::read(incoming, self.voice.signer()) {
                Ok(mut message) => {
                    if let Some(room) = message.room.take() {
                        message.room = Some(socket.know(message.peer, room).await);
                    }
                    // Its sockets have one name, and that for answers to questions may be silent for ever.
                    self.stdin.know_name(&message.identity);
                    if messages.send(message).await.is_err() {
                        return;
                    }
                }
                Err(fault) => tracing::warn!(socket = name, error = %fault, "a message was refused"),
            }
        }
    }

    /// Waits until the kernel shall end.
    async fn until_stopped(&self) -> Result<(), KernelError> {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(KernelError::Start)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(KernelError::Start)?;
        let mut stop = self.stop.subscribe();
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
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => self.interrupt(),
                _ = looks.tick(), if parent.is_some() => if is_gone() {
                    return Ok(());
                },
            }
        }
    }

    /// Has whatever runs stop, and keeps all state.
    fn interrupt(&self) {
        self.interrupts.send_modify(|count| *count += 1);
        if let Some(run) = &*lock(&self.run) {
            run.cancel();
        }
    }

    /// Comes when the kernel is interrupted from now on.
    pub(crate) fn interrupts(&self) -> watch::Receiver<u64> {
        self.interrupts.subscribe()
    }

    /// The session, once it is there.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) async fn own(&self) -> Result<OwnSession, Trouble> {
        let mut opened = self.opened.clone();
        let opened = opened.wait_for(Option::is_some).await;
        let opened = opened.map(|opened| opened.clone()).unwrap_or_default();
        opened.unwrap_or_else(|| Err(Trouble::new("CellarError", "the kernel is ending")))
    }

    /// Publishes a message about a request.
    pub(crate) async fn publish(&self, parent: &Value, kind: &str, content: &Value) {
        let mut frames = vec![self.voice.topic(kind)];
        frames.extend(self.voice.frames(kind, parent, content));
        self.iopub.publish(frames).await;
    }

    async fn status(&self, parent: &Value, state: &str) {
        self.publish(parent, "status", &json!({"execution_state": state})).await;
    }

    async fn reply(&self, socket: &Socket, message: &Message, kind: &str, content: &Value) {
        let mut frames = message.envelope();
        frames.extend(self.voice.frames(kind, &message.header, content));
        socket.send(message.peer, frames).await;
    }

    /// Publishes what code has written that outlived its cell.
    async fn tell_background(&self, text: Background) {
        let parent = lock(&self.history).parent(text.cell);
        let name = if text.is_stderr { "stderr" } else { "stdout" };
        self.publish(&parent, "stream", &json!({"name": name, "text": text.text})).await;
    }

    async fn answer_shell(self: Arc<Kernel>, mut queue: mpsc::Receiver<Message>) {
        // What waited when a cell failed, with whether it was given up then.
        let mut waiting: VecDeque<(Message, bool)> = VecDeque::new();
        loop {
            let next = match waiting.pop_front() {
                Some(next) => Some(next),
                None => queue.recv().await.map(|message| (message, false)),
            };
            let Some((message, is_aborted)) = next else { return };
            if self.request(&self.shell, &message, is_aborted).await {
                while let Ok(message) = queue.try_recv() {
                    waiting.push_back((message, false));
                }
                let cells = waiting.iter_mut().filter(|(message, _)| message.kind == "execute_request");
                cells.for_each(|(_, is_aborted)| *is_aborted = true);
            }
        }
    }

    async fn answer_control(self: Arc<Kernel>, mut queue: mpsc::Receiver<Message>) {
        while let Some(message) = queue.recv().await {
            if message.kind == "execute_request" {
                let trouble = Trouble::new("InvalidRequest", "cells are run on the shell socket");
                self.status(&message.header, "busy").await;
                self.reply(&self.control, &message, "execute_reply", &failed(&trouble)).await;
                self.status(&message.header, "idle").await;
                continue;
            }
            self.request(&self.control, &message, false).await;
        }
    }

    /// Answers a request. Says whether cells that wait behind it are to be given up.
    async fn request(&self, socket: &Socket, message: &Message, is_aborted: bool) -> bool {
        self.status(&message.header, "busy").await;
        let mut gives_up = false;
        let answer = match message.kind.as_str() {
            "execute_request" if is_aborted => Ok(Some(json!({"status": "aborted"}))),
            "execute_request" => self.execute(message).await.map(|(answer, stops)| {
                gives_up = stops;
                Some(answer)
            }),
            "kernel_info_request" => Ok(Some(profile::kernel_info(self.language))),
            "connect_request" => Ok(Some(self.connect())),
            "comm_info_request" => Ok(Some(json!({"status": "ok", "comms": {}}))),
            "comm_open" => self.refuse_comm(message).await.map(|()| None),
            // What belongs to no open comm means nothing.
            "comm_msg" | "comm_close" => Ok(None),
            "history_request" => {
                let own = self.own_if_open();
                lock(&self.history).answer(&message.content, own.as_ref().map(OwnSession::session)).map(Some)
            }
            "complete_request" | "inspect_request" | "is_complete_request" => self.look(message).await.map(Some),
            "interrupt_request" => {
                self.interrupt();
                Ok(Some(json!({"status": "ok"})))
            }
            "shutdown_request" => {
                message.content.flag("restart", false).map(|restart| Some(json!({"status": "ok", "restart": restart})))
            }
            other if other.ends_with("_request") => Err(Fault::new(format!("this kernel does not know `{other}`"))),
            other => {
                tracing::debug!(kind = other, "a message that means nothing here");
                Ok(None)
            }
        };
        let answer = answer.unwrap_or_else(|fault| {
            tracing::warn!(kind = message.kind, error = %fault, "a request was refused");
            Some(failed(&Trouble::from(&fault)))
        });
        if let Some(answer) = answer {
            let kind = message.kind.strip_suffix("_request").unwrap_or(&message.kind);
            let kind: String = format!("{kind}_reply").chars().take(100).collect();
            let is_over = kind == "shutdown_reply" && answer["status"] == "ok";
            self.reply(socket, message, &kind, &answer).await;
            if is_over {
                // All who listen are told.
                self.publish(&message.header, &kind, &answer).await;
            }
            self.status(&message.header, "idle").await;
            if is_over {
                self.stop.send_replace(true);
            }
            return gives_up;
        }
        self.status(&message.header, "idle").await;
        false
    }

    fn own_if_open(&self) -> Option<OwnSession> {
        self.opened.borrow().as_ref().and_then(|opened| opened.as_ref().ok().cloned())
    }

    fn connect(&self) -> Value {
        let ports = PORTS.iter().zip(self.ports).map(|(name, port)| ((*name).to_owned(), Value::from(port)));
        let mut content: Map<String, Value> = ports.collect();
        content.insert("status".to_owned(), "ok".into());
        Value::Object(content)
    }

    /// Closes what a client opens: nothing here speaks with widgets.
    async fn refuse_comm(&self, message: &Message) -> Result<(), Fault> {
        let comm = message.content.text("comm_id")?;
        self.publish(&message.header, "comm_close", &json!({"comm_id": comm, "data": {}})).await;
        Ok(())
    }

    async fn look(&self, message: &Message) -> Result<Value, Fault> {
        let own = match self.own().await {
            Ok(own) => own,
            Err(trouble) => return Ok(failed(&trouble)),
        };
        let (session, language, content) = (own.session(), self.language, &message.content);
        match message.kind.as_str() {
            "complete_request" => looks::complete(session, language, content).await,
            "inspect_request" => looks::inspect(session, language, content).await,
            _ => looks::is_complete(session, language, content).await,
        }
    }
}

/// The answer to what has failed.
pub(crate) fn failed(trouble: &Trouble) -> Value {
    let mut content = trouble.content();
    content.insert("status".to_owned(), "error".into());
    Value::Object(content)
}
