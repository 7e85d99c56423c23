//! The states of a session that are kept: listed, gone back to, branched from, compared, named, pinned, forgotten.

use axum_core::response::IntoResponse as _;
use cellar_engine::states::StateChange;
use cellar_hub::{state_diff_json, state_json, states_json};
use cellar_wire::{fork_body, state_body};
use http::StatusCode;

use super::sessions::created;
use crate::{
    http::{Call, answers},
    problem::Answer,
    tenant::{Repeat, fingerprint},
};

/// `GET /v1/sessions/{session}/states`
pub(crate) async fn list(call: Call, name: &str) -> Answer {
    let list = call.tenant.session(name).await?.session.states().await?;
    answers::json(StatusCode::OK, &states_json(&list))
}

/// `PATCH /v1/sessions/{session}/states/{state}`
pub(crate) async fn change(mut call: Call, name: &str, state: &str) -> Answer {
    let (named, is_pinned) = state_body(&call.body().await?)?;
    let session = call.tenant.session(name).await?.session;
    let info = session.change_state(state, StateChange { name: named, is_pinned }).await?;
    answers::json(StatusCode::OK, &state_json(&info))
}

/// `DELETE /v1/sessions/{session}/states/{state}`
pub(crate) async fn forget(call: Call, name: &str, state: &str) -> Answer {
    call.tenant.session(name).await?.session.forget_state(state).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /v1/sessions/{session}/states/{state}/back`
pub(crate) async fn back(call: Call, name: &str, state: &str) -> Answer {
    let info = call.tenant.session(name).await?.session.back(state).await?;
    answers::json(StatusCode::OK, &state_json(&info))
}

/// `POST /v1/sessions/{session}/states/{state}/branch`
pub(crate) async fn branch(mut call: Call, from: &str, state: &str) -> Answer {
    let bytes = call.body().await?;
    let new = fork_body(&bytes)?;
    let what = fingerprint(&("branch", from, state, &bytes[..]));
    let name = match call.tenant.repeat(call.key()?.as_deref(), what)? {
        Repeat::Again(name) => name,
        Repeat::First(ticket) => {
            let name = call.tenant.branch(from, state, new).await?;
            if let Some(ticket) = ticket {
                ticket.made(&name);
            }
            name
        }
    };
    created(&call.tenant, &name).await
}

/// `GET /v1/sessions/{session}/states/{state}/diff/{other}`
pub(crate) async fn diff(call: Call, name: &str, state: &str, other: &str) -> Answer {
    let diff = call.tenant.session(name).await?.session.compare(state, other).await?;
    answers::json(StatusCode::OK, &state_diff_json(&diff))
}
