//! Calls that wait for a person: listed, and decided on.

use cellar_hub::DecideError;
use cellar_wire::{Decision, WaitingCallsJson};
use http::StatusCode;
use tokio::task::spawn_blocking;

use crate::{
    http::{Call, answers},
    problem::{Answer, Problem},
};

/// `GET /v1/calls`
pub(crate) async fn list(call: Call) -> Answer {
    call.query(&[])?;
    let approvals = call.tenant.approvals.clone();
    let listed = spawn_blocking(move || approvals.list()).await.map_err(|error| Problem::internal(&error, "task"))?;
    let calls = listed.map_err(|error| Problem::internal(&error, "store"))?;
    answers::json(StatusCode::OK, &WaitingCallsJson { calls })
}

/// `POST /v1/calls/{call}`
pub(crate) async fn decide(mut call: Call, id: &str) -> Answer {
    let by = call.grant.by();
    let decision = Decision::from_json(&call.body().await?, &by)?;
    // The credential is told beside whomever the caller names.
    let by = if decision.by == by { by } else { format!("{} ({by})", decision.by) };
    let decision = Decision { by, ..decision };
    let (approvals, id) = (call.tenant.approvals.clone(), id.to_owned());
    let decided = spawn_blocking(move || approvals.decide(&id, &decision)).await;
    match decided.map_err(|error| Problem::internal(&error, "task"))? {
        Ok(()) => Ok(answers::empty()),
        Err(DecideError::Unknown(_)) => Err(Problem::unknown("call that waits for a decision")),
        Err(DecideError::Io(error)) => Err(Problem::internal(&error, "store")),
        Err(error) => Err(Problem::new(StatusCode::CONFLICT, "decided", error.to_string())),
    }
}
