//! Sessions: opened, shown, changed, removed. What is not in memory is woken by what needs it.

use axum_core::response::IntoResponse;
use cellar_config::Config;
use cellar_wire::{fork_body, reset_body, rewind_body, session_request, times_body};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::{
    configuration::Isolation,
    http::{Call, answers},
    problem::Answer,
    tenant::{Repeat, Tenant, fingerprint},
};

/// `GET /v1/sessions`
pub(crate) async fn list(call: Call) -> Answer {
    let asked = call.query(&["limit", "after"])?;
    let (sessions, next) = answers::page(&asked, call.tenant.list().await?, |session| &session.session)?;
    answers::json(StatusCode::OK, &answers::with_next(json!({ "sessions": sessions }), next))
}

/// `POST /v1/sessions`
pub(crate) async fn create(mut call: Call) -> Answer {
    let bytes = call.body().await?;
    let request = session_request::<Config>(&bytes)?;
    let what = fingerprint(&("session", &bytes[..]));
    let name = match call.tenant.repeat(call.key()?.as_deref(), what)? {
        Repeat::Again(name) => name,
        Repeat::First(ticket) => {
            let name = call.tenant.create(request).await?;
            if let Some(ticket) = ticket {
                ticket.made(&name);
            }
            name
        }
    };
    created(&call.tenant, &name).await
}

pub(super) async fn created(tenant: &Tenant, name: &str) -> Answer {
    let mut response = answers::json(StatusCode::CREATED, &tenant.describe(name).await?)?;
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/sessions/{name}")) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// `GET /v1/sessions/{session}`
pub(crate) async fn show(call: Call, name: &str) -> Answer {
    answers::json(StatusCode::OK, &call.tenant.describe(name).await?)
}

/// `PATCH /v1/sessions/{session}`
pub(crate) async fn change(mut call: Call, name: &str) -> Answer {
    let times = times_body(&call.body().await?)?;
    call.tenant.describe(name).await?;
    call.tenant.change_times(name, times)?;
    answers::json(StatusCode::OK, &call.tenant.describe(name).await?)
}

/// `DELETE /v1/sessions/{session}`
pub(crate) async fn delete(call: Call, name: &str) -> Answer {
    call.tenant.delete(name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /v1/sessions/{session}/reset`
pub(crate) async fn reset(mut call: Call, name: &str) -> Answer {
    let languages = reset_body(&call.body().await?)?;
    let entry = call.tenant.session(name).await?;
    entry.reset(languages).await;
    entry.session.save().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /v1/sessions/{session}/hibernate`
pub(crate) async fn hibernate(call: Call, name: &str) -> Answer {
    call.tenant.session(name).await?.session.hibernate().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /v1/sessions/{session}/fork`
pub(crate) async fn fork(mut call: Call, from: &str) -> Answer {
    let bytes = call.body().await?;
    let new = fork_body(&bytes)?;
    let what = fingerprint(&("fork", from, &bytes[..]));
    let name = match call.tenant.repeat(call.key()?.as_deref(), what)? {
        Repeat::Again(name) => name,
        Repeat::First(ticket) => {
            let name = call.tenant.fork(from, new).await?;
            if let Some(ticket) = ticket {
                ticket.made(&name);
            }
            name
        }
    };
    created(&call.tenant, &name).await
}

/// `POST /v1/sessions/{session}/rewind`
pub(crate) async fn rewind(mut call: Call, name: &str) -> Answer {
    let id = rewind_body(&call.body().await?)?;
    let entry = call.tenant.session(name).await?;
    entry.session.rewind(&call.tenant.snapshot(&id).await?)?;
    entry.session.save().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET /v1/tenant`
pub(crate) async fn tenant(call: Call) -> Answer {
    let sessions = call.tenant.hub.sessions();
    let runs: usize = sessions.iter().map(|(_, runs)| runs.len()).sum();
    let limits = call.tenant.limits;
    let mut body = json!({
        "tenant": call.tenant.name,
        "sessionsOpen": sessions.len(),
        "runsUnderWay": runs,
        "isolation": isolation(&call.state.isolation),
        "limits": { "sessions": limits.sessions, "runs": limits.runs, "requestsPerSecond": limits.requests_per_second },
        "weight": limits.weight,
        "cpuSeconds": call.tenant.quotas.cpu().as_secs_f64(),
        "quotas": call.tenant.quotas.json(),
    });
    if let Some(quotas) = body["quotas"].as_object_mut() {
        quotas.extend(call.quotas_in_front());
    }
    answers::json(StatusCode::OK, &body)
}

/// Confinement of the process that serves this tenant.
fn isolation(isolation: &Isolation) -> serde_json::Value {
    let Isolation { layers, connects, is_of_tenant } = isolation;
    json!({ "landlock": layers.landlock, "seccomp": layers.seccomp, "connects": connects, "ownProcess": is_of_tenant })
}

/// `GET /v1/languages`
pub(crate) async fn languages(call: Call) -> Answer {
    let languages = call.tenant.hub.languages().into_iter();
    let languages: Vec<_> =
        languages.map(|language| json!({"language": language.code(), "title": language.title()})).collect();
    answers::json(StatusCode::OK, &json!({ "languages": languages }))
}
