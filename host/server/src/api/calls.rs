//! Calls of tools that callers answer for: listed, and answered.

use std::time::Duration;

use cellar_wire::reply_body;
use http::StatusCode;
use serde_json::json;

use super::runs::wait_seconds;
use crate::{
    http::{Call, answers},
    problem::{Answer, Problem},
};

/// `GET /v1/sessions/{session}/calls`
pub(crate) async fn list(call: Call, session: &str) -> Answer {
    let asked = call.query(&["wait"])?;
    let wait = wait_seconds(asked.get("wait"))?;
    call.tenant.describe(session).await?;
    let calls = &call.tenant.calls;
    let mut changes = calls.changes();
    let found = async {
        loop {
            let found = calls.of_session(session);
            if !found.is_empty() || changes.changed().await.is_err() {
                return found;
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(wait), found).await.unwrap_or_default();
    answers::json(StatusCode::OK, &json!({ "calls": found }))
}

/// `POST /v1/sessions/{session}/calls/{call}`
pub(crate) async fn reply(mut call: Call, session: &str, name: &str) -> Answer {
    let result = reply_body(&call.body().await?)?;
    answered(call.tenant.calls.reply(session, name, result))
}

/// `POST /v1/runs/{run}/calls/{call}`
pub(crate) async fn reply_in_run(mut call: Call, run: &str, name: &str) -> Answer {
    let result = reply_body(&call.body().await?)?;
    let run = call.tenant.hub.run(run)?;
    answered(call.tenant.calls.reply(run.session_name(), name, result))
}

fn answered(was_waiting: bool) -> Answer {
    if was_waiting { Ok(answers::empty()) } else { Err(Problem::unknown("call that waits for an answer")) }
}
