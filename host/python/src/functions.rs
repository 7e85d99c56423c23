//! Tools, models, agents and hosts that are functions of the program: calls of cells that it answers itself, in the place of bridges.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use cellar_core::sync::lock;
use cellar_embed::{Answering, Program, over_bridges};
use cellar_engine::bridges::{Bridges, CallError, CallErrorKind, Response, answers_soon};
use cellar_hub::{Layer, ToolAnswer};
use futures::future::BoxFuture;
use pyo3::{prelude::*, types::PyBytes};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::spawn_blocking};

use crate::here;

/// Answer of the program: the text of JSON, or why the call failed.
type Reply = Result<String, String>;

/// Duration within which a tool has to answer on a thread of its own before it is called on the thread that waits for its cell.
const QUICK: Duration = Duration::from_micros(200);
/// Duration of a call on the thread that waits for its cell after which the next ones are made on threads of their own.
const SLOW: Duration = Duration::from_millis(1);
/// Number of those calls.
const APART: u32 = 100;
/// Number of them for a tool that answers later.
const ALWAYS: u32 = u32::MAX;

/// Calls that the program answers, and those that wait for it.
pub(crate) struct Functions {
    handler: Arc<Py<PyAny>>,
    /// Answers the call of a tool: see [`ToolCall::answer`].
    tools: Py<PyAny>,
    answering: Answering,
    open: Mutex<HashMap<String, oneshot::Sender<Reply>>>,
    count: AtomicU64,
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").field("open", &lock(&self.open).len()).finish_non_exhaustive()
    }
}

impl Functions {
    /// Functions by the names of the bridges that they answer for: `llm`, `agent`, `http`.
    pub(crate) fn new(handler: Arc<Py<PyAny>>, tools: Py<PyAny>, names: &[String]) -> Arc<Functions> {
        let answering = Answering::of(names);
        Arc::new(Functions { handler, tools, answering, open: Mutex::default(), count: AtomicU64::new(1) })
    }

    /// Answers a call; returns true if it was waiting.
    pub(crate) fn answer(&self, call: &str, reply: Reply) -> bool {
        lock(&self.open).remove(call).is_some_and(|sender| sender.send(reply).is_ok())
    }

    /// A call that waits for its answer.
    fn open(self: Arc<Functions>, tool: Option<Arc<ToolFunction>>) -> (Open, oneshot::Receiver<Reply>) {
        let call = format!("own-{}", self.count.fetch_add(1, Ordering::Relaxed));
        let (sender, reply) = oneshot::channel();
        lock(&self.open).insert(call.clone(), sender);
        (Open { functions: self, call, tool }, reply)
    }

    fn is_open(&self, call: &str) -> bool {
        lock(&self.open).contains_key(call)
    }

    fn tell_cancelled(&self, call: &str) {
        self.tell(&json!({ "type": "call_cancelled", "call": call }));
    }

    fn tell(&self, line: &Value) {
        let (handler, bytes) = (self.handler.clone(), serde_json::to_vec(line).unwrap_or_default());
        spawn_blocking(move || {
            Python::try_attach(|py| {
                if let Err(error) = handler.call1(py, (PyBytes::new(py, &bytes),)) {
                    error.write_unraisable(py, None);
                }
            })
        });
    }
}

/// Call that waits for its answer. Dropped before that, it says that nobody waits any more.
struct Open {
    functions: Arc<Functions>,
    call: String,
    /// The tool that it is for, unless it is for a bridge.
    tool: Option<Arc<ToolFunction>>,
}

impl Open {
    /// Returns true if the program can stop what answers it: a coroutine, and whatever answers for a bridge.
    fn can_be_stopped(&self) -> bool {
        self.tool.as_ref().is_none_or(|tool| tool.apart.load(Ordering::Relaxed) == ALWAYS)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if lock(&self.functions.open).remove(&self.call).is_some() && self.can_be_stopped() {
            self.functions.tell_cancelled(&self.call);
        }
    }
}

/// Asks the program.
async fn ask(functions: Arc<Functions>, bridge: &str, arguments: Value) -> Result<Value, CallError> {
    let (open, reply) = functions.open(None);
    open.functions.tell(&json!({ "type": "call", "call": open.call, "bridge": bridge, "arguments": arguments }));
    let failed = |message: String| CallError::new(CallErrorKind::Failed, format!("{bridge} failed: {message}"));
    match reply.await {
        Ok(Ok(text)) => serde_json::from_str(&text).map_err(|error| failed(error.to_string())),
        Ok(Err(message)) => Err(failed(message)),
        Err(_) => Err(CallError::new(CallErrorKind::Cancelled, format!("{bridge} was not answered"))),
    }
}

/// A tool, and the number of its next calls that are made on threads of their own.
struct ToolFunction {
    name: String,
    apart: AtomicU32,
}

/// Call of a tool that the program is to answer.
pub(crate) struct ToolCall {
    functions: Arc<Functions>,
    tool: Arc<ToolFunction>,
    call: String,
    arguments: String,
}

impl ToolCall {
    /// Calls the function. It returns the bytes of JSON, a text that says why it failed, or `None` when it answers later.
    ///
    /// # Errors
    /// An exception that ends programs, such as `KeyboardInterrupt`. The cell is told that its call has failed.
    pub(crate) fn answer(self, py: Python<'_>, is_here: bool) -> PyResult<()> {
        let ToolCall { functions, tool, call, arguments } = self;
        let began = Instant::now();
        let answered = functions.tools.call1(py, (&*call, &*tool.name, &*arguments));
        let took = began.elapsed();
        let answered = answered.and_then(|answer| answer.extract::<Option<Answer>>(py));
        let reply = match answered {
            Ok(Some(Answer::Json(json))) => String::from_utf8(json).map_err(|error| error.to_string()),
            Ok(Some(Answer::Failed(message))) => Err(message),
            Ok(None) => {
                tool.apart.store(ALWAYS, Ordering::Relaxed);
                // It may have been given up before the program knew of it.
                if !functions.is_open(&call) {
                    functions.tell_cancelled(&call);
                }
                return Ok(());
            }
            Err(error) => {
                functions.answer(&call, Err(error.to_string()));
                return Err(error);
            }
        };
        let apart = tool.apart.load(Ordering::Relaxed);
        if is_here && took > SLOW {
            tool.apart.store(APART, Ordering::Relaxed);
        } else if took < QUICK && apart > 0 && apart != ALWAYS {
            tool.apart.store(apart.saturating_sub(1), Ordering::Relaxed);
        }
        functions.answer(&call, reply);
        Ok(())
    }
}

/// Returned value of a function of the program.
#[derive(FromPyObject)]
enum Answer {
    Failed(String),
    Json(Vec<u8>),
}

/// Has the program answer a call of a tool: on the thread that waits for the cell where the tool has been quick, and otherwise on a thread
/// of the call's own.
async fn call_tool(
    functions: Arc<Functions>,
    tool: Arc<ToolFunction>,
    arguments: String,
) -> Result<Response, CallError> {
    let (open, reply) = functions.open(Some(tool.clone()));
    let failed = |kind, what: &str| CallError::new(kind, format!("tool `{}` {what}", tool.name));
    let apart = tool.apart.load(Ordering::Relaxed);
    let call = ToolCall { functions: open.functions.clone(), tool: tool.clone(), call: open.call.clone(), arguments };
    match if apart == 0 { here::leave(call) } else { Err(call) } {
        Ok(()) => answers_soon(),
        Err(call) => drop(spawn_blocking(move || {
            Python::try_attach(|py| {
                if let Err(error) = call.answer(py, false) {
                    error.write_unraisable(py, None);
                }
            })
        })),
    }
    match reply.await {
        Ok(Ok(json)) => Ok(Response::Json(json)),
        Ok(Err(message)) => Err(failed(CallErrorKind::Failed, &format!("failed: {message}"))),
        Err(_) => Err(failed(CallErrorKind::Cancelled, "was not answered: the caller has gone")),
    }
}

impl Program for Functions {
    fn answering(&self) -> Answering {
        self.answering
    }

    fn ask(
        self: Arc<Functions>,
        bridge: &'static str,
        arguments: Value,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        Box::pin(ask(self, bridge, arguments))
    }
}

/// Layer over the bridges of a hub. The hub goes with its connection, which keeps the functions.
#[derive(Debug)]
pub(crate) struct OverBridges(pub(crate) Weak<Functions>);

impl Layer for OverBridges {
    fn over(&self, inner: Arc<dyn Bridges>) -> Arc<dyn Bridges> {
        over_bridges(inner, self.0.clone())
    }

    fn tool(&self, name: &str) -> Option<ToolAnswer> {
        let functions = self.0.clone();
        let tool = Arc::new(ToolFunction { name: name.to_owned(), apart: AtomicU32::new(1) });
        Some(Box::new(move |arguments, _| match functions.upgrade() {
            Some(functions) => Box::pin(call_tool(functions, tool.clone(), arguments)),
            None => Box::pin(async { Err(CallError::new(CallErrorKind::Cancelled, "the sandbox has gone")) }),
        }))
    }
}
