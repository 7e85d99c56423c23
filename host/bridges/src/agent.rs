//! `agent(…)`: a command that may run cells in the session that called it.

use std::{fmt, io, path::Path, sync::Arc};

use cellar_engine::{AgentCall, CallError, CallErrorKind, Caller, Response, Session, limits::AGENT_DEPTH_MAX};
use serde_json::{Value, json};

use super::{
    command, json_text,
    schema::{Schema, object_of},
};
use crate::options::Agent;

/// The variable that tells an agent where its session is.
pub const SOCKET_VARIABLE: &str = "CELLAR_SESSION_SOCKET";

/// A way into a session for another process; closed when dropped.
pub trait Door: Send + Sync {
    /// Its socket, which goes to the agent as [`SOCKET_VARIABLE`].
    fn path(&self) -> &Path;
}

/// Opens doors. What is spoken through them is the embedder's business.
pub trait Doors: Send + Sync + fmt::Debug {
    /// Opens a door to `session` for one agent.
    ///
    /// # Errors
    /// The socket cannot be made.
    fn open(&self, session: Session) -> io::Result<Box<dyn Door>>;
}

/// Runs an agent to its end.
///
/// # Cancel safety
/// Dropping the future kills the command and ends the runs it made in the session.
pub(super) async fn call(
    agent: Arc<Agent>,
    doors: Option<Arc<dyn Doors>>,
    asked: AgentCall,
    caller: Caller,
) -> Result<Response, CallError> {
    let who = format!("agent `{}`", asked.agent_type);
    let depth = caller.depth + 1;
    if depth > AGENT_DEPTH_MAX {
        let message = format!("{who} would be nested {depth} deep, at most {AGENT_DEPTH_MAX} are allowed");
        return Err(CallError::new(CallErrorKind::Limit, message));
    }
    let schema = asked.schema.as_deref().map(Schema::of_object).transpose().map_err(|fault| {
        CallError::new(CallErrorKind::Invalid, format!("{who} cannot be given this schema: {fault}"))
    })?;
    let request = json!({
        "prompt": asked.prompt,
        "context": asked.context,
        "label": asked.label,
        "model": asked.model,
        "schema": schema.as_ref().map(|(value, _)| value),
        "session": caller.session.id(),
        "depth": depth,
    });
    let open = |doors: Arc<dyn Doors>| doors.open(caller.session.for_agent(depth));
    let door = doors.map(open).transpose().map_err(|error| {
        tracing::warn!(%error, "{who} cannot be given its session");
        // The error itself may name a folder of the host.
        let kind = error.kind();
        CallError::new(CallErrorKind::Failed, format!("{who} cannot be given its session: {kind}"))
    })?;
    let socket = door.as_ref().map(|door| door.path().to_string_lossy().into_owned());
    let variables: Vec<_> = socket.iter().map(|path| (SOCKET_VARIABLE, path.as_str())).collect();
    let input = request.to_string().into_bytes();
    let output = command::run(&agent.command, &who, input, &variables).await?;
    drop(door);
    answer(&who, schema.map(|(_, schema)| schema), json_text(&who, output)?)
}

/// The `output` of an agent, as the caller asked for it.
fn answer(who: &str, schema: Option<Schema>, text: String) -> Result<Response, CallError> {
    let failed = |what: String| CallError::new(CallErrorKind::Failed, format!("{who} {what}"));
    let mut reply: Value = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let Some(output) = reply.get_mut("output").map(Value::take) else {
        return Err(failed("printed no `output`; it must print {\"output\": …}".to_owned()));
    };
    let Some(schema) = schema else {
        return Ok(Response::Text(match output {
            Value::String(text) => text,
            other => other.to_string(),
        }));
    };
    // Agents that only have text to give put the object into it.
    let object = match &output {
        Value::String(text) => serde_json::from_str(text).unwrap_or(output),
        _ => output,
    };
    let object =
        object_of(&schema, &object).map_err(|fault| failed(format!("gave no object of the schema: {fault}")))?;
    Ok(Response::Json(object))
}
