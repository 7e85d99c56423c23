//! Administration of the server, with a token of the scope `admin`.

use cellar_wire::unix_seconds;
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    http::{Call, State, answers},
    problem::{Answer, Problem},
    tenant::Tenant,
};

/// Usage and limits of a tenant.
fn usage(state: &State, tenant: &Tenant) -> Value {
    let sessions = tenant.hub.sessions();
    let runs: usize = sessions.iter().map(|(_, runs)| runs.len()).sum();
    let limits = tenant.limits;
    let requests: serde_json::Map<String, Value> =
        state.metrics.of(&tenant.name).into_iter().map(|(status, count)| (status.to_string(), count.into())).collect();
    json!({
        "tenant": tenant.name,
        "sessionsOpen": sessions.len(),
        "runsUnderWay": runs,
        "requestsByStatus": requests,
        "limits": { "sessions": limits.sessions, "runs": limits.runs, "requestsPerSecond": limits.requests_per_second },
        "weight": limits.weight,
        "cpuSeconds": tenant.quotas.cpu().as_secs_f64(),
        "quotas": tenant.quotas.json(),
    })
}

/// `GET /v1/admin/tenants`
pub(crate) async fn tenants(call: Call) -> Answer {
    let tenants: Vec<Value> = call.state.tenants.values().map(|tenant| usage(&call.state, tenant)).collect();
    let is_draining = call.state.lifecycle.is_draining();
    answers::json(StatusCode::OK, &json!({ "tenants": tenants, "isDraining": is_draining }))
}

/// `GET /v1/admin/tenants/{tenant}`
pub(crate) async fn tenant(call: Call, name: &str) -> Answer {
    let tenant = call.state.tenants.get(name).ok_or_else(|| Problem::unknown("tenant"))?;
    let mut usage = usage(&call.state, tenant);
    if let Some(quotas) = usage["quotas"].as_object_mut() {
        quotas.extend(call.quotas_in_front());
    }
    let stored = tenant.hub.stored().await?;
    usage["sessionsStored"] = stored.len().into();
    usage["stateBytes"] = stored.iter().map(|info| info.state_bytes).sum::<u64>().into();
    // What is in sessions is their tenant's: an operator is told of names, sizes and times.
    let sessions: Vec<Value> = stored
        .iter()
        .map(|info| {
            let stored_at = info.stored_at.map(unix_seconds);
            json!({"session": info.name, "stateBytes": info.state_bytes, "storedAt": stored_at, "isOpen": tenant.hub.session(&info.name).is_ok()})
        })
        .collect();
    usage["sessions"] = sessions.into();
    answers::json(StatusCode::OK, &usage)
}

/// `POST /v1/admin/reload`
pub(crate) async fn reload(call: Call) -> Answer {
    call.state.access.reload().map_err(|error| Problem::internal(&error, "token"))?;
    Ok(answers::empty())
}

/// `POST /v1/admin/drain`
pub(crate) async fn drain(call: Call) -> Answer {
    call.state.lifecycle.set_draining(true);
    Ok(answers::empty())
}

/// `DELETE /v1/admin/drain`
pub(crate) async fn resume(call: Call) -> Answer {
    call.state.lifecycle.set_draining(false);
    Ok(answers::empty())
}
