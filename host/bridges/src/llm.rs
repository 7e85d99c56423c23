//! `llm(…)`: one question to a model behind an OpenAI-compatible endpoint.
//!
//! Transient errors (a busy service, a lost connection) are retried, with growing pauses and as the service asks. With a
//! schema, the model is made to return an object, in the first of three [`Form`]s that the service supports; an object that
//! does not match is sent back once, with a description of the fault. Read [`Models::ask`] first.

mod reply;

use std::{
    env, fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use backon::{ExponentialBuilder, Retryable};
use cellar_core::text::describe;
use cellar_engine::bridges::{CallError, CallErrorKind, Response};
use cellar_secrets::quote;
use reqwest::{Client, StatusCode, header::RETRY_AFTER, redirect::Policy};
use serde_json::{Value, json};

use super::schema::{Schema, object_of};
use crate::{client, options::Llm};
pub(super) use reply::schema_words;
pub(super) use reply::{Asked, Turn};
use reply::{Choice, Reply};

/// Bytes of an answer.
pub(super) const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Characters of a service's own error message that are passed on.
const MESSAGE_CHARS_MAX: usize = 300;
/// Maximum number of retries after transient errors.
const RETRIES: usize = 3;
/// The first pause before that; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause that a service may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The models of one endpoint.
pub(super) struct Models {
    config: Llm,
    /// Keeps connections open between questions. An error when the system's TLS cannot be set up.
    client: OnceLock<Result<Client, String>>,
    pace: ExponentialBuilder,
}

/// Usage of a session's budget.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    calls: AtomicU64,
    tokens: AtomicU64,
}

/// Arguments of `llm(…)`.
pub(super) struct Question {
    pub(super) prompt: String,
    pub(super) tier: String,
    pub(super) system: Option<String>,
    pub(super) schema: Option<String>,
}

/// Form in which a request contains the schema; the first variants constrain the model most.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Tool,
    ResponseFormat,
    Words,
}

/// Error of a call, by its remedy.
enum Fault {
    /// The service does not take this form of request.
    Form(CallError),
    /// A transient error, with the pause that the service asks for.
    Passing(CallError, Option<Duration>),
    /// Asking again or differently will not help.
    Final(CallError),
}

impl Fault {
    fn into_error(self) -> CallError {
        match self {
            Fault::Form(error) | Fault::Passing(error, _) | Fault::Final(error) => error,
        }
    }
}

/// Conversation with a model on behalf of a cell.
pub(super) struct Conversation<'a> {
    model: &'a str,
    effort: Option<&'a str>,
    key: Option<String>,
    pub(super) messages: Vec<Value>,
    /// Tools that the model may call.
    pub(super) tools: Vec<Value>,
    spent: &'a Spent,
    /// Tokens that the conversation itself has taken.
    own_tokens: AtomicU64,
    /// Budget shared with other sessions.
    budget: Option<&'a dyn TokenBudget>,
}

impl Conversation<'_> {
    /// Returns the tokens that it has taken so far.
    pub(super) fn tokens(&self) -> u64 {
        self.own_tokens.load(Ordering::Relaxed)
    }
}

/// Token budget that many sessions share.
pub trait TokenBudget: fmt::Debug + Send + Sync {
    /// Checks whether tokens are left.
    ///
    /// # Errors
    /// The budget is spent: the reason in words for the reader of the cell's error.
    fn check(&self) -> Result<(), String>;

    /// Records spent tokens.
    fn spend(&self, tokens: u64);
}

impl Models {
    pub(super) fn new(config: Llm) -> Models {
        let pace = ExponentialBuilder::new().with_min_delay(PAUSE).with_max_times(RETRIES).with_jitter();
        Models { config, client: OnceLock::new(), pace }
    }

    /// The tiers, each with its model.
    pub(super) fn tiers(&self) -> Vec<String> {
        self.config.tiers.iter().map(|(tier, model)| format!("{tier} = {model}")).collect()
    }

    /// Asks a model.
    ///
    /// # Errors
    /// The tier has no model, the key is missing, the budget is used up, the service cannot be reached or says no, the
    /// model refuses, says nothing or not all, or gives no object of the schema.
    ///
    /// # Cancel safety
    /// Dropping the future drops the connection.
    pub(super) async fn ask(
        self: Arc<Models>,
        question: Question,
        spent: Arc<Spent>,
        budget: Option<Arc<dyn TokenBudget>>,
    ) -> Result<Response, CallError> {
        if question.prompt.trim().is_empty() {
            return Err(CallError::new(CallErrorKind::Invalid, "llm needs a prompt, and this one is empty"));
        }
        let mut conversation = self.conversation(&question.tier, &spent, budget.as_deref())?;
        let schema = question.schema.as_deref().map(schema_of).transpose()?;
        self.count_question(&spent)?;
        let system = question.system.iter().map(|text| json!({"role": "system", "content": text}));
        let user = json!({"role": "user", "content": question.prompt});
        conversation.messages = system.chain([user]).collect();
        let model = conversation.model;
        self.in_time(model, self.answer(&mut conversation, schema.as_ref())).await
    }

    /// Begins a conversation with the model of a tier.
    ///
    /// # Errors
    /// The tier has no model, or the key is missing.
    pub(super) fn conversation<'a>(
        &'a self,
        tier: &str,
        spent: &'a Spent,
        budget: Option<&'a dyn TokenBudget>,
    ) -> Result<Conversation<'a>, CallError> {
        Ok(Conversation {
            model: self.model(tier)?,
            effort: self.config.reasoning_effort.get(tier).map(String::as_str),
            key: self.key()?,
            messages: Vec::new(),
            tools: Vec::new(),
            spent,
            own_tokens: AtomicU64::new(0),
            budget,
        })
    }

    /// Asks for the next turn of a conversation with tools, and adds it to the messages. It counts as a question.
    ///
    /// # Errors
    /// As those of [`Models::ask`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the connection.
    pub(super) async fn turn(&self, conversation: &mut Conversation<'_>) -> Result<Turn, CallError> {
        self.count_question(conversation.spent)?;
        let model = conversation.model;
        let asked = async { self.post(conversation, None).await.map_err(Fault::into_error) };
        let choice = self.in_time(model, asked).await?;
        let (message, turn) = choice.into_turn(model)?;
        conversation.messages.push(message);
        Ok(turn)
    }

    /// Counts a question against the budget of its session.
    fn count_question(&self, spent: &Spent) -> Result<(), CallError> {
        within("questions", spent.calls.fetch_add(1, Ordering::Relaxed), self.config.calls, "calls")
    }

    /// Waits for an answer, no longer than one may take.
    async fn in_time<T>(&self, model: &str, work: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        let seconds = self.config.timeout.as_secs();
        let slow = format!("model `{model}` did not answer within {seconds} s");
        let answer = tokio::time::timeout(self.config.timeout, work).await;
        answer.unwrap_or_else(|_| Err(CallError::new(CallErrorKind::Limit, slow)))
    }

    async fn answer(
        &self,
        conversation: &mut Conversation<'_>,
        schema: Option<&(Value, Schema)>,
    ) -> Result<Response, CallError> {
        let model = conversation.model;
        let Some((value, schema)) = schema else {
            let choice = self.post(conversation, None).await.map_err(Fault::into_error)?;
            return choice.text(model).map(|text| Response::Text(text.to_owned()));
        };
        let (form, choice) = self.first_object(conversation, value).await?;
        let text = choice.object_text(model)?;
        let fault = match object(schema, text) {
            Ok(object) => return Ok(Response::Json(object)),
            Err(fault) => fault,
        };
        conversation.messages.push(json!({"role": "assistant", "content": text}));
        let correction =
            format!("This is not the object that was asked for: {fault}. Give the whole object again, corrected.");
        conversation.messages.push(json!({"role": "user", "content": correction}));
        let choice = self.post(conversation, Some((form, value))).await.map_err(Fault::into_error)?;
        object(schema, choice.object_text(model)?).map(Response::Json).map_err(|fault| {
            let message = format!("model `{model}` gave no object of the schema, asked twice: {fault}");
            CallError::new(CallErrorKind::Failed, message)
        })
    }

    /// The first answer to a question with a schema, and the form in which the service took it.
    async fn first_object(&self, conversation: &Conversation<'_>, schema: &Value) -> Result<(Form, Choice), CallError> {
        for form in [Form::Tool, Form::ResponseFormat] {
            match self.post(conversation, Some((form, schema))).await {
                Err(Fault::Form(_)) => {}
                answer => return answer.map(|choice| (form, choice)).map_err(Fault::into_error),
            }
        }
        let answer = self.post(conversation, Some((Form::Words, schema))).await;
        answer.map(|choice| (Form::Words, choice)).map_err(Fault::into_error)
    }

    fn model(&self, tier: &str) -> Result<&str, CallError> {
        self.config.tiers.get(tier).map(String::as_str).ok_or_else(|| {
            let known: Vec<_> = self.config.tiers.keys().map(|tier| format!("`{tier}`")).collect();
            let known = if known.is_empty() { "none is".to_owned() } else { format!("set are {}", known.join(", ")) };
            CallError::new(
                CallErrorKind::Unknown,
                format!("no model is set for tier {}; {known} under [llm.tiers] in cellar.toml", quote(tier)),
            )
        })
    }

    fn key(&self) -> Result<Option<String>, CallError> {
        let Some(name) = &self.config.api_key_env else { return Ok(None) };
        match env::var(name) {
            Ok(key) if !key.is_empty() => {
                cellar_secrets::learn(&key);
                Ok(Some(key))
            }
            _ => Err(CallError::new(
                CallErrorKind::Failed,
                format!("llm has no key: the environment variable `{name}` (llm.api_key_env) is not set"),
            )),
        }
    }

    fn client(&self) -> Result<&Client, Fault> {
        // Redirects could carry the key to another host.
        let build = || client::builder(&[])?.redirect(Policy::none()).build().map_err(|error| describe(&error));
        self.client.get_or_init(build).as_ref().map_err(|fault| {
            Fault::Final(CallError::new(CallErrorKind::Failed, format!("llm cannot be set up: {fault}")))
        })
    }

    /// Sends the conversation, and retries transient errors.
    async fn post(&self, conversation: &Conversation<'_>, form: Option<(Form, &Value)>) -> Result<Choice, Fault> {
        let asked = AtomicU32::new(0);
        let attempt = || {
            asked.fetch_add(1, Ordering::Relaxed);
            self.post_once(conversation, form)
        };
        let pause = |fault: &Fault, pause: Option<Duration>| match fault {
            // A service that wants more patience than that is as good as down.
            Fault::Passing(_, Some(wanted)) => pause.filter(|_| *wanted <= PAUSE_MAX).map(|pause| pause.max(*wanted)),
            _ => pause,
        };
        let passes = |fault: &Fault| matches!(fault, Fault::Passing(..));
        let answer = attempt.retry(self.pace).when(passes).adjust(pause).await;
        answer.map_err(|fault| match (fault, asked.into_inner()) {
            (Fault::Passing(mut error, _), asked @ 2..) => {
                error.message.push_str(&format!(" (asked {asked} times)"));
                Fault::Final(error)
            }
            (fault, _) => fault,
        })
    }

    async fn post_once(&self, conversation: &Conversation<'_>, form: Option<(Form, &Value)>) -> Result<Choice, Fault> {
        let Conversation { model, effort, key, messages, tools, spent, own_tokens, budget } = conversation;
        if let Some(Err(message)) = budget.map(|budget| budget.check()) {
            return Err(Fault::Final(CallError::new(CallErrorKind::Limit, message)));
        }
        within("tokens", spent.tokens.load(Ordering::Relaxed), self.config.tokens, "tokens").map_err(Fault::Final)?;
        let key = key.as_deref();
        let failed = |what: String| CallError::new(CallErrorKind::Failed, what);
        let mut body = reply::request(model, messages, form);
        if !tools.is_empty() {
            body["tools"] = json!(tools);
        }
        if let Some(effort) = effort {
            body["reasoning_effort"] = (*effort).into();
        }
        let mut request = self.client()?.post(format!("{}/chat/completions", self.config.endpoint)).json(&body);
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.map_err(|error| {
            let message = format!("model `{model}` cannot be reached: {}", describe(&error.without_url()));
            Fault::Passing(failed(message), None)
        })?;
        let status = response.status();
        let wanted = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let bytes = read(response, model).await?;
        if !status.is_success() {
            let said = cellar_secrets::hide(&String::from_utf8_lossy(&bytes)).into_owned();
            return Err(refused(model, status, &said, wanted.map(Duration::from_secs)));
        }
        let reply: Reply = serde_json::from_slice(&bytes).map_err(|error| {
            let start = quote(&String::from_utf8_lossy(&bytes));
            let message = format!("model `{model}` sent a reply that is not a chat completion ({error}): {start}");
            Fault::Final(failed(message))
        })?;
        let tokens = reply.tokens(&body);
        spent.tokens.fetch_add(tokens, Ordering::Relaxed);
        own_tokens.fetch_add(tokens, Ordering::Relaxed);
        if let Some(budget) = budget {
            budget.spend(tokens);
        }
        let choice = reply.choices.into_iter().next();
        choice.ok_or_else(|| Fault::Final(failed(format!("model `{model}` sent a reply without choices"))))
    }
}

/// Checks a budget.
///
/// # Errors
/// `Limit`, naming the key in `cellar.toml`.
fn within(what: &str, used: u64, budget: Option<u64>, key: &str) -> Result<(), CallError> {
    match budget {
        Some(budget) if used >= budget => {
            let message =
                format!("this session has used its budget of {budget} {what} ({key} under [llm] in cellar.toml)");
            Err(CallError::new(CallErrorKind::Limit, message))
        }
        _ => Ok(()),
    }
}

async fn read(mut response: reqwest::Response, model: &str) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await.map_err(|error| {
            let message = format!("the reply of model `{model}` broke off: {}", describe(&error.without_url()));
            Fault::Passing(CallError::new(CallErrorKind::Failed, message), None)
        })?;
        let Some(chunk) = chunk else { return Ok(bytes) };
        if bytes.len().saturating_add(chunk.len()) > ANSWER_BYTES_MAX {
            let message = format!("the reply of model `{model}` is larger than {} MiB", ANSWER_BYTES_MAX >> 20);
            return Err(Fault::Final(CallError::new(CallErrorKind::Limit, message)));
        }
        bytes.extend_from_slice(&chunk);
    }
}

/// Converts an error response of the service.
fn refused(model: &str, status: StatusCode, body: &str, wanted: Option<Duration>) -> Fault {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let said = value.pointer("/error/message").or_else(|| value.get("error")).and_then(Value::as_str);
    let said = said.map_or_else(|| body.trim().to_owned(), str::to_owned);
    let said: String = said.chars().take(MESSAGE_CHARS_MAX).collect();
    let colon = if said.is_empty() { "" } else { ": " };
    let message = format!("model `{model}` answered with HTTP status {status}{colon}{said}");
    let error = CallError::new(CallErrorKind::Failed, message);
    let is_out_of_money = value.pointer("/error/code").is_some_and(|code| code == "insufficient_quota");
    match status {
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::NOT_IMPLEMENTED => Fault::Form(error),
        StatusCode::TOO_MANY_REQUESTS if is_out_of_money => Fault::Final(error),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Fault::Passing(error, wanted),
        status if status.is_server_error() => Fault::Passing(error, wanted),
        _ => Fault::Final(error),
    }
}

/// Parses the schema of a call.
///
/// # Errors
/// `Invalid`: it is not the schema of an object.
pub(super) fn schema_of(text: &str) -> Result<(Value, Schema), CallError> {
    Schema::of_object(text)
        .map_err(|fault| CallError::new(CallErrorKind::Invalid, format!("llm cannot be given this schema: {fault}")))
}

/// Parses an object of the schema from JSON text.
///
/// # Errors
/// The text is not such an object: the reason in words.
pub(super) fn object(schema: &Schema, text: &str) -> Result<String, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("{error} in {}", quote(text)))?;
    object_of(schema, &value)
}

#[cfg(test)]
mod tests;
