//! A kernel: its answers, independent of the transport of the messages.
//!
//! Requests of the shell channel are answered one after the other, as clients expect. Those of the control channel
//! (interrupt, shutdown) are answered at once. What a cell shows is published while it runs; a client that takes nothing
//! holds the cell up, and is cut off in the end.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use cellar_config::Folders;
use cellar_core::{sync::lock, text::describe};
use cellar_engine::{Language, background::Background};
use cellar_hub::{HubError, OwnSession, RunHandle};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    connection::PORTS,
    history::History,
    looks,
    message::{Channel, Fault, Message},
    profile,
};

/// Messages that wait for an answer.
pub(crate) const MESSAGES_MAX: usize = 4_096;
/// Time to wait for cells that were sent along with one that has failed.
const ALONG: Duration = Duration::from_millis(10);

/// Sends the messages of a kernel to its clients.
pub(crate) trait Outlet: Send + Sync {
    /// Publishes a message about a request, of which `parent` is the header, to all subscribers.
    fn publish<'a>(&'a self, parent: &'a Value, kind: &'a str, content: &'a Value) -> BoxFuture<'a, ()>;

    /// Answers a request, over the channel that it came by.
    fn reply<'a>(&'a self, message: &'a Message, kind: &'a str, content: &'a Value) -> BoxFuture<'a, ()>;

    /// Returns the client that answers requests for input of the cell that this message runs; none if no client does.
    fn answerer(&self, message: &Message) -> Option<u64>;

    /// Asks a client for input.
    fn ask<'a>(&'a self, peer: u64, parent: &'a Value, content: &'a Value) -> BoxFuture<'a, ()>;

    /// Returns the ports that clients reach the kernel at; none where they do not use ports.
    fn ports(&self) -> Option<[u16; PORTS.len()]>;
}

/// Failure of something other than a cell, in the form in which clients show errors.
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

    /// Returns the members that an error has in every message.
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

/// Session of a kernel: `None` while it is being opened, an error if it cannot be opened.
type Opened = Option<Result<OwnSession, Trouble>>;

/// State that all tasks of a kernel share.
pub(crate) struct Kernel {
    pub(crate) language: Language,
    pub(crate) folders: Folders,
    pub(crate) outlet: Box<dyn Outlet>,
    opened: watch::Sender<Opened>,
    /// Number of interrupts so far; it wraps.
    interrupts: watch::Sender<u64>,
    /// The run that is under way.
    pub(crate) run: Mutex<Option<RunHandle>>,
    pub(crate) asked: Mutex<VecDeque<Asked>>,
    pub(crate) history: Mutex<History>,
    /// True while it answers a request of the shell channel.
    is_busy: watch::Sender<bool>,
    /// Request of a client to end the kernel.
    pub(crate) stop: watch::Sender<Option<Stop>>,
}

/// Way in which a client ends a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// For good.
    Shutdown,
    /// To begin afresh.
    Restart,
}

/// A request for input that a cell waits for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: String,
    pub(crate) prompt: String,
    /// Header of the request that runs the cell.
    pub(crate) parent: Value,
    /// The client that answers.
    pub(crate) peer: u64,
    /// True if the client was asked.
    pub(crate) is_sent: bool,
}

/// Messages of the shell channel.
pub(crate) struct Shell {
    queue: mpsc::Receiver<Message>,
    /// Messages that waited when a cell failed, each with true if it was aborted then.
    waiting: VecDeque<(Message, bool)>,
}

impl Shell {
    async fn next(&mut self) -> Option<(Message, bool)> {
        match self.waiting.pop_front() {
            Some(next) => Some(next),
            None => self.queue.recv().await.map(|message| (message, false)),
        }
    }

    /// Aborts all cells that wait, and those that were sent along with them and have not arrived yet.
    pub(crate) async fn give_up(&mut self) {
        tokio::time::sleep(ALONG).await;
        while let Ok(message) = self.queue.try_recv() {
            self.waiting.push_back((message, false));
        }
        let cells = self.waiting.iter_mut().filter(|(message, _)| message.kind == "execute_request");
        cells.for_each(|(_, is_aborted)| *is_aborted = true);
    }
}

/// Senders of the channels' messages to the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    shell: mpsc::Sender<Message>,
    control: mpsc::Sender<Message>,
    stdin: mpsc::Sender<Message>,
}

impl Inbox {
    /// Hands a message to the kernel; returns false if the kernel has ended.
    ///
    /// # Cancel safety
    /// Cancel safe: the message is not handed over then.
    pub(crate) async fn put(&self, message: Message) -> bool {
        let channel = match message.channel {
            Channel::Shell => &self.shell,
            Channel::Control => &self.control,
            Channel::Stdin => &self.stdin,
        };
        channel.send(message).await.is_ok()
    }
}

impl Kernel {
    /// Starts a kernel, whose `tasks` answer the messages in its inbox. Its session is opened meanwhile: a guest may
    /// have to be baked first, and clients expect to hear from the kernel sooner.
    pub(crate) fn start(
        language: Language,
        folders: Folders,
        outlet: Box<dyn Outlet>,
        opening: impl Future<Output = Result<OwnSession, HubError>> + Send + 'static,
        tasks: &mut JoinSet<()>,
    ) -> (Arc<Kernel>, Inbox) {
        let kernel = Arc::new(Kernel {
            language,
            folders,
            outlet,
            opened: watch::Sender::new(None),
            interrupts: watch::Sender::new(0),
            run: Mutex::default(),
            asked: Mutex::default(),
            history: Mutex::default(),
            is_busy: watch::Sender::new(false),
            stop: watch::Sender::new(None),
        });
        let (shell, shell_queue) = mpsc::channel(MESSAGES_MAX);
        let (control, control_queue) = mpsc::channel(MESSAGES_MAX);
        let (stdin, stdin_queue) = mpsc::channel(MESSAGES_MAX);
        tasks.spawn(kernel.clone().answer_shell(shell_queue));
        tasks.spawn(kernel.clone().answer_control(control_queue));
        tasks.spawn(kernel.clone().take_input(stdin_queue));
        tasks.spawn(kernel.clone().open(opening));
        (kernel, Inbox { shell, control, stdin })
    }

    /// Opens the session, and publishes what its code writes between cells.
    async fn open(self: Arc<Kernel>, opening: impl Future<Output = Result<OwnSession, HubError>>) {
        let opened = async {
            let own = opening.await?;
            own.make_ready(&[self.language]).await.map(|()| own)
        };
        match opened.await {
            Ok(own) => {
                let mut background = own.session().background();
                self.opened.send_replace(Some(Ok(own)));
                while let Some(text) = background.next().await {
                    self.tell_background(text).await;
                }
            }
            Err(error) => {
                let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                let words = describe(&error);
                tracing::error!(error = words, "the session of this kernel cannot be opened");
                self.opened.send_replace(Some(Err(Trouble::new("CellarError", format!("{words}{hint}")))));
            }
        }
    }

    /// Returns true while it answers a request of the shell channel.
    pub(crate) fn is_busy(&self) -> bool {
        *self.is_busy.borrow()
    }

    /// Returns true if its session is open, or cannot be opened.
    pub(crate) fn is_open(&self) -> bool {
        self.opened.borrow().is_some()
    }

    /// Interrupts whatever runs; all state is kept.
    pub(crate) fn interrupt(&self) {
        self.interrupts.send_modify(|count| *count = count.wrapping_add(1));
        if let Some(run) = &*lock(&self.run) {
            run.cancel();
        }
    }

    /// Restarts the kernel: stops what runs, drops all names, keeps files. It publishes `starting` when it has begun,
    /// and not `restarting`, by which clients learn that a kernel has died.
    pub(crate) async fn restart(&self) {
        self.interrupt();
        if let Ok(own) = self.own().await {
            own.session().reset(self.language);
            lock(&self.asked).clear();
            lock(&self.history).restart(own.session().next_cell());
        }
        self.status(&json!({}), "starting").await;
        self.status(&json!({}), "idle").await;
    }

    /// Returns a receiver that changes when the kernel is interrupted from now on.
    pub(crate) fn interrupts(&self) -> watch::Receiver<u64> {
        self.interrupts.subscribe()
    }

    /// Waits for the session.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) async fn own(&self) -> Result<OwnSession, Trouble> {
        let mut opened = self.opened.subscribe();
        let opened = opened.wait_for(Option::is_some).await;
        let opened = opened.map(|opened| opened.clone()).unwrap_or_default();
        opened.unwrap_or_else(|| Err(Trouble::new("CellarError", "the kernel is ending")))
    }

    /// Publishes a message about a request.
    pub(crate) async fn publish(&self, parent: &Value, kind: &str, content: &Value) {
        self.outlet.publish(parent, kind, content).await;
    }

    pub(crate) async fn status(&self, parent: &Value, state: &str) {
        self.publish(parent, "status", &json!({"execution_state": state})).await;
    }

    /// Publishes the output of code that has outlived its cell.
    async fn tell_background(&self, text: Background) {
        let parent = lock(&self.history).parent(text.cell);
        let name = if text.is_stderr { "stderr" } else { "stdout" };
        self.publish(&parent, "stream", &json!({"name": name, "text": text.text})).await;
    }

    async fn answer_shell(self: Arc<Kernel>, queue: mpsc::Receiver<Message>) {
        let mut shell = Shell { queue, waiting: VecDeque::new() };
        while let Some((message, is_aborted)) = shell.next().await {
            self.request(&message, is_aborted, Some(&mut shell)).await;
        }
    }

    async fn answer_control(self: Arc<Kernel>, mut queue: mpsc::Receiver<Message>) {
        while let Some(message) = queue.recv().await {
            self.request(&message, false, None).await;
        }
    }

    /// Answers a request, which may come from the shell channel. Whoever reads that it is done finds the kernel idle.
    async fn request(&self, message: &Message, is_aborted: bool, mut shell: Option<&mut Shell>) {
        if shell.is_some() {
            self.is_busy.send_replace(true);
        }
        self.status(&message.header, "busy").await;
        let answer = match (message.kind.as_str(), shell.as_deref_mut()) {
            ("execute_request", Some(_)) if is_aborted => Ok(Some(json!({"status": "aborted"}))),
            ("execute_request", Some(shell)) => self.execute(message, shell).await.map(Some),
            ("execute_request", None) => Err(Fault::new("cells are run on the shell channel")),
            ("kernel_info_request", _) => Ok(Some(profile::kernel_info(self.language))),
            ("connect_request", _) => Ok(Some(self.connect())),
            ("comm_info_request", _) => Ok(Some(json!({"status": "ok", "comms": {}}))),
            ("comm_open", _) => self.refuse_comm(message).await.map(|()| None),
            // What belongs to no open comm means nothing.
            ("comm_msg" | "comm_close", _) => Ok(None),
            ("history_request", _) => {
                let own = self.own_if_open();
                lock(&self.history).answer(&message.content, own.as_ref().map(OwnSession::session)).map(Some)
            }
            ("complete_request" | "inspect_request" | "is_complete_request", _) => self.look(message).await.map(Some),
            ("interrupt_request", _) => {
                self.interrupt();
                Ok(Some(json!({"status": "ok"})))
            }
            ("shutdown_request", _) => {
                message.content.flag("restart", false).map(|restart| Some(json!({"status": "ok", "restart": restart})))
            }
            (other, _) if other.ends_with("_request") => {
                Err(Fault::new(format!("this kernel does not know `{other}`")))
            }
            (other, _) => {
                tracing::debug!(kind = other, "a message that means nothing here");
                Ok(None)
            }
        };
        let answer = answer.unwrap_or_else(|fault| {
            tracing::warn!(kind = message.kind, error = %fault, "a request was refused");
            Some(failed(&Trouble::from(&fault)))
        });
        let Some(answer) = answer else { return self.idle(message, shell.is_some()).await };
        let kind = message.kind.strip_suffix("_request").unwrap_or(&message.kind);
        let kind: String = format!("{kind}_reply").chars().take(100).collect();
        let is_over = kind == "shutdown_reply" && answer["status"] == "ok";
        self.outlet.reply(message, &kind, &answer).await;
        if is_over {
            // All who listen are told.
            self.publish(&message.header, &kind, &answer).await;
        }
        self.idle(message, shell.is_some()).await;
        if is_over {
            let stop = if answer["restart"] == true { Stop::Restart } else { Stop::Shutdown };
            self.stop.send_replace(Some(stop));
        }
    }

    /// Says that a request is done.
    async fn idle(&self, message: &Message, is_of_shell: bool) {
        if is_of_shell {
            self.is_busy.send_replace(false);
        }
        self.status(&message.header, "idle").await;
    }

    fn own_if_open(&self) -> Option<OwnSession> {
        self.opened.borrow().as_ref().and_then(|opened| opened.as_ref().ok().cloned())
    }

    fn connect(&self) -> Value {
        let ports = self.outlet.ports().into_iter().flat_map(|ports| PORTS.iter().zip(ports));
        let mut content: Map<String, Value> =
            ports.map(|(name, port)| ((*name).to_owned(), Value::from(port))).collect();
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
