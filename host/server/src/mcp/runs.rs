//! Runs that a call of `eval` began: followed to their end, told of, and asked for what only the client can answer.
//!
//! A cell that asks holds its call up. Clients of the protocols before 2026-07-28 are asked by a request while the call is
//! under way. Those of later ones are told that input is required, by the answer of the call, and come back with it: until
//! then the run is kept by a name that nobody can guess. Read [`Following::go_on`] first.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use cellar_engine::EventKind;
use cellar_hub::{Delivery, Reader, RunHandle};
use rmcp::{
    model::{
        ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
        InputRequest, InputRequests, InputRequiredResult, InputResponses, ProgressNotificationParam, ServerRequest,
    },
    service::{PeerRequestOptions, RequestContext, RequestHandle, RoleServer, ServiceError},
};
use tokio::{task::AbortHandle, time::Instant};

use crate::tenant::minted;

/// How often a client hears of a run that goes on.
const PROGRESS: Duration = Duration::from_secs(5);
/// Characters of the last line that it hears.
const LINE_CHARACTERS: usize = 200;
/// Characters of a prompt that it is shown.
const PROMPT_CHARACTERS: usize = 4_000;
/// Runs of a tenant that are kept until their clients come back.
const WAITING_MAX: usize = 256;
/// How long such a run is kept when nobody came while it waited for input: long enough to fetch what it came to.
const WAITING_GRACE: Duration = Duration::from_secs(60);
/// The member of an answer that has the line.
const LINE: &str = "line";

/// How a client is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    /// It did not say that it can be.
    Never,
    /// By a request while its own is under way.
    Meanwhile,
    /// By an answer to its request, which it then makes again.
    Again,
}

impl Asking {
    fn of(context: &RequestContext<RoleServer>) -> Asking {
        let elicitation = context.client_capabilities().and_then(|can| can.elicitation);
        // One that names no mode has forms, which came first.
        if elicitation.is_none_or(|can| can.form.is_none() && can.url.is_some()) {
            Asking::Never
        } else if context.protocol_version().is_some_and(|version| !version.has_initialize()) {
            Asking::Again
        } else {
            Asking::Meanwhile
        }
    }
}

/// What a cell asks.
#[derive(Debug)]
struct Asked {
    /// The request for input, as the session knows it.
    request: String,
    prompt: String,
    /// When the cell stops waiting.
    until: Instant,
}

impl Asked {
    /// What the client shows.
    fn elicitation(&self) -> ElicitRequest {
        let prompt: String = self.prompt.trim().chars().take(PROMPT_CHARACTERS).collect();
        let message = if prompt.is_empty() { "A cell asks for a line of input.".to_owned() } else { prompt };
        // The line is not required: an empty one is an answer, which some forms leave out.
        let requested_schema = ElicitationSchema::builder()
            .string_property(LINE, |line| line.title("Input"))
            .description("A line that a cell reads with input()")
            .build_unchecked();
        ElicitRequest::new(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
    }
}

/// A request to the client that it has not answered yet.
struct Open {
    asked: Asked,
    handle: RequestHandle<RoleServer>,
}

impl Open {
    /// Tells the client that nobody needs its answer any more.
    async fn take_back(self) {
        let _ = self.handle.cancel(Some("the cell does not wait for it any more".to_owned())).await;
    }
}

/// Where a run is that was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It has ended, or was refused.
    ToItsEnd,
    /// It waits for an answer, which the client brings with another request.
    ToAQuestion,
}

/// A run, as far as it was read.
#[derive(Debug)]
pub(super) struct Following {
    pub(super) run: RunHandle,
    /// Whether the session was made for the run.
    pub(super) is_new: bool,
    reader: Reader,
    /// The last line that was printed.
    line: String,
    /// What cells ask that no client was asked yet, the oldest first.
    asked: VecDeque<Asked>,
    /// Fingerprint of the request that began it.
    what: u64,
}

impl Following {
    pub(super) fn new(run: RunHandle, is_new: bool, what: u64) -> Following {
        let reader = run.own(0);
        Following { run, is_new, reader, line: String::new(), asked: VecDeque::new(), what }
    }

    /// Reads on, telling the client of progress and asking it what cells ask. A client that cancels its request stops the
    /// run, which still comes to an end.
    pub(super) async fn go_on(&mut self, context: &RequestContext<RoleServer>) -> Came {
        let asking = Asking::of(context);
        let token = context.meta.get_progress_token();
        let (mut count, mut is_cancelled) = (0.0, false);
        let mut open: Option<Open> = None;
        let mut tick = tokio::time::interval(PROGRESS);
        tick.tick().await;
        loop {
            // People answer one question at a time.
            if open.is_none() && !self.asked.is_empty() {
                match asking {
                    Asking::Again => return Came::ToAQuestion,
                    Asking::Never => self.refuse(),
                    Asking::Meanwhile => open = self.ask(context).await,
                }
                continue;
            }
            tokio::select! {
                delivery = self.reader.next() => match delivery {
                    Some(Delivery::Event(event)) => self.note(&event.kind),
                    Some(_) => {}
                    None => break,
                },
                answer = answered(&mut open) => if let Some(open) = open.take() {
                    match answer {
                        Some(answer) => self.answer(&open.asked.request, answer),
                        // The cell has been told by now.
                        None => open.take_back().await,
                    }
                },
                () = context.ct.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    self.run.cancel();
                }
                _ = tick.tick() => if let Some(token) = &token {
                    count += 1.0;
                    let message = match &self.line {
                        _ if open.is_some() => "waiting for input",
                        line if line.is_empty() => "running",
                        line => line,
                    };
                    let told = ProgressNotificationParam::new(token.clone(), count).with_message(message);
                    let _ = context.peer.notify_progress(told).await;
                }
            }
        }
        if let Some(open) = open {
            open.take_back().await;
        }
        Came::ToItsEnd
    }

    /// Notes the last line that was printed, and what is asked.
    fn note(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Stdout { text, .. } | EventKind::Stderr { text, .. } => {
                if let Some(last) = text.lines().rev().find(|line| !line.trim().is_empty()) {
                    self.line = last.chars().take(LINE_CHARACTERS).collect();
                }
            }
            EventKind::InputRequest { request_id, prompt, idle_timeout, .. } => {
                let until = Instant::now() + *idle_timeout;
                self.asked.push_back(Asked { request: request_id.clone(), prompt: prompt.clone(), until });
            }
            // Its cell does not wait any more.
            EventKind::CellFinished { .. } => self.asked.clear(),
            _ => {}
        }
    }

    /// Asks the client what is asked first.
    async fn ask(&mut self, context: &RequestContext<RoleServer>) -> Option<Open> {
        let asked = self.asked.pop_front().filter(|asked| asked.until > Instant::now())?;
        let request = ServerRequest::ElicitRequest(asked.elicitation());
        match context.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await {
            Ok(handle) => Some(Open { asked, handle }),
            Err(error) => {
                tracing::debug!(%error, "a client could not be asked");
                self.answer(&asked.request, None);
                None
            }
        }
    }

    /// Says that nobody answers.
    pub(super) fn refuse(&mut self) {
        for asked in self.asked.drain(..) {
            // It may have been given up meanwhile, as below.
            let _ = self.run.session().refuse_input(&asked.request);
        }
    }

    /// Hands on what the client answered: a line, or the end of the input where it would not say one.
    fn answer(&self, request: &str, answer: Option<ElicitResult>) {
        let line = answer.filter(|answer| answer.action == ElicitationAction::Accept).map(|answer| {
            let line = answer.content.as_ref().and_then(|content| content[LINE].as_str());
            line.unwrap_or_default().to_owned()
        });
        let session = self.run.session();
        if line.is_none_or(|line| session.submit_input(request, line).is_err()) {
            let _ = session.end_input(request);
        }
    }

    /// What the client is told that is to bring an answer, and come back with this name of the run.
    fn required(&self, name: String) -> InputRequiredResult {
        let first = self.asked.front().map(|asked| {
            let elicitation = InputRequest::Elicitation(asked.elicitation());
            (asked.request.clone(), elicitation)
        });
        InputRequiredResult::new(Some(InputRequests::from_iter(first)), Some(name))
    }
}

/// The answer of a client, if it is asked and says one in time. Waits for ever where it is not asked.
///
/// # Cancel safety
/// Cancel safe.
async fn answered(open: &mut Option<Open>) -> Option<Option<ElicitResult>> {
    let Some(Open { asked, handle }) = open else { return std::future::pending().await };
    match tokio::time::timeout_at(asked.until, &mut handle.rx).await {
        Ok(Ok(Ok(ClientResult::ElicitResult(result)))) => Some(Some(result)),
        Ok(Ok(Err(ServiceError::McpError(error)))) => {
            tracing::debug!(%error, "a client refused to be asked");
            Some(None)
        }
        Ok(_) => Some(None),
        Err(_) => None,
    }
}

/// The runs of a tenant that wait for their clients to come back.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<HashMap<String, Held>>);

#[derive(Debug)]
struct Held {
    following: Following,
    _expiry: Expiry,
}

/// What forgets a run whose client does not come back. Dropped, it does so no more.
#[derive(Debug)]
struct Expiry(AbortHandle);

impl Drop for Expiry {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Waiting {
    fn held(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a run that waits for an answer, and makes what its client is told. A client that does not come back in time
    /// loses it: it is cancelled. Gives it back when so many are kept that there is no room.
    pub(super) fn keep(self: &Arc<Waiting>, following: Following) -> Result<InputRequiredResult, Following> {
        let mut held = self.held();
        if held.len() >= WAITING_MAX {
            return Err(following);
        }
        let name = minted("wait");
        let until = following.asked.front().map_or_else(Instant::now, |asked| asked.until) + WAITING_GRACE;
        let (all, own) = (Arc::downgrade(self), name.clone());
        let forget = async move {
            tokio::time::sleep_until(until).await;
            let forgotten = Weak::upgrade(&all).and_then(|all| all.held().remove(&own));
            drop(forgotten);
        };
        let required = following.required(name.clone());
        let expiry = Expiry(tokio::spawn(forget).abort_handle());
        held.insert(name, Held { following, _expiry: expiry });
        Ok(required)
    }

    /// The run that is kept by this name, if the same request began it, with the answers that its client brings. What it
    /// asked and is not answered reads the end of its input.
    pub(super) fn take(&self, name: &str, what: u64, answers: &InputResponses) -> Option<Following> {
        let mut held = self.held();
        if held.get(name)?.following.what != what {
            return None;
        }
        let Held { mut following, .. } = held.remove(name)?;
        drop(held);
        // What was asked later was not told of yet.
        if let Some(asked) = following.asked.pop_front() {
            let answer = answers.get(&asked.request).and_then(|answer| serde_json::from_value(answer.clone()).ok());
            following.answer(&asked.request, answer);
        }
        Some(following)
    }
}
