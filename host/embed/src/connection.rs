//! Connections: requests leave as lines, and answers come back to whoever waits for them, by their ids.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{Arc, Mutex},
};

use cellar_core::sync::lock;
use cellar_hub::{Line, LineRead, Lines};
use cellar_wire::Answer;
use futures::stream;
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, mpsc},
};

use crate::{EmbedError, Handler, Local, place::InProcess};

/// Requests that wait to be served.
const REQUESTS_MAX: usize = 256;
/// Answers to one request that wait to be read. Further ones hold up the connection, and so its guests.
const ANSWERS_MAX: usize = 256;

/// An answer, as it came.
#[derive(Debug)]
pub enum Received {
    /// Line of a hub in this process.
    Line(Box<Line>),
    /// Text of a server.
    Text(String),
}

impl Received {
    /// Returns the answer as JSON.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Received::Line(line) => serde_json::to_vec(&line.answer).unwrap_or_default(),
            Received::Text(text) => text.into_bytes(),
        }
    }
}

/// Recipient of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// Maker of a request. Events need not be there for those that want the last answer alone.
    Request {
        /// Id of the request.
        id: String,
        /// True for an event, which is not the last answer.
        is_event: bool,
    },
    /// The handler of calls.
    Handler,
    /// Nobody here.
    Nobody,
}

impl Recipient {
    /// Returns the recipient of an answer.
    pub fn of(answer: &Answer) -> Recipient {
        let request = |id: &Option<String>| match id {
            Some(id) => Recipient::Request { id: id.clone(), is_event: false },
            None => Recipient::Nobody,
        };
        match answer {
            Answer::Event { id, .. } => Recipient::Request { id: id.clone(), is_event: true },
            Answer::Result { id, .. } => Recipient::Request { id: id.clone(), is_event: false },
            Answer::Opened { id, .. }
            | Answer::Sessions { id, .. }
            | Answer::Done { id }
            | Answer::Outputs { id, .. }
            | Answer::Value { id, .. }
            | Answer::States { id, .. }
            | Answer::Stubs { id, .. }
            | Answer::Origins { id, .. }
            | Answer::Error { id, .. } => request(id),
            Answer::Call { .. } | Answer::CallCancelled { .. } | Answer::Background { .. } => Recipient::Handler,
            Answer::Hello { .. } => Recipient::Nobody,
        }
    }
}

/// Requests that wait for answers, by their ids.
#[derive(Default)]
struct Routes {
    /// `None` once the connection has ended.
    waiting: Option<HashMap<String, Route>>,
}

/// Way of the answers to one request.
enum Route {
    /// All of them, to a mailbox.
    Mailbox(mpsc::Sender<Received>),
    /// The last one.
    Last(Last),
}

/// Function that is called with an answer, or with `None` when there will be none.
type Callback = Box<dyn FnOnce(Option<Vec<u8>>) + Send>;

/// Callback that waits for the last answer to a request.
struct Last(Option<Callback>);

impl Last {
    fn call(&mut self, answer: Option<Vec<u8>>) {
        if let Some(callback) = self.0.take() {
            callback(answer);
        }
    }
}

impl Drop for Last {
    /// Says that the connection has ended.
    fn drop(&mut self) {
        self.call(None);
    }
}

/// Sends answers to where they belong.
pub(crate) struct Router {
    routes: Arc<Mutex<Routes>>,
    handler: Handler,
}

impl Router {
    pub(crate) async fn route(&self, recipient: Recipient, received: Received) {
        match recipient {
            Recipient::Request { id, is_event } => match self.route_of(&id, is_event) {
                // Whoever asked may have gone.
                Some(Route::Mailbox(answers)) => drop(answers.send(received).await),
                Some(Route::Last(mut last)) => last.call(Some(received.bytes())),
                None => {}
            },
            Recipient::Handler => (self.handler)(received.bytes()),
            Recipient::Nobody => {}
        }
    }

    /// The way of an answer; that of a last one is used up.
    fn route_of(&self, id: &str, is_event: bool) -> Option<Route> {
        let mut routes = lock(&self.routes);
        let waiting = routes.waiting.as_mut()?;
        match waiting.get(id)? {
            Route::Mailbox(answers) => Some(Route::Mailbox(answers.clone())),
            Route::Last(_) if is_event => None,
            Route::Last(_) => waiting.remove(id),
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // Callbacks are called without the lock.
        let waiting = lock(&self.routes).waiting.take();
        drop(waiting);
    }
}

/// Request that was not sent.
#[derive(Debug)]
pub enum SendError {
    /// Too many wait to be served. This is the line; [`Connection::ready`] waits.
    Full(Vec<u8>),
    /// The connection has ended.
    Closed(EmbedError),
}

/// Carrier of the requests and answers of one sandbox and its forks. It ends when it is dropped.
pub struct Connection {
    /// Its sessions, unless a server has them.
    local: Option<Local>,
    requests: Mutex<Option<mpsc::Sender<io::Result<LineRead>>>>,
    routes: Arc<Mutex<Routes>>,
    process: u32,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("is_local", &self.local.is_some()).finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection, what sends answers to where they belong, and the requests to be carried.
    pub(crate) fn new(
        local: Option<Local>,
        handler: Handler,
    ) -> (Connection, Router, mpsc::Receiver<io::Result<LineRead>>) {
        let (requests, waiting) = mpsc::channel(REQUESTS_MAX);
        let routes = Arc::new(Mutex::new(Routes { waiting: Some(HashMap::new()) }));
        let router = Router { routes: routes.clone(), handler };
        let requests = Mutex::new(Some(requests));
        (Connection { local, requests, routes, process: std::process::id() }, router, waiting)
    }

    pub(crate) fn in_process(
        handle: &Handle,
        local: Local,
        lines: Lines<InProcess>,
        mut queue: mpsc::Receiver<Line>,
        handler: Handler,
    ) -> Connection {
        let (connection, router, mut waiting) = Connection::new(Some(local), handler);
        handle.spawn(lines.serve(stream::poll_fn(move |cx| waiting.poll_recv(cx))));
        handle.spawn(async move {
            while let Some(line) = queue.recv().await {
                let recipient = Recipient::of(&line.answer);
                router.route(recipient, Received::Line(Box::new(line))).await;
            }
        });
        connection
    }

    fn sender(&self) -> Result<mpsc::Sender<io::Result<LineRead>>, EmbedError> {
        EmbedError::check_process(self.process)?;
        lock(&self.requests).clone().ok_or_else(EmbedError::closed)
    }

    /// Sends a request, one line without its end.
    ///
    /// # Errors
    /// The connection has ended, or too many requests wait.
    pub fn send(&self, line: Vec<u8>) -> Result<(), SendError> {
        let requests = self.sender().map_err(SendError::Closed)?;
        match requests.try_send(Ok(LineRead::Whole(line))) {
            Err(mpsc::error::TrySendError::Full(Ok(LineRead::Whole(line)))) => Err(SendError::Full(line)),
            Err(_) => Err(SendError::Closed(EmbedError::closed())),
            Ok(()) => Ok(()),
        }
    }

    /// Waits until a request can be sent, or the connection has ended.
    ///
    /// # Cancel safety
    /// Dropped, it has done nothing.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        let requests = self.sender();
        async move {
            if let Ok(requests) = requests {
                drop(requests.reserve().await);
            }
        }
    }

    /// Opens a mailbox for all answers to the request that will have this id.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn mailbox(&self, id: &str) -> Result<Mailbox, EmbedError> {
        let (answers, receiver) = mpsc::channel(ANSWERS_MAX);
        self.wait_for(id, Route::Mailbox(answers))?;
        let (routes, process) = (self.routes.clone(), self.process);
        Ok(Mailbox { id: id.to_owned(), routes, process, answers: AsyncMutex::new(receiver) })
    }

    /// Has `callback` called with the last answer to the request that will have this id, or with `None` when the connection
    /// ends before that. It is called by a task, and must not block.
    ///
    /// # Errors
    /// The connection has ended; `callback` was called with `None`.
    pub fn on_answer(
        &self,
        id: &str,
        callback: impl FnOnce(Option<Vec<u8>>) + Send + 'static,
    ) -> Result<(), EmbedError> {
        self.wait_for(id, Route::Last(Last(Some(Box::new(callback)))))
    }

    fn wait_for(&self, id: &str, route: Route) -> Result<(), EmbedError> {
        EmbedError::check_process(self.process)?;
        let mut routes = lock(&self.routes);
        let Some(waiting) = routes.waiting.as_mut() else {
            drop(routes);
            return Err(EmbedError::closed());
        };
        let before = waiting.insert(id.to_owned(), route);
        drop(routes);
        drop(before);
        Ok(())
    }

    /// Answers a call of a bridge that the handler was called with, by JSON or by why it failed. Returns true if it was waiting.
    ///
    /// # Errors
    /// This process is a child of the one that has it.
    pub fn answer(&self, call: &str, result: &[u8], error: Option<String>) -> Result<bool, EmbedError> {
        EmbedError::check_process(self.process)?;
        let reply = match error {
            Some(error) => Err(error),
            None => serde_json::from_slice(result).map_err(|error| error.to_string()),
        };
        Ok(self.local.as_ref().is_some_and(|local| local.functions.answer(call, reply)))
    }

    /// Takes no more requests; runs that are under way end.
    pub fn close(&self) {
        if self.process == std::process::id() {
            lock(&self.requests).take();
        }
    }

    /// Its sessions; `None` if a server has them.
    pub fn local(&self) -> Option<Local> {
        self.local.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // In a process that was forked nobody is there to hear of it, and a lock may be held for ever.
        if self.process != std::process::id() {
            std::mem::forget((lock(&self.requests).take(), self.local.take()));
        }
    }
}

/// Answers to one request.
pub struct Mailbox {
    id: String,
    routes: Arc<Mutex<Routes>>,
    process: u32,
    answers: AsyncMutex<mpsc::Receiver<Received>>,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Mailbox {
    /// Waits for the next answer; `None` when the connection has ended.
    ///
    /// # Cancel safety
    /// Dropped, it has taken none.
    pub async fn take(&self) -> Option<Vec<u8>> {
        self.answers.lock().await.recv().await.map(Received::bytes)
    }

    /// Waits for the next answer, and takes those with it that are there too, `count_max` in all. None, when the connection has
    /// ended.
    ///
    /// # Cancel safety
    /// Dropped, it has taken none.
    pub async fn take_many(&self, count_max: usize) -> Vec<Vec<u8>> {
        let mut received = Vec::new();
        self.answers.lock().await.recv_many(&mut received, count_max).await;
        received.into_iter().map(Received::bytes).collect()
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let mut routes = lock(&self.routes);
            let route = routes.waiting.as_mut().and_then(|waiting| waiting.remove(&self.id));
            drop(routes);
            drop(route);
        }
    }
}
