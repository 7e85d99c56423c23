//! What whoever runs the server may ask and do, with a token of the scope `admin`.

use cellar_wire::unix_seconds;
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    Server,
    problem::{Answer, Problem},
    router::{self, Call},
    tenant::Tenant,
    workers,
};

/// What a tenant uses, and what it may.
fn usage(server: &Server, tenant: &Tenant) -> Value {
    let sessions = tenant.hub.sessions();
    let runs: usize = sessions.iter().map(|(_, runs)| runs.len()).sum();
    let (sessions_max, runs_max, requests_per_second) = tenant.limits();
    let requests: serde_json::Map<String, Value> = server
        .0
        .metrics
        .of(&tenant.name)
        .into_iter()
        .map(|(status, count)| (status.to_string(), count.into()))
        .collect();
    json!({
        "tenant": tenant.name,
        "sessionsOpen": sessions.len(),
        "runsUnderWay": runs,
        "requestsByStatus": requests,
        "limits": { "sessions": sessions_max, "runs": runs_max, "requestsPerSecond": requests_per_second },
        "weight": tenant.weight,
        "cpuSeconds": tenant.quotas.cpu().as_secs_f64(),
        "quotas": tenant.quotas.json(),
    })
}

/// `GET /v1/admin/tenants`
pub(crate) fn tenants(call: &Call) -> Answer {
    let tenants: Vec<Value> = call.server.0.tenants.values().map(|tenant| usage(&call.server, tenant)).collect();
    let is_draining = *call.server.0.is_draining.borrow();
    router::json(StatusCode::OK, &json!({ "tenants": tenants, "isDraining": is_draining }))
}

/// `GET /v1/admin/tenants/{tenant}`
pub(crate) async fn tenant(call: Call, name: &str) -> Answer {
    let tenant = call.server.0.tenants.get(name).ok_or_else(|| Problem::unknown("tenant"))?;
    let mut usage = usage(&call.server, tenant);
    if let Some(quotas) = usage["quotas"].as_object_mut() {
        quotas.extend(workers::quotas_in_front(&call.server, &call.headers));
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
    router::json(StatusCode::OK, &usage)
}

/// `POST /v1/admin/reload`
pub(crate) fn reload(call: &Call) -> Answer {
    call.server.reload().map_err(|error| Problem::internal(&error, "token"))?;
    Ok(router::empty())
}

/// `POST` and `DELETE /v1/admin/drain`
pub(crate) fn drain(call: &Call, is_draining: bool) -> Answer {
    call.server.0.is_draining.send_replace(is_draining);
    Ok(router::empty())
}
