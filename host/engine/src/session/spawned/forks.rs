//! Forks that cells make of their own session: each is a copy of its live state, in which code or an agent runs.
//!
//! A fork has what its session is granted and no more: the two draw on the same budgets of bridges, of calls at a time
//! and, where they share a folder, of disk. It ends with what it was made for, with the run that made it when that fails
//! or is stopped, and with its session.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use cellar_core::{
    cell::{Cell, Language},
    event::EventKind,
    limits::{AGENT_DEPTH_MAX, FORK_RESULT_BYTES_MAX, FORK_RESULTS_MAX},
    outcome::{Failure, FailureKind},
    sync::lock,
    text::describe,
};
use cellar_results::result::RunResult;
use futures::{Stream, StreamExt};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    task::AbortHandle,
};

use crate::{
    contract::{
        bridge::{AgentCall, Call, CallError, CallErrorKind, Response},
        error::Error,
    },
    kernel::{calls::Site, events::Hearer, scheduling::StopFlag},
    session::{Session, granted::Caller, trees},
};

/// Tells what happens in a fork: to the run of the cell that made it, and once that cell has ended, to that of the latest
/// cell of the session that made it.
#[derive(Debug)]
pub(crate) struct Teller {
    fork_id: String,
    maker: Option<Hearer>,
    latest: Arc<Mutex<Option<Hearer>>>,
}

impl Teller {
    pub(crate) fn new(fork_id: String, maker: Option<Hearer>, latest: Arc<Mutex<Option<Hearer>>>) -> Teller {
        Teller { fork_id, maker, latest }
    }

    /// Events of a run of the fork. Each is sent to the additional receiver before it is read.
    pub(crate) fn telling(
        self: Arc<Teller>,
        events: impl Stream<Item = EventKind> + Send,
    ) -> impl Stream<Item = EventKind> + Send {
        events.then(move |kind| {
            let teller = self.clone();
            async move {
                teller.tell(&kind).await;
                kind
            }
        })
    }

    /// Sends an event to the first receiver that exists, and waits while that is behind. Events without a receiver are only
    /// in the fork's history.
    async fn tell(&self, kind: &EventKind) {
        let (fork, kind) = match kind {
            EventKind::RunStarted { .. } | EventKind::RunFinished { .. } | EventKind::InputRequest { .. } => return,
            EventKind::Fork { fork, kind, .. } => (fork.clone(), kind.clone()),
            kind => (self.fork_id.clone(), Box::new(kind.clone())),
        };
        let mut untold = Box::new(EventKind::Fork { index: 0, fork, kind });
        let latest = lock(&self.latest).clone();
        for hearer in [&self.maker, &latest].into_iter().flatten() {
            if let EventKind::Fork { index, .. } = &mut *untold {
                *index = hearer.index;
            }
            match hearer.hear(*untold).await {
                Ok(()) => return,
                Err(event) => untold = event,
            }
        }
    }
}

/// Request for a fork.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Order {
    message: Option<String>,
    code: Option<String>,
    language: Option<String>,
    timeout: Option<u64>,
    agent_type: Option<String>,
    model: Option<String>,
    context: Option<String>,
    label: Option<String>,
    schema: Option<Value>,
}

/// Work of a fork: a cell or an agent.
enum Job {
    Cell(Cell),
    Agent(AgentCall),
}

impl Job {
    /// The type of the agent that works in the fork.
    fn agent_type(&self) -> Option<&str> {
        match self {
            Job::Cell(_) => None,
            Job::Agent(asked) => Some(&asked.agent_type),
        }
    }
}

/// The forks that a session's cells have made. A session that makes none has an empty list.
#[derive(Debug, Default)]
pub(crate) struct Forks(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    count: u32,
    /// Oldest first.
    forks: VecDeque<Fork>,
}

#[derive(Debug)]
struct Fork {
    id: String,
    memory_key: String,
    /// Brings what it came to.
    ended: watch::Receiver<Option<Arc<Ended>>>,
    was_gathered: bool,
    task: AbortHandle,
}

impl Drop for Fork {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Result of a fork that has ended.
#[derive(Debug)]
struct Ended {
    /// Result for `gather_all`, without the history.
    result: Map<String, Value>,
    history: Vec<Value>,
    /// Context that the fork remembered when it ended.
    context: Value,
}

impl Forks {
    /// Ends all forks.
    pub(crate) fn close(&self) {
        lock(&self.0).forks.clear();
    }
}

fn invalid(message: impl Into<String>) -> CallError {
    CallError::new(CallErrorKind::Invalid, message)
}

impl Order {
    fn job(self, of_caller: Option<Language>) -> Result<Job, CallError> {
        match (self.message, self.code) {
            (None, Some(code)) => {
                let agents_own = [
                    ("agent_type", self.agent_type.is_some()),
                    ("model", self.model.is_some()),
                    ("context", self.context.is_some()),
                    ("label", self.label.is_some()),
                    ("schema", self.schema.is_some()),
                ];
                if let Some((name, _)) = agents_own.iter().find(|(_, is_there)| *is_there) {
                    return Err(invalid(format!("`/{name}` only has a meaning beside `message`")));
                }
                let language = match &self.language {
                    Some(code) => Language::from_code(code)
                        .ok_or_else(|| invalid(format!("`/language`: expected \"py\" or \"js\", found {code:?}")))?,
                    None => of_caller.ok_or_else(|| invalid("`/language`: expected a value, found nothing"))?,
                };
                let timeout = match self.timeout {
                    None => None,
                    Some(seconds @ 1..=600) => Some(Duration::from_secs(seconds)),
                    Some(found) => {
                        return Err(invalid(format!("`/timeout`: expected an integer from 1 to 600, found {found}")));
                    }
                };
                Ok(Job::Cell(Cell { timeout, ..Cell::new(language, code) }))
            }
            (Some(prompt), None) => {
                for (name, is_there) in [("language", self.language.is_some()), ("timeout", self.timeout.is_some())] {
                    if is_there {
                        return Err(invalid(format!("`/{name}` only has a meaning beside `code`")));
                    }
                }
                Ok(Job::Agent(AgentCall {
                    prompt,
                    agent_type: self.agent_type.unwrap_or_else(|| "task".to_owned()),
                    model: self.model,
                    context: self.context,
                    label: self.label,
                    schema: self.schema.map(|schema| schema.to_string()),
                }))
            }
            _ => Err(invalid("expected either `message`, for an agent, or `code`, to run")),
        }
    }
}

impl Session {
    /// Makes a fork and lets it run; returns the handle for its maker.
    pub(crate) async fn spawn_fork(&self, order: Order, site: Site) -> Result<Value, CallError> {
        let limit = |message: String| CallError::new(CallErrorKind::Limit, message);
        if self.is_process() {
            return Err(CallError::new(
                CallErrorKind::Denied,
                "a process cannot be forked; the cell that started it can",
            ));
        }
        let depth = site.depth.saturating_add(1);
        if depth > AGENT_DEPTH_MAX {
            let message = format!("the fork would be nested {depth} deep, forks and agents may be {AGENT_DEPTH_MAX}");
            return Err(limit(message));
        }
        let job = order.job(self.source(site.cell).map(|source| source.language))?;
        let forks = self.limits().forks;
        if forks == 0 {
            return Err(CallError::new(CallErrorKind::Denied, "forks are off (the limit `forks` is 0)"));
        }
        let Ok(permit) = self.inner.shared.forks_left.clone().try_acquire_owned() else {
            let message = format!("at most {forks} forks run at the same time; gather some first (the limit `forks`)");
            return Err(limit(message));
        };
        let number = {
            let mut registry = lock(&self.inner.forks.0);
            registry.count = registry.count.saturating_add(1);
            registry.count
        };
        let memory_key = format!("{}::fork::{number}", self.id());
        let id = self.inner.role.fork_id().map_or_else(|| format!("fork-{number}"), |own| format!("{own}.{number}"));
        let fork = self.fork_within(memory_key.clone(), id.clone(), job.agent_type(), site.hearer).await;
        let fork = fork.map_err(|error| refusal(&error))?;
        let handle = json!({
            "fork_id": id,
            "parent_fork_id": self.inner.role.fork_id(),
            "depth": depth,
            "source_memory_key": self.id(),
            "memory_key": memory_key,
            "status": "running",
        });
        let (sender, ended) = watch::channel(None);
        let agent = self.lineage.agent().map(str::to_owned);
        let caller = Caller { session: fork, cell: site.cell, depth: site.depth, agent, wait: None };
        let work = Work { job, caller, keeper: self.clone(), handle: handle.clone(), permit };
        let task = tokio::spawn(work.run(site.stop, sender)).abort_handle();
        let mut registry = lock(&self.inner.forks.0);
        registry.forks.push_back(Fork { id, memory_key, ended, was_gathered: false, task });
        registry.make_room();
        Ok(handle)
    }

    /// Waits for forks.
    pub(crate) async fn gather_forks(&self, ids: &Value, with_history: bool) -> Result<Value, CallError> {
        let waiting = {
            let mut registry = lock(&self.inner.forks.0);
            let wanted = match ids {
                Value::Null => None,
                Value::Array(items) => Some(items.iter().map(id_of).collect::<Result<Vec<_>, _>>()?),
                one => Some(vec![id_of(one)?]),
            };
            if let Some(wanted) = &wanted
                && let Some(id) = wanted.iter().find(|id| !registry.forks.iter().any(|fork| fork.id == **id))
            {
                let known: Vec<&str> = registry.forks.iter().map(|fork| fork.id.as_str()).collect();
                let known = if known.is_empty() { "there is none".to_owned() } else { known.join(", ") };
                let message = format!("no fork `{id}` of this session is known; known are: {known}");
                return Err(CallError::new(CallErrorKind::Unknown, message));
            }
            let is_wanted = |fork: &Fork| match &wanted {
                Some(ids) => ids.contains(&fork.id.as_str()),
                None => !fork.was_gathered,
            };
            registry.forks.iter_mut().filter(|fork| is_wanted(fork)).map(Fork::gather).collect::<Vec<_>>()
        };
        let mut all = Map::new();
        for (id, mut ended) in waiting {
            let ended = ended.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
            let Some(ended) = ended else {
                return Err(CallError::new(CallErrorKind::Cancelled, format!("fork `{id}` ended with its session")));
            };
            let mut result = ended.result.clone();
            result.insert("history_included".to_owned(), with_history.into());
            if with_history {
                result.insert("history".to_owned(), ended.history.clone().into());
            }
            all.insert(id, result.into());
        }
        Ok(all.into())
    }

    /// Returns the context that the fork with this memory key remembered when it ended.
    pub(crate) fn fork_context(&self, key: &str) -> Option<Value> {
        let registry = lock(&self.inner.forks.0);
        let fork = registry.forks.iter().find(|fork| fork.memory_key == key)?;
        let ended = fork.ended.borrow();
        ended.as_ref().map(|ended| ended.context.clone())
    }
}

/// The id in what `gather_all` was given: an id or a handle.
fn id_of(value: &Value) -> Result<&str, CallError> {
    let id = value.as_str().or_else(|| value.get("fork_id")?.as_str());
    id.ok_or_else(|| invalid("`/fork_ids`: expected ids of forks, or their handles"))
}

/// Error for a fork that could not be made, in words for the cell.
fn refusal(error: &Error) -> CallError {
    let message = match error {
        Error::Deadlock { .. } => format!(
            "cannot copy a kernel that is held: {error}; await the call: `await ….aio(…)` in Python, `await …(…)` in \
             JavaScript"
        ),
        // What the host says may name a folder of the host.
        Error::Workspace(_) | Error::Mount(_) => {
            tracing::warn!(error = describe(error), "no fork");
            "the session's folders cannot be copied or granted again".to_owned()
        }
        _ => describe(error),
    };
    CallError::new(CallErrorKind::Failed, message)
}

impl Fork {
    /// Notes that it is gathered.
    fn gather(&mut self) -> (String, watch::Receiver<Option<Arc<Ended>>>) {
        self.was_gathered = true;
        (self.id.clone(), self.ended.clone())
    }
}

impl Registry {
    /// Forgets what came of old forks: what was gathered first, never one that runs.
    fn make_room(&mut self) {
        let has_ended = |fork: &Fork| fork.ended.borrow().is_some();
        while self.forks.iter().filter(|fork| has_ended(fork)).count() > FORK_RESULTS_MAX {
            let gathered = self.forks.iter().position(|fork| fork.was_gathered && has_ended(fork));
            let Some(oldest) = gathered.or_else(|| self.forks.iter().position(has_ended)) else { return };
            self.forks.remove(oldest);
        }
    }
}

/// A fork at work.
struct Work {
    job: Job,
    /// The fork, and who made it.
    caller: Caller,
    /// The session that made it, where what its agent says is kept.
    keeper: Session,
    handle: Value,
    permit: OwnedSemaphorePermit,
}

/// Result of the work in a fork: its response and its value.
type Outcome = Result<(Value, Value), Trouble>;

/// Result of the work, and the history of the fork until then.
struct Ran {
    outcome: Outcome,
    history: Vec<Value>,
}

/// Reason for which the work in a fork failed, and its response until then.
struct Trouble {
    failure: Failure,
    response: Value,
}

impl Trouble {
    fn new(name: &str, message: impl Into<String>) -> Trouble {
        Trouble { failure: Failure::new(FailureKind::Raised, name, message), response: Value::Null }
    }

    /// Adds what `gather_all` gives of it. What has no place in a cell has none here.
    fn tell(self, result: &mut Map<String, Value>) {
        let Trouble { failure, response } = self;
        let fields = [
            ("status", "error".into()),
            ("response", response),
            ("result", Value::Null),
            ("error_type", failure.name.into()),
            ("error_message", failure.message.into()),
            ("error_line", failure.line.into()),
            ("error_column", failure.column.into()),
            ("error_snippet", failure.snippet.into()),
            ("error_traceback", failure.traceback.into()),
        ];
        result.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    }
}

impl Work {
    async fn run(self, stop: Option<Arc<StopFlag>>, sender: watch::Sender<Option<Arc<Ended>>>) {
        let Work { job, caller, keeper, handle, permit } = self;
        let fork = caller.session.clone();
        let work = async {
            match job {
                Job::Cell(cell) => run_cell(&fork.for_agent(caller.depth.saturating_add(1)), cell).await,
                Job::Agent(asked) => {
                    let outcome = ask_agent(&keeper, asked, caller).await;
                    Ran { outcome, history: fork.messages(0) }
                }
            }
        };
        let stopped = async {
            match stop {
                Some(stop) => stop.stopped().await,
                None => std::future::pending().await,
            }
        };
        let ran = tokio::select! {
            ran = work => ran,
            () = stopped => Ran {
                outcome: Err(Trouble::new("CellInterrupted", "the run that made the fork was stopped")),
                history: fork.messages(0),
            },
        };
        let Ran { outcome, history } = ran;
        let Value::Object(mut result) = handle else { return };
        let outcome = match outcome.map(|(response, value)| (value.to_string().len(), response, value)) {
            Err(trouble) => Err(trouble),
            Ok((..=FORK_RESULT_BYTES_MAX, response, value)) => Ok((response, value)),
            Ok((bytes, ..)) => {
                let message = format!(
                    "the result has {bytes} bytes of JSON, at most {FORK_RESULT_BYTES_MAX} are gathered; let the fork \
                     write it to a file of a granted folder"
                );
                Err(Trouble::new("ValueError", message))
            }
        };
        match outcome {
            Ok((response, value)) => {
                result.insert("status".to_owned(), "completed".into());
                result.insert("response".to_owned(), response);
                result.insert("result".to_owned(), value);
            }
            Err(trouble) => trouble.tell(&mut result),
        }
        result.insert("history_count".to_owned(), history.len().into());
        let context = fork.context();
        drop(permit);
        // Nobody waits when the session has gone.
        let _ = sender.send(Some(Arc::new(Ended { result, history, context })));
    }
}

/// Runs a cell in a fork.
async fn run_cell(fork: &Session, cell: Cell) -> Ran {
    let language = cell.language;
    let mut run = match fork.run(vec![cell]) {
        Ok(run) => run,
        Err(error) => {
            let outcome = Err(Trouble::new("KernelError", describe(&error)));
            return Ran { outcome, history: fork.messages(0) };
        }
    };
    let mut result = RunResult::with_policy(fork.output_policy());
    let (mut shown, mut number) = (None, 0);
    while let Some(event) = run.next().await {
        result.apply(&event);
        match event.kind {
            EventKind::Display { data, .. } => shown = Some(data),
            EventKind::CellStarted { cell, .. } => number = cell.0,
            _ => {}
        }
    }
    // What is asked of the fork after its cell is no part of what happened in it.
    let history = fork.messages(0);
    let response = text_of(&result);
    let failure = result.cells.first().and_then(|cell| cell.failure.clone());
    if let Some(failure) = failure {
        return Ran { outcome: Err(Trouble { failure, response }), history };
    }
    let value = match shown.as_ref().map(|bundle| (bundle.json(), bundle.visible_text())) {
        Some((Some(json), _)) if trees::count(json) > trees::VALUES_MAX => {
            return Ran { outcome: Err(too_many(json)), history };
        }
        Some((Some(json), _)) => trees::read(json),
        Some((None, Some(text))) => Some(value_of(fork, language, number, text).await),
        Some((None, None)) | None => None,
    };
    Ran { outcome: Ok((response.clone(), value.unwrap_or(response))), history }
}

/// Error for a result with more values than `gather_all` accepts.
fn too_many(json: &str) -> Trouble {
    let (count, most) = (trees::count(json), trees::VALUES_MAX);
    let message = format!(
        "the result has {count} values, at most {most} are gathered; let the fork write it to a file of a granted folder"
    );
    Trouble::new("ValueError", message)
}

/// Returns a cell's value, if its print does not tell it. Both languages keep it under a name.
async fn value_of(fork: &Session, language: Language, cell: u32, text: &str) -> Value {
    if language == Language::Python
        && let Ok(Some(bundle)) = fork.value(language, &format!("_{cell}")).await
        && let Some(value) = bundle.json().and_then(trees::read)
    {
        return value;
    }
    if language == Language::JavaScript
        && let Some(value) = json_of_latest(fork).await
        && let printed = value.to_string()
        // A cell may have put something else under the name.
        && (value == text || printed == text)
    {
        return value;
    }
    text.into()
}

/// Time to read a value as JSON.
const READING_TIMEOUT: Duration = Duration::from_secs(1);

/// The value of the latest cell in JavaScript, where JSON can say what it is.
async fn json_of_latest(fork: &Session) -> Option<Value> {
    let cell = Cell { timeout: Some(READING_TIMEOUT), ..Cell::new(Language::JavaScript, "JSON.stringify(_)") };
    let mut run = Session { teller: None, ..fork.clone() }.run(vec![cell]).ok()?;
    let mut value = None;
    while let Some(event) = run.next().await {
        if let EventKind::Display { data, is_value: true, .. } = event.kind {
            value = data.text("text/plain").and_then(trees::read);
        }
    }
    value
}

/// Text that a run printed and displayed.
fn text_of(result: &RunResult) -> Value {
    result.cells.iter().map(|cell| cell.output().text).collect::<String>().trim_end().into()
}

/// Calls an agent to work in a fork.
async fn ask_agent(keeper: &Session, asked: AgentCall, caller: Caller) -> Outcome {
    let bridges = keeper.inner.config.bridges.clone();
    let future = bridges.call(Call::Agent(asked.clone()), caller);
    let response = keeper.clone().keeping_output(asked, future).future.await;
    let response = response.map_err(|error| Trouble::new("BridgeError", error.message))?;
    let value: Value = match response {
        Response::Text(text) => text.into(),
        Response::Json(text) if trees::count(&text) > trees::VALUES_MAX => return Err(too_many(&text)),
        Response::Json(text) => trees::read(&text).unwrap_or_else(|| text.into()),
        _ => Value::Null,
    };
    Ok((value.clone(), value))
}
