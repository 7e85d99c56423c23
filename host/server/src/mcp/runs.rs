//! Runs that a call of `eval` began: followed to their end, with progress for the client, and with requests to it for
//! what only the client can answer.
//!
//! A cell that asks suspends its call. Clients of the protocols before 2026-07-28 receive a request while the call is
//! under way. Those of later ones receive a response that input is required, and repeat the call with it: until then
//! the run is kept by a name that cannot be guessed. Read [`Following::go_on`] first.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use cellar_bridges::Sample;
use cellar_core::{sync::lock, time};
use cellar_engine::{
    EventKind, Session,
    bridges::{CallError, CallErrorKind},
    limits::TIMEOUT_MAX,
};
use cellar_hub::{Delivery, Reader, RunHandle};
#[expect(deprecated, reason = "the newest protocol discourages sampling, and still has it")]
use rmcp::model::{
    CreateMessageRequest, CreateMessageRequestParams, CreateMessageResult, ModelPreferences, SamplingMessage,
};
use rmcp::{
    model::{
        ClientResult, ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema, InputRequest,
        InputRequests, InputRequiredResult, InputResponses, ProgressNotificationParam, ProgressToken, ServerRequest,
    },
    service::{PeerRequestOptions, RequestContext, RequestHandle, RoleServer},
};
use tokio::{task::AbortHandle, time::Instant};

use super::models::{Offer, Question};
use crate::tenant::minted;

/// Interval at which a client receives the same progress again.
const PROGRESS: Duration = Duration::from_secs(5);
/// Interval at which it receives new progress.
const NEWS: Duration = Duration::from_secs(1);
/// Characters of the last output line in a progress message.
const LINE_CHARACTERS: usize = 200;
/// Characters of a prompt that are shown.
const PROMPT_CHARACTERS: usize = 4_000;
/// Runs of a tenant that are kept until their clients come back.
const WAITING_MAX: usize = 256;
/// Time for which a run is kept beyond the time that it waits for input: long enough for the client to fetch its
/// result.
const WAITING_GRACE: Duration = Duration::from_secs(60);
/// Tokens of an answer of the client's model, at most.
const ANSWER_TOKENS_MAX: u32 = 8_192;
/// Member of an elicitation's answer that holds the line.
const LINE: &str = "line";

/// Ways of asking a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    /// True if it is asked by the response to its request, which it then repeats; false if it is asked by a request
    /// while its own is under way.
    is_again: bool,
    /// True if people can answer.
    has_people: bool,
    /// True if it offers a model.
    pub(super) has_model: bool,
}

impl Asking {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Asking {
        let can = context.client_capabilities().unwrap_or_default();
        Asking {
            is_again: context.protocol_version().is_some_and(|version| !version.has_initialize()),
            // One that names no mode has forms, which came first.
            has_people: can.elicitation.is_some_and(|can| can.form.is_some() || can.url.is_none()),
            has_model: can.sampling.is_some(),
        }
    }
}

/// Request of a cell for the client.
#[derive(Debug)]
enum Asked {
    /// A line of input.
    Line {
        /// Id of the request in the session.
        request: String,
        prompt: String,
        /// Time at which the cell stops waiting.
        until: Instant,
    },
    /// Answer of a model.
    Answer {
        /// Key of the question in the client's answer.
        key: String,
        question: Question,
    },
}

/// Returns the time `by` later, on the clock of timers.
fn later(at: Instant, by: Duration) -> Instant {
    time::later(at.into_std(), by).into()
}

impl Asked {
    /// Returns the key of the request in the client's answer.
    fn key(&self) -> &str {
        match self {
            Asked::Line { request, .. } => request,
            Asked::Answer { key, .. } => key,
        }
    }

    /// Returns true if the cell no longer waits.
    fn is_over(&self) -> bool {
        match self {
            Asked::Line { until, .. } => *until <= Instant::now(),
            Asked::Answer { question, .. } => question.reply.is_closed(),
        }
    }

    /// Resolves when the cell no longer waits.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn over(&mut self) {
        match self {
            Asked::Line { until, .. } => tokio::time::sleep_until(*until).await,
            Asked::Answer { question, .. } => question.reply.closed().await,
        }
    }

    /// Returns the time at which it need not be kept any longer.
    fn until(&self) -> Instant {
        match self {
            Asked::Line { until, .. } => *until,
            Asked::Answer { .. } => later(Instant::now(), TIMEOUT_MAX),
        }
    }

    /// Returns the request to the client.
    fn request(&self) -> InputRequest {
        match self {
            Asked::Line { prompt, .. } => InputRequest::Elicitation(elicitation(prompt)),
            Asked::Answer { question, .. } => InputRequest::CreateMessage(sampling(&question.sample)),
        }
    }

    /// Passes the client's answer to the cell. For a line, anything but an answer is the end of the input.
    fn answer(self, said: Option<ClientResult>, session: &Session) {
        match (self, said) {
            (Asked::Line { request, .. }, said) => {
                let line = match said {
                    Some(ClientResult::ElicitResult(said)) if said.action == ElicitationAction::Accept => {
                        let line = said.content.as_ref().and_then(|content| content[LINE].as_str());
                        Some(line.unwrap_or_default().to_owned())
                    }
                    _ => None,
                };
                // It may have been given up meanwhile, as below.
                if line.is_none_or(|line| session.submit_input(&request, line).is_err()) {
                    let _ = session.end_input(&request);
                }
            }
            (Asked::Answer { question, .. }, said) => {
                let text = match said {
                    Some(ClientResult::CreateMessageResult(said)) => Ok(text_of(*said)),
                    _ => Err(CallError::new(CallErrorKind::Failed, "the client did not let its model answer")),
                };
                let _ = question.reply.send(text);
            }
        }
    }

    /// Tells the cell that nobody answers.
    fn refuse(self, session: &Session) {
        match self {
            Asked::Line { request, .. } => drop(session.refuse_input(&request)),
            Asked::Answer { question, .. } => {
                let error = CallError::new(CallErrorKind::Failed, "the client has no model any more");
                let _ = question.reply.send(Err(error));
            }
        }
    }
}

/// Returns the request for a line of input, as people are shown it.
fn elicitation(prompt: &str) -> ElicitRequest {
    let prompt: String = prompt.trim().chars().take(PROMPT_CHARACTERS).collect();
    let message = if prompt.is_empty() { "A cell asks for a line of input.".to_owned() } else { prompt };
    // The line is not required: an empty one is an answer, which some forms leave out.
    let requested_schema = ElicitationSchema::builder()
        .string_property(LINE, |line| line.title("Input"))
        .description("A line that a cell reads with input()")
        .build_unchecked();
    ElicitRequest::new(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// Returns the request to the model of a client.
#[expect(deprecated, reason = "the newest protocol discourages sampling, and still has it")]
fn sampling(sample: &Sample) -> CreateMessageRequest {
    let (cost, speed, intelligence) = match sample.tier.as_str() {
        "smol" => (1.0, 1.0, 0.0),
        "slow" => (0.0, 0.0, 1.0),
        _ => (0.5, 0.5, 0.5),
    };
    let preferences = ModelPreferences::new().with_cost_priority(cost).with_speed_priority(speed);
    let message = SamplingMessage::user_text(sample.prompt.clone());
    let mut asked = CreateMessageRequestParams::new(vec![message], ANSWER_TOKENS_MAX)
        .with_model_preferences(preferences.with_intelligence_priority(intelligence));
    asked.system_prompt = sample.system.clone();
    CreateMessageRequest::new(asked)
}

/// Returns the text of a model's answer.
#[expect(deprecated, reason = "as for the question")]
fn text_of(said: CreateMessageResult) -> String {
    let blocks = said.message.content.into_vec();
    blocks.iter().filter_map(|block| block.as_text()).map(|block| block.text.as_str()).collect()
}

/// Request to the client that is not answered yet.
struct Open {
    asked: Asked,
    handle: RequestHandle<RoleServer>,
}

impl Open {
    /// Waits for the client's answer. `None` if the cell stops waiting; `Some(None)` if the client refuses or fails.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn said(&mut self) -> Option<Option<ClientResult>> {
        tokio::select! {
            said = &mut self.handle.rx => Some(match said {
                Ok(Ok(said)) => Some(said),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a client refused to be asked");
                    None
                }
                Err(_) => None,
            }),
            () = self.asked.over() => None,
        }
    }

    /// Withdraws the request.
    async fn take_back(self) {
        let _ = self.handle.cancel(Some("the cell does not wait for it any more".to_owned())).await;
    }
}

/// Progress notifications to a client that wants them.
struct Telling {
    token: Option<ProgressToken>,
    count: f64,
    /// Last message, and the time at which it was sent.
    message: String,
    at: Instant,
}

impl Telling {
    fn new(context: &RequestContext<RoleServer>) -> Telling {
        let token = context.meta.get_progress_token();
        Telling { token, count: 0.0, message: String::new(), at: Instant::now() }
    }

    /// Sends a message, unless the same one was sent less than `PROGRESS` ago.
    async fn tell(&mut self, context: &RequestContext<RoleServer>, message: &str) {
        let Some(token) = &self.token else { return };
        if self.message == message && self.at.elapsed() < PROGRESS {
            return;
        }
        self.count += 1.0;
        (self.message, self.at) = (message.to_owned(), Instant::now());
        let told = ProgressNotificationParam::new(token.clone(), self.count).with_message(message);
        let _ = context.peer.notify_progress(told).await;
    }
}

/// State of a run up to which it was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It has ended, or was refused.
    ToItsEnd,
    /// It waits for an answer, which the client sends with another request.
    ToAQuestion,
}

/// Run, with the position up to which its events were read.
#[derive(Debug)]
pub(super) struct Following {
    pub(super) run: RunHandle,
    /// True if the session was made for the run.
    pub(super) is_new: bool,
    reader: Reader,
    /// Last line of its output.
    line: String,
    /// Requests of its cells that are still to be sent to the client, the oldest first.
    asked: VecDeque<Asked>,
    /// Offer of the client's model, and the number of prompts so far.
    offer: Option<Offer>,
    questions: u64,
    /// Fingerprint of the request that began it.
    what: u64,
}

impl Following {
    pub(super) fn new(run: RunHandle, is_new: bool, what: u64, offer: Option<Offer>) -> Following {
        let reader = run.own(0);
        Following { run, is_new, reader, line: String::new(), asked: VecDeque::new(), offer, questions: 0, what }
    }

    /// Reads events, sends the client progress, and asks it what cells ask. A client that cancels its request stops the
    /// run, which still comes to an end.
    pub(super) async fn go_on(&mut self, context: &RequestContext<RoleServer>) -> Came {
        let asking = Asking::of(context);
        let mut telling = Telling::new(context);
        let mut is_cancelled = false;
        let mut open: Option<Open> = None;
        let mut tick = tokio::time::interval(NEWS);
        tick.tick().await;
        loop {
            // People answer one question at a time.
            if open.is_none()
                && let Some(asked) = self.asked.pop_front()
            {
                let is_possible = match &asked {
                    Asked::Line { .. } => asking.has_people,
                    Asked::Answer { .. } => asking.has_model,
                };
                match asking.is_again {
                    _ if asked.is_over() => {}
                    _ if !is_possible => asked.refuse(self.run.session()),
                    true => {
                        self.asked.push_front(asked);
                        return Came::ToAQuestion;
                    }
                    false => open = self.ask(asked, context).await,
                }
                continue;
            }
            tokio::select! {
                delivery = self.reader.next() => match delivery {
                    Some(Delivery::Event(event)) => self.note(&event.kind),
                    Some(_) => {}
                    None => break,
                },
                question = questions(&mut self.offer) => {
                    self.questions = self.questions.saturating_add(1);
                    self.asked.push_back(Asked::Answer { key: format!("model-{}", self.questions), question });
                }
                said = said(&mut open) => if let Some(open) = open.take() {
                    match said {
                        Some(said) => open.asked.answer(said, self.run.session()),
                        // The cell has been told by now.
                        None => open.take_back().await,
                    }
                },
                () = context.ct.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    self.run.cancel();
                }
                _ = tick.tick() => telling.tell(context, match (&open, self.line.as_str()) {
                    (Some(Open { asked: Asked::Line { .. }, .. }), _) => "waiting for input",
                    (_, "") => "running",
                    (_, line) => line,
                }).await,
            }
        }
        if let Some(open) = open {
            open.take_back().await;
        }
        Came::ToItsEnd
    }

    /// Records the last line of output, and requests for input.
    fn note(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Stdout { text, .. } | EventKind::Stderr { text, .. } => {
                if let Some(last) = text.lines().rev().find(|line| !line.trim().is_empty()) {
                    self.line = last.chars().take(LINE_CHARACTERS).collect();
                }
            }
            EventKind::InputRequest { request_id, prompt, idle_timeout, .. } => {
                let until = later(Instant::now(), *idle_timeout);
                self.asked.push_back(Asked::Line { request: request_id.clone(), prompt: prompt.clone(), until });
            }
            // It does not wait any more.
            EventKind::CellFinished { .. } => self.asked.retain(|asked| matches!(asked, Asked::Answer { .. })),
            _ => {}
        }
    }

    /// Asks the client.
    async fn ask(&mut self, asked: Asked, context: &RequestContext<RoleServer>) -> Option<Open> {
        let request = match asked.request() {
            InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
            InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
            _ => return None,
        };
        match context.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await {
            Ok(handle) => Some(Open { asked, handle }),
            Err(error) => {
                tracing::debug!(%error, "a client could not be asked");
                asked.answer(None, self.run.session());
                None
            }
        }
    }

    /// Refuses all requests that are still to be sent to the client.
    pub(super) fn refuse(&mut self) {
        let session = self.run.session();
        self.asked.drain(..).for_each(|asked| asked.refuse(session));
    }

    /// Returns the response that input is required, for a client that comes back with this name of the run.
    fn required(&self, name: String) -> InputRequiredResult {
        let first = self.asked.front().map(|asked| (asked.key().to_owned(), asked.request()));
        InputRequiredResult::new(Some(InputRequests::from_iter(first)), Some(name))
    }
}

/// Waits for the client's answer to the open request. Never resolves if there is none.
///
/// # Cancel safety
/// Cancel safe.
async fn said(open: &mut Option<Open>) -> Option<Option<ClientResult>> {
    match open {
        Some(open) => open.said().await,
        None => std::future::pending().await,
    }
}

/// Waits for the next prompt for a model. Never resolves if no model is offered.
///
/// # Cancel safety
/// Cancel safe.
async fn questions(offer: &mut Option<Offer>) -> Question {
    if let Some(offer) = offer
        && let Some(question) = offer.next().await
    {
        return question;
    }
    std::future::pending().await
}

/// Runs of a tenant that wait for their clients to come back.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<HashMap<String, Held>>);

#[derive(Debug)]
struct Held {
    following: Following,
    _expiry: Expiry,
}

/// Task that forgets a run whose client does not come back. Dropping this aborts it.
#[derive(Debug)]
struct Expiry(AbortHandle);

impl Drop for Expiry {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Waiting {
    fn held(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        lock(&self.0)
    }

    /// Keeps a run that waits for an answer, and returns the response to its client. A run whose client does not come
    /// back in time is cancelled. Returns the run as the error when as many are kept as may be.
    #[expect(clippy::result_large_err, reason = "a run that cannot be kept is given back whole, and rarely")]
    pub(super) fn keep(self: &Arc<Waiting>, following: Following) -> Result<InputRequiredResult, Following> {
        let mut held = self.held();
        if held.len() >= WAITING_MAX {
            return Err(following);
        }
        let name = minted("wait");
        let until = later(following.asked.front().map_or_else(Instant::now, Asked::until), WAITING_GRACE);
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

    /// Takes the run that is kept by this name, if the same request began it, and passes it the client's answers. A
    /// request without a valid answer is sent again.
    pub(super) fn take(&self, name: &str, what: u64, answers: &InputResponses) -> Option<Following> {
        let mut held = self.held();
        if held.get(name)?.following.what != what {
            return None;
        }
        let Held { mut following, .. } = held.remove(name)?;
        drop(held);
        // What was asked later was not told of yet.
        if let Some(asked) = following.asked.pop_front() {
            let said = answers.get(asked.key()).and_then(|said| match &asked {
                Asked::Line { .. } => serde_json::from_value(said.clone()).ok().map(ClientResult::ElicitResult),
                Asked::Answer { .. } => {
                    serde_json::from_value(said.clone()).ok().map(ClientResult::CreateMessageResult)
                }
            });
            match said {
                Some(said) => asked.answer(Some(said), following.run.session()),
                None => following.asked.push_front(asked),
            }
        }
        Some(following)
    }
}
