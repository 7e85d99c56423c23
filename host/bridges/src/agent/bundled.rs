//! The agent that is there wherever a model is: it asks `[llm]` in a loop, with `eval` as its tool, and its cells run in the session that
//! called it. Read [`Bundled::run`] first.

use std::{io, sync::Arc};

use cellar_core::text::prefix;
use cellar_engine::{
    Cell, Session,
    bridges::{CallError, CallErrorKind},
};
use cellar_secrets::quote;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

use super::AgentRequest;
use crate::{
    llm::{Asked, Conversation, Models, Spent, TokenBudget, Turn},
    options::TIERS,
    schema::{Schema, object_of},
};

/// Answers of the model to one task, after which it is given up.
const TURNS_MAX: usize = 24;
/// Tokens of all questions and answers of one task, as the service counts them.
const TOKENS_MAX: u64 = 400_000;
/// Calls of tools in one answer; more are refused.
const CALLS_MAX: usize = 8;
/// Tokens of the result of cells that the model is shown, as they are estimated.
const RESULT_TOKENS_MAX: usize = 6_000;
/// Bytes of the result of cells in another process that the model is shown.
const RESULT_BYTES_MAX: u64 = 16 << 10;
/// Bytes of the events and the result of one run in another process.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Tool that runs cells, and tool that ends the task with an object.
const EVAL: &str = "eval";
const RESPOND: &str = "respond";

/// A model, and what it may use.
pub(super) struct Bundled {
    pub(super) models: Arc<Models>,
    pub(super) spent: Arc<Spent>,
    pub(super) budget: Option<Arc<dyn TokenBudget>>,
}

impl Bundled {
    /// Works on a task until the model has given its answer. `eval` runs cells, and returns what the model is shown of them.
    ///
    /// # Errors
    /// The model cannot be asked, or does not come to an answer within the bounds.
    ///
    /// # Cancel safety
    /// Dropping the future drops the connection, and cancels the run of its cells.
    pub(super) async fn run<F: Future<Output = String> + Send>(
        self,
        request: AgentRequest,
        eval: impl Fn(Vec<Cell>) -> F + Send + Sync,
    ) -> Result<Value, CallError> {
        let tier = request.model.as_deref().unwrap_or("default");
        if !TIERS.contains(&tier) {
            let message = format!("the bundled agent has the models {}, and not {}", TIERS.join(", "), quote(tier));
            return Err(CallError::new(CallErrorKind::Unknown, message));
        }
        let schema = request.schema.as_ref().map(|value| Schema::of_object(&value.to_string())).transpose();
        let schema = schema.map_err(|fault| CallError::new(CallErrorKind::Invalid, fault))?.map(|(_, schema)| schema);
        let mut conversation = self.models.conversation(tier, &self.spent, self.budget.as_deref())?;
        conversation.tools = tools(request.schema.as_ref());
        let task = match &request.context {
            Some(context) => format!("{}\n\nContext:\n{context}", request.prompt),
            None => request.prompt.clone(),
        };
        conversation.messages.push(json!({"role": "system", "content": instructions(schema.is_some())}));
        conversation.messages.push(json!({"role": "user", "content": task}));
        for turn in 1..=TURNS_MAX {
            if conversation.tokens() > TOKENS_MAX {
                return Err(over(&format!("used its {TOKENS_MAX} tokens")));
            }
            if turn == TURNS_MAX {
                let last = "This is your last turn: give your answer now.";
                conversation.messages.push(json!({"role": "user", "content": last}));
            }
            match self.models.turn(&mut conversation).await? {
                Turn::Said(text) => match &schema {
                    None => return Ok(text.into()),
                    Some(schema) => match object(schema, &text) {
                        Ok(object) => return Ok(object),
                        Err(fault) => {
                            let told = format!(
                                "This is not the object that was asked for: {fault}. Call `{RESPOND}` with it."
                            );
                            conversation.messages.push(json!({"role": "user", "content": told}));
                        }
                    },
                },
                Turn::Called(calls) => {
                    if let Some(answer) = answer_calls(&mut conversation, calls, schema.as_ref(), &eval).await {
                        return Ok(answer);
                    }
                }
            }
        }
        Err(over(&format!("did not come to an answer in {TURNS_MAX} turns")))
    }
}

/// Carries out the calls of one answer, in order. Returns the object that ends the task, if one of them gives it.
async fn answer_calls<F: Future<Output = String> + Send>(
    conversation: &mut Conversation<'_>,
    calls: Vec<Asked>,
    schema: Option<&Schema>,
    eval: &(impl Fn(Vec<Cell>) -> F + Send + Sync),
) -> Option<Value> {
    for (index, Asked { id, name, arguments }) in calls.into_iter().enumerate() {
        let told = match (name.as_str(), schema) {
            _ if index >= CALLS_MAX => format!("Not run: at most {CALLS_MAX} calls are taken at once."),
            (EVAL, _) => match cellar_wire::run_from_json(arguments.as_bytes(), "the call of `eval`") {
                Ok(cells) => eval(cells).await,
                Err(invalid) => invalid.to_string(),
            },
            (RESPOND, Some(schema)) => match object(schema, &arguments) {
                Ok(object) => return Some(object),
                Err(fault) => format!("This is not the object that was asked for: {fault}"),
            },
            (other, _) => format!("There is no tool {}.", quote(other)),
        };
        conversation.messages.push(json!({"role": "tool", "tool_call_id": id, "content": told}));
    }
    None
}

/// Runs cells in the session that called the agent, and returns what the model is shown of them.
pub(super) async fn eval_in(session: &Session, cells: Vec<Cell>) -> String {
    match session.run(cells) {
        Ok(run) => run.collect_result().await.shown_in_tokens(RESULT_TOKENS_MAX).text,
        Err(error) => error.to_string(),
    }
}

/// Runs cells in a session of another process, to which `theirs` of a pair of sockets was handed, as those of a command run there.
///
/// # Errors
/// The other process went away, or says what is no answer.
pub(super) async fn eval_afar(ours: UnixStream, cells: Vec<Cell>) -> io::Result<String> {
    let (read, mut write) = ours.into_split();
    let mut request = cellar_wire::run_json(&cells).to_string().into_bytes();
    request.push(b'\n');
    write.write_all(&request).await?;
    let mut lines = BufReader::new(read.take(ANSWER_BYTES_MAX)).lines();
    while let Some(line) = lines.next_line().await? {
        let value: Value = serde_json::from_str(&line)?;
        let text = match value["type"].as_str() {
            Some("result") => value.pointer("/result/content/0/text").and_then(Value::as_str),
            _ => value.pointer("/error/message").and_then(Value::as_str).filter(|_| value.get("seq").is_none()),
        };
        if let Some(text) = text {
            return Ok(prefix(text, RESULT_BYTES_MAX).to_owned());
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// Parses an object of a schema from a text, which may be fenced.
fn object(schema: &Schema, text: &str) -> Result<Value, String> {
    let text = text.trim();
    let fenced = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let text = fenced.and_then(|block| block.split_once('\n')).map_or(text, |(_, inside)| inside);
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    object_of(schema, &value)?;
    Ok(value)
}

fn over(what: &str) -> CallError {
    CallError::new(CallErrorKind::Limit, format!("the model of the bundled agent {what}"))
}

/// Returns what the model is told of its work.
fn instructions(has_schema: bool) -> String {
    let end = match has_schema {
        true => format!("When the task is done, call `{RESPOND}` with the object that is asked for."),
        false => "When the task is done, answer with the result in plain text, and without a call: that text is handed back as it is."
            .to_owned(),
    };
    format!(
        "You carry out one task for a program that called you, and nobody can answer questions. Call `{EVAL}` to run cells of \
         Python (`py`) or JavaScript (`js`) in a sandbox. You share its session with the caller: the names, imports and files that \
         are there are yours to use, and what you bind there stays for the caller. A cell shows what it prints and the value of its \
         last expression; `await` works at the top level. Names persist from call to call. A cell may take 30 s unless its \
         `timeout` asks for more. {end}"
    )
}

/// Returns the tools of the model: one that runs cells, and one that takes an object of the schema.
fn tools(schema: Option<&Value>) -> Vec<Value> {
    let cell = json!({
        "type": "object",
        "properties": {
            "language": {"type": "string", "enum": ["py", "js"]},
            "code": {"type": "string"},
            "timeout": {"type": "integer", "minimum": 1, "maximum": 600, "description": "Seconds that the cell may take."},
        },
        "required": ["language", "code"],
        "additionalProperties": false,
    });
    let parameters = json!({
        "type": "object",
        "properties": {"cells": {"type": "array", "minItems": 1, "items": cell}},
        "required": ["cells"],
        "additionalProperties": false,
    });
    let function = |name: &str, description: &str, parameters: &Value| {
        json!({
            "type": "function",
            "function": {"name": name, "description": description, "parameters": parameters},
        })
    };
    let eval =
        function(EVAL, "Runs cells, in order, up to the first that fails, and shows what they show.", &parameters);
    let respond = schema.map(|schema| function(RESPOND, "Ends the task with its result.", schema));
    [eval].into_iter().chain(respond).collect()
}

#[cfg(test)]
mod tests;
