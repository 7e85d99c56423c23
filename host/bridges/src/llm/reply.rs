//! Requests and responses of services with OpenAI's chat completions API.

use cellar_engine::bridges::{CallError, CallErrorKind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Form;

/// Characters of a token, about: for services that do not count.
const TOKEN_CHARS: usize = 4;

/// Builds a request with these `messages`; the answer shall be an object of the schema, if there is one.
pub(super) fn request(model: &str, messages: &[Value], form: Option<(Form, &Value)>) -> Value {
    let mut body = json!({"model": model, "messages": messages});
    match form {
        None => {}
        Some((Form::Tool, schema)) => {
            let description = "Give the answer. Call this once.";
            let function = json!({"name": "respond", "description": description, "parameters": schema});
            body["tools"] = json!([{"type": "function", "function": function}]);
            body["tool_choice"] = json!({"type": "function", "function": {"name": "respond"}});
        }
        Some((Form::ResponseFormat, schema)) => {
            let described = json!({"name": "respond", "schema": schema});
            body["response_format"] = json!({"type": "json_schema", "json_schema": described});
        }
        Some((Form::Words, schema)) => {
            let words = json!({"role": "system", "content": schema_words(schema)});
            body["messages"] = json!([&[words], messages].concat());
        }
    }
    body
}

/// Returns instructions for a model to answer according to a schema.
pub(crate) fn schema_words(schema: &Value) -> String {
    format!("Answer with one JSON object of this JSON Schema, and with nothing else: {schema}")
}

#[derive(Deserialize)]
pub(super) struct Reply {
    pub(super) choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Usage {
    total_tokens: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Choice {
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
    #[serde(default)]
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    name: Option<String>,
    arguments: String,
}

/// Call of a tool in a model's answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON, as the model wrote it.
    pub(crate) arguments: String,
}

/// Answer of a model that has tools.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It has said something, and calls nothing.
    Said(String),
    /// It calls tools.
    Called(Vec<Asked>),
}

/// End of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    Cut,
    Filtered,
    Broken,
}

impl End {
    /// Returns the end that a `finish_reason` stands for: those of OpenAI, and those that gateways pass on from other services. A
    /// reason that is not known is that of a whole answer, such as `eos`.
    fn of(reason: &str) -> End {
        match reason.to_ascii_lowercase().as_str() {
            "length" | "max_tokens" | "max_output_tokens" | "model_length" => End::Cut,
            "content_filter" | "safety" | "recitation" | "blocklist" | "prohibited_content" | "spii" => End::Filtered,
            "error" | "failed" | "failure" | "aborted" | "abort" | "cancelled" | "canceled" | "timeout" => End::Broken,
            "network_error" | "server_error" | "malformed_function_call" => End::Broken,
            _ => End::Whole,
        }
    }
}

impl Reply {
    /// Tokens of the request and of this reply, as the service counts them if it does.
    pub(super) fn tokens(&self, request: &Value) -> u64 {
        let told = self.usage.as_ref().and_then(|usage| usage.total_tokens);
        told.unwrap_or_else(|| {
            let answers = self.choices.iter().map(|choice| choice.written().map_or(0, str::len));
            let characters = request["messages"].to_string().len().saturating_add(answers.sum());
            (characters / TOKEN_CHARS) as u64
        })
    }
}

impl Choice {
    /// Returns the model's text: the arguments of a tool call, else the content.
    fn written(&self) -> Option<&str> {
        let called = self.message.tool_calls.as_ref().and_then(|calls| calls.first());
        called.map(|call| call.function.arguments.as_str()).or(self.message.content.as_deref())
    }

    /// Returns the model's answer.
    ///
    /// # Errors
    /// The model refused, gave an empty answer, or was cut off.
    pub(super) fn text(&self, model: &str) -> Result<&str, CallError> {
        let failed = |what: &str| Err(CallError::new(CallErrorKind::Failed, format!("model `{model}` {what}")));
        let finish = self.finish_reason.as_deref().unwrap_or_default();
        if let Some(refusal) = self.message.refusal.as_deref().filter(|refusal| !refusal.is_empty()) {
            return failed(&format!("refused: {refusal}"));
        }
        let end = End::of(finish);
        match self.written().filter(|text| !text.trim().is_empty()) {
            _ if end == End::Filtered => failed("refused: its content filter stopped the answer"),
            _ if end == End::Broken => failed(&format!("failed while it wrote its answer (finish_reason `{finish}`)")),
            None if end == End::Cut => failed("used up its output limit without an answer"),
            Some(text) if end == End::Cut => {
                failed(&format!("was cut off by its output limit after {} characters", text.chars().count()))
            }
            Some(text) => Ok(text),
            None => failed("gave an empty answer"),
        }
    }

    /// Returns the answer as a message of the conversation, and as a turn. Calls without an id or a name get one.
    ///
    /// # Errors
    /// Fails as [`Choice::text`] does.
    pub(super) fn into_turn(self, model: &str) -> Result<(Value, Turn), CallError> {
        let text = self.text(model)?.to_owned();
        let calls = self.message.tool_calls.unwrap_or_default();
        if calls.is_empty() {
            return Ok((json!({"role": "assistant", "content": text}), Turn::Said(text)));
        }
        let asked = |(index, call): (usize, ToolCall)| Asked {
            id: call.id.unwrap_or_else(|| format!("call-{index}")),
            name: call.function.name.unwrap_or_default(),
            arguments: call.function.arguments,
        };
        let calls: Vec<Asked> = calls.into_iter().enumerate().map(asked).collect();
        let told: Vec<Value> = calls
            .iter()
            .map(|Asked { id, name, arguments }| {
                json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
            })
            .collect();
        let message = json!({"role": "assistant", "content": self.message.content, "tool_calls": told});
        Ok((message, Turn::Called(calls)))
    }

    /// Returns the text of the requested object: from the forced tool call, or from the model's text, which may be enclosed
    /// in a code fence of three backticks.
    ///
    /// # Errors
    /// Fails as [`Choice::text`] does.
    pub(super) fn object_text(&self, model: &str) -> Result<&str, CallError> {
        let text = self.text(model)?.trim();
        let fenced = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
        Ok(fenced.and_then(|block| block.split_once('\n')).map_or(text, |(_, inside)| inside.trim()))
    }
}
