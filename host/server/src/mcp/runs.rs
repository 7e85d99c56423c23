//! Runs that a call of `eval` began: followed to their end, told of, and asked for what only the client can answer.
//!
//! A cell that asks holds its call up. Clients of the protocols before 2026-07-28 are asked by a request while the call is
//! under way. Those of later ones are told that input is required, by the answer of the call, and come back with it: until
//! then the run is kept by a name that nobody can guess. Read [`Following::go_on`] first.

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

/// How often a client hears of a run that goes on.
const PROGRESS: Duration = Duration::from_secs(5);
/// How soon it hears of a line that is new.
const NEWS: Duration = Duration::from_secs(1);
/// Characters of the last line that it hears.
const LINE_CHARACTERS: usize = 200;
/// Characters of a prompt that it is shown.
const PROMPT_CHARACTERS: usize = 4_000;
/// Runs of a tenant that are kept until their clients come back.
const WAITING_MAX: usize = 256;
/// How long such a run is kept when nobody came while it waited for input: long enough to fetch what it came to.
const WAITING_GRACE: Duration = Duration::from_secs(60);
/// Tokens that the model of a client may answer with.
const ANSWER_TOKENS_MAX: u32 = 8_192;
/// The member of an answer that has the line.
const LINE: &str = "line";

/// How a client is asked, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    /// By an answer to its request, which it then makes again; by a request while its own is under way otherwise.
    is_again: bool,
    /// People answer there.
    has_people: bool,
    /// It has a model.
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

/// What a cell asks.
#[derive(Debug)]
enum Asked {
    /// A line of input.
    Line {
        /// The request for it, as the session knows it.
        request: String,
        prompt: String,
        /// When the cell stops waiting.
        until: Instant,
    },
    /// An answer of a model.
    Answer {
        /// Names the question where the client answers it.
        key: String,
        question: Question,
    },
}

/// The moment that is so much later, on the clock of timers.
fn later(at: Instant, by: Duration) -> Instant {
    time::later(at.into_std(), by).into()
}

impl Asked {
    /// What names it where the client answers it.
    fn key(&self) -> &str {
        match self {
            Asked::Line { request, .. } => request,
            Asked::Answer { key, .. } => key,
        }
    }

    /// Whether the cell waits no more.
    fn is_over(&self) -> bool {
        match self {
            Asked::Line { until, .. } => *until <= Instant::now(),
            Asked::Answer { question, .. } => question.reply.is_closed(),
        }
    }

    /// Comes when the cell waits no more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn over(&mut self) {
        match self {
            Asked::Line { until, .. } => tokio::time::sleep_until(*until).await,
            Asked::Answer { question, .. } => question.reply.closed().await,
        }
    }

    /// When it is not worth keeping any more.
    fn until(&self) -> Instant {
        match self {
            Asked::Line { until, .. } => *until,
            Asked::Answer { .. } => later(Instant::now(), TIMEOUT_MAX),
        }
    }

    /// What the client does with it.
    fn request(&self) -> InputRequest {
        match self {
            Asked::Line { prompt, .. } => InputRequest::Elicitation(elicitation(prompt)),
            Asked::Answer { question, .. } => InputRequest::CreateMessage(sampling(&question.sample)),
        }
    }

    /// Hands on what the client said. Where it said nothing that is an answer, a line is the end of the input.
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

    /// Says that nobody answers such questions.
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

/// What people are shown.
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

/// What the model of a client is asked.
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

/// The text of what a model said.
#[expect(deprecated, reason = "as for the question")]
fn text_of(said: CreateMessageResult) -> String {
    let blocks = said.message.content.into_vec();
    blocks.iter().filter_map(|block| block.as_text()).map(|block| block.text.as_str()).collect()
}

/// A request to the client that it has not answered yet.
struct Open {
    asked: Asked,
    handle: RequestHandle<RoleServer>,
}

impl Open {
    /// What the client says; nothing, when the cell has stopped waiting for it.
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

    /// Tells the client that nobody needs its answer any more.
    async fn take_back(self) {
        let _ = self.handle.cancel(Some("the cell does not wait for it any more".to_owned())).await;
    }
}

/// What a client that asked for it hears of a run.
struct Telling {
    token: Option<ProgressToken>,
    count: f64,
    /// What it heard last, and when.
    message: String,
    at: Instant,
}

impl Telling {
    fn new(context: &RequestContext<RoleServer>) -> Telling {
        let token = context.meta.get_progress_token();
        Telling { token, count: 0.0, message: String::new(), at: Instant::now() }
    }

    /// Tells it this, if it has not just heard the same.
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
    /// Questions for the model that the client has, and how many there were.
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

    /// Reads on, telling the client of progress and asking it what cells ask. A client that cancels its request stops the
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

    /// Notes the last line that was printed, and what is asked.
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

    /// Says that nobody answers what is asked now.
    pub(super) fn refuse(&mut self) {
        let session = self.run.session();
        self.asked.drain(..).for_each(|asked| asked.refuse(session));
    }

    /// What the client is told that is to bring an answer, and come back with this name of the run.
    fn required(&self, name: String) -> InputRequiredResult {
        let first = self.asked.front().map(|asked| (asked.key().to_owned(), asked.request()));
        InputRequiredResult::new(Some(InputRequests::from_iter(first)), Some(name))
    }
}

/// What the client says that is asked. Waits for ever where none is.
///
/// # Cancel safety
/// Cancel safe.
async fn said(open: &mut Option<Open>) -> Option<Option<ClientResult>> {
    match open {
        Some(open) => open.said().await,
        None => std::future::pending().await,
    }
}

/// The next question for a model. Waits for ever where none is offered.
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
        lock(&self.0)
    }

    /// Keeps a run that waits for an answer, and makes what its client is told. A client that does not come back in time
    /// loses it: it is cancelled. Gives it back when so many are kept that there is no room.
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

    /// The run that is kept by this name, if the same request began it, with the answers that its client brings. What it
    /// asked and is not answered, or not by what could be an answer, is asked again.
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
