//! `llm(…)`: one question to a model behind an OpenAI-compatible endpoint.
//!
//! With a schema, the model is made to call one tool, `respond`, whose parameters are that schema. Services that do not
//! know tools are asked again with a response format.

use std::{env, sync::Arc};

use cellar_engine::{CallError, CallErrorKind, Response};
use reqwest::{StatusCode, redirect::Policy};
use serde::Deserialize;
use serde_json::{Value, json};

use super::schema::{Schema, object_of};
use crate::{options::Llm, text::quote};

/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Characters of a service's own error message that are passed on.
const MESSAGE_CHARS_MAX: usize = 300;

/// The models of one endpoint.
pub(super) struct Models {
    config: Llm,
    /// Keeps connections open between questions. An error when the system's TLS cannot be set up.
    client: Result<reqwest::Client, String>,
}

/// Arguments of `llm(…)`.
pub(super) struct Question {
    pub(super) prompt: String,
    pub(super) tier: String,
    pub(super) system: Option<String>,
    pub(super) schema: Option<String>,
}

/// How the model is told of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Tool,
    ResponseFormat,
}

#[derive(Deserialize)]
struct Reply {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Deserialize)]
struct ToolCall {
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    arguments: String,
}

/// A call that failed, by what may be done about it.
enum Fault {
    /// The service does not take this form of request.
    Form(CallError),
    /// Asking differently will not help.
    Final(CallError),
}

impl Fault {
    fn into_error(self) -> CallError {
        match self {
            Fault::Form(error) | Fault::Final(error) => error,
        }
    }
}

impl Models {
    pub(super) fn new(config: Llm) -> Models {
        // Redirects could carry the key to another host.
        let client = reqwest::Client::builder().redirect(Policy::none()).user_agent("cellar").build();
        Models { config, client: client.map_err(|error| causes(&error)) }
    }

    /// Asks a model.
    ///
    /// # Errors
    /// The tier has no model, the key is missing, the service cannot be reached or says no, the model refuses, says
    /// nothing, or gives no object of the schema.
    ///
    /// # Cancel safety
    /// Dropping the future drops the connection.
    pub(super) async fn ask(self: Arc<Models>, question: Question) -> Result<Response, CallError> {
        let model = self.model(&question.tier)?;
        let key = self.key()?;
        let schema = question.schema.as_deref().map(Schema::of_object).transpose().map_err(|fault| {
            CallError::new(CallErrorKind::Invalid, format!("llm cannot be given this schema: {fault}"))
        })?;
        let work = self.answer(model, key.as_deref(), &question, schema.as_ref());
        let seconds = self.config.timeout.as_secs();
        let answer = tokio::time::timeout(self.config.timeout, work).await.map_err(|_| {
            CallError::new(CallErrorKind::Limit, format!("model `{model}` did not answer within {seconds} s"))
        })?;
        answer.map_err(|mut error| {
            error.message = without(key.as_deref(), &error.message);
            error
        })
    }

    async fn answer(
        &self,
        model: &str,
        key: Option<&str>,
        question: &Question,
        schema: Option<&(Value, Schema)>,
    ) -> Result<Response, CallError> {
        let Some((value, schema)) = schema else {
            let message = self.post(model, key, body(model, question)).await.map_err(Fault::into_error)?;
            return text(model, message);
        };
        let mut reply = self.post(model, key, with_schema(body(model, question), value, Form::Tool)).await;
        if let Err(Fault::Form(_)) = reply {
            reply = self.post(model, key, with_schema(body(model, question), value, Form::ResponseFormat)).await;
        }
        object(model, schema, reply.map_err(Fault::into_error)?)
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
            Ok(key) if !key.is_empty() => Ok(Some(key)),
            _ => Err(CallError::new(
                CallErrorKind::Failed,
                format!("llm has no key: the environment variable `{name}` (llm.api_key_env) is not set"),
            )),
        }
    }

    async fn post(&self, model: &str, key: Option<&str>, body: Value) -> Result<Choice, Fault> {
        let failed = |what: String| Fault::Final(CallError::new(CallErrorKind::Failed, what));
        let client = self.client.as_ref().map_err(|fault| failed(format!("llm cannot be set up: {fault}")))?;
        let url = format!("{}/chat/completions", self.config.endpoint);
        let mut request = client.post(url).json(&body);
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let unreachable = |error: reqwest::Error| {
            failed(format!("model `{model}` cannot be reached: {}", causes(&error.without_url())))
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let bytes = read(response, model).await?;
        if !status.is_success() {
            return Err(refused(model, status, &without(key, &String::from_utf8_lossy(&bytes))));
        }
        let reply: Reply = serde_json::from_slice(&bytes).map_err(|error| {
            let start = quote(&without(key, &String::from_utf8_lossy(&bytes)));
            failed(format!("model `{model}` sent a reply that is not a chat completion ({error}): {start}"))
        })?;
        let choice = reply.choices.into_iter().next();
        choice.ok_or_else(|| failed(format!("model `{model}` sent a reply without choices")))
    }
}

async fn read(mut response: reqwest::Response, model: &str) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await.map_err(|error| {
            let message = format!("the reply of model `{model}` broke off: {}", causes(&error.without_url()));
            Fault::Final(CallError::new(CallErrorKind::Failed, message))
        })?;
        let Some(chunk) = chunk else { return Ok(bytes) };
        if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
            let message = format!("the reply of model `{model}` is larger than {} MiB", ANSWER_BYTES_MAX >> 20);
            return Err(Fault::Final(CallError::new(CallErrorKind::Limit, message)));
        }
        bytes.extend_from_slice(&chunk);
    }
}

/// `text` without the key: services like to quote what they were given. To be done before anything is cut off.
fn without(key: Option<&str>, text: &str) -> String {
    key.filter(|key| !key.is_empty()).map_or_else(|| text.to_owned(), |key| text.replace(key, "***"))
}

/// What the service said instead of an answer.
fn refused(model: &str, status: StatusCode, body: &str) -> Fault {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let said = value.pointer("/error/message").or_else(|| value.get("error")).and_then(Value::as_str);
    let said = said.map_or_else(|| body.trim().to_owned(), str::to_owned);
    let said: String = said.chars().take(MESSAGE_CHARS_MAX).collect();
    let colon = if said.is_empty() { "" } else { ": " };
    let message = format!("model `{model}` answered with HTTP status {status}{colon}{said}");
    let error = CallError::new(CallErrorKind::Failed, message);
    match status {
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::NOT_IMPLEMENTED => Fault::Form(error),
        _ => Fault::Final(error),
    }
}

fn body(model: &str, question: &Question) -> Value {
    let system = question.system.iter().map(|text| json!({"role": "system", "content": text}));
    let user = json!({"role": "user", "content": question.prompt});
    json!({"model": model, "messages": system.chain([user]).collect::<Vec<_>>()})
}

fn with_schema(mut body: Value, schema: &Value, form: Form) -> Value {
    match form {
        Form::Tool => {
            let description = "Give the answer. Call this once.";
            let function = json!({"name": "respond", "description": description, "parameters": schema});
            body["tools"] = json!([{"type": "function", "function": function}]);
            body["tool_choice"] = json!({"type": "function", "function": {"name": "respond"}});
        }
        Form::ResponseFormat => {
            let described = json!({"name": "respond", "schema": schema});
            body["response_format"] = json!({"type": "json_schema", "json_schema": described});
        }
    }
    body
}

/// The text of an answer.
fn text(model: &str, choice: Choice) -> Result<Response, CallError> {
    let text = spoken(model, &choice)?;
    Ok(Response::Text(text.to_owned()))
}

/// The object of an answer: from the forced tool call, or from the text of a model that wrote it there.
fn object(model: &str, schema: &Schema, choice: Choice) -> Result<Response, CallError> {
    let called = choice.message.tool_calls.as_ref().and_then(|calls| calls.first());
    let text = match called {
        Some(call) => call.function.arguments.as_str(),
        None => spoken(model, &choice)?,
    };
    let failed = |fault: String| {
        CallError::new(CallErrorKind::Failed, format!("model `{model}` gave no object of the schema: {fault}"))
    };
    let value: Value = serde_json::from_str(text).map_err(|error| failed(format!("{error} in {}", quote(text))))?;
    object_of(schema, &value).map(Response::Json).map_err(failed)
}

/// What the model said, unless it refused or said nothing.
fn spoken<'a>(model: &str, choice: &'a Choice) -> Result<&'a str, CallError> {
    let failed = |what: String| Err(CallError::new(CallErrorKind::Failed, format!("model `{model}` {what}")));
    let finish = choice.finish_reason.as_deref().unwrap_or_default();
    if let Some(refusal) = choice.message.refusal.as_deref().filter(|refusal| !refusal.is_empty()) {
        return failed(format!("refused: {refusal}"));
    }
    match choice.message.content.as_deref() {
        _ if finish == "content_filter" => failed("refused: its content filter stopped the answer".to_owned()),
        Some(text) if !text.trim().is_empty() => Ok(text),
        _ if finish == "length" => failed("used up its output limit without an answer".to_owned()),
        _ => failed("gave an empty answer".to_owned()),
    }
}

/// An error and its causes on one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
