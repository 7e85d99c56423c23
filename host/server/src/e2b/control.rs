//! Requests to the service: sandboxes made, found, changed and ended.

use std::collections::{BTreeMap, HashMap};

use axum_core::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Map, Value, json};

use super::{
    Account, Call,
    lives::{self, NewSandbox, TIMEOUT_SECONDS, TIMEOUT_SECONDS_MAX, find as found, not_found, unimplemented},
    sandboxes::Sandbox,
    told,
};
use crate::{
    http::Declared,
    problem::{Answer, Problem},
    tenant::{Repeat, fingerprint},
};

/// Version of E2B's own agent whose responses these imitate.
const ENVD_VERSION: &str = "0.6.4";
/// Sandboxes of a page.
const PAGE_MAX: usize = 100;
/// Members of `metadata` and of `envVars`.
const PAIRS_MAX: usize = 1_000;
/// Bytes of all of them.
const PAIRS_BYTES_MAX: usize = 256 << 10;
/// Forks that are made at once.
const FORKS_MAX: u64 = 16;
/// Characters of a name of a snapshot.
const NAME_CHARACTERS_MAX: usize = 100;

/// Operations of the service. Paths are not decoded.
pub(super) static OPERATIONS: [Declared; 18] = [
    Declared::act("POST", "v2/sandboxes"),
    Declared::act("POST", "sandboxes"),
    Declared::look("v2/sandboxes"),
    Declared::look("sandboxes"),
    Declared::look("sandboxes/{id}"),
    Declared::act("DELETE", "sandboxes/{id}"),
    Declared::act("POST", "sandboxes/{id}/timeout"),
    Declared::act("POST", "sandboxes/{id}/refreshes"),
    Declared::act("POST", "sandboxes/{id}/pause"),
    Declared::act("POST", "v2/sandboxes/{id}/connect"),
    Declared::act("POST", "sandboxes/{id}/connect"),
    Declared::act("POST", "sandboxes/{id}/resume"),
    Declared::act("POST", "sandboxes/{id}/fork"),
    Declared::act("POST", "sandboxes/{id}/snapshots"),
    Declared::look("sandboxes/{id}/metrics"),
    Declared::look("snapshots"),
    Declared::act("DELETE", "templates/{id}"),
    Declared::act("PUT", "sandboxes/{id}/network"),
];

/// Refusal of a request that no operation is for.
pub(super) fn refusal(method: &Method, path: &[&str]) -> Problem {
    match path {
        ["templates" | "v2" | "v3" | "volumes" | "secrets" | "teams" | "nodes", ..] => {
            unimplemented(&format!("`{method} /{}`", path.join("/")))
        }
        _ => Problem::unknown("resource"),
    }
}

/// Carries out an operation that is declared.
pub(super) async fn route(call: Call, method: &Method, path: &[&str]) -> Answer {
    match (method.as_str(), path) {
        ("POST", ["v2", "sandboxes"] | ["sandboxes"]) => create(call).await,
        ("GET", ["v2", "sandboxes"]) => list(&call, true),
        ("GET", ["sandboxes"]) => list(&call, false),
        ("GET", ["sandboxes", id]) => show(&call, id),
        ("DELETE", ["sandboxes", id]) => kill(call, id).await,
        ("POST", ["sandboxes", id, "timeout"]) => set_timeout(call, id).await,
        ("POST", ["sandboxes", id, "refreshes"]) => refresh(call, id).await,
        ("POST", ["sandboxes", id, "pause"]) => pause(call, id).await,
        ("POST", ["v2", "sandboxes", id, "connect"] | ["sandboxes", id, "connect" | "resume"]) => {
            connect(call, id).await
        }
        ("POST", ["sandboxes", id, "fork"]) => fork(call, id).await,
        ("POST", ["sandboxes", id, "snapshots"]) => take_snapshot(call, id).await,
        ("GET", ["sandboxes", id, "metrics"]) => {
            found(&call.account, id)?;
            Ok(told(StatusCode::OK, &json!([])))
        }
        ("GET", ["snapshots"]) => snapshots(&call),
        ("DELETE", ["templates", id]) => delete_snapshot(call, id).await,
        ("PUT", ["sandboxes", _, "network"]) => Err(unimplemented("a change of a sandbox's network")),
        _ => Err(refusal(method, path)),
    }
}

/// A time as the wire has it.
fn time(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(DateTime::from_timestamp_millis).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Returns the description of a sandbox for a client that is to use it, with its token.
fn joined(sandbox: &Sandbox, token: &str) -> Value {
    let token = sandbox.token(token);
    json!({
        "templateID": sandbox.template,
        "sandboxID": sandbox.id,
        "clientID": "cellar",
        "alias": sandbox.template,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": token,
        // Requests that carry the first do not all carry the second, and the other way round.
        "trafficAccessToken": token,
    })
}

/// Returns the full description of a sandbox.
fn detail(account: &Account, sandbox: &Sandbox) -> Value {
    let limits = account.tenant.hub.session(&sandbox.id).ok().map(|entry| entry.session.limits().clone());
    let limits = limits.unwrap_or_default();
    let mib = |bytes: u64| bytes >> 20;
    json!({
        "templateID": sandbox.template,
        "alias": sandbox.template,
        "sandboxID": sandbox.id,
        "clientID": "cellar",
        "startedAt": time(sandbox.started_at),
        "endAt": time(sandbox.end_at),
        "envdVersion": ENVD_VERSION,
        "cpuCount": 1,
        "memoryMB": mib(limits.memory_bytes),
        "diskSizeMB": mib(limits.disk_bytes),
        "state": if sandbox.is_paused { "paused" } else { "running" },
        "metadata": sandbox.metadata,
        "lifecycle": {
            "autoResume": sandbox.auto_resume,
            "onTimeout": if sandbox.auto_pause { "pause" } else { "kill" },
        },
    })
}

/// A member that is a whole number within bounds.
fn number(object: &Map<String, Value>, name: &str, most: u64) -> Result<Option<u64>, Problem> {
    let value = match object.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value.as_u64().filter(|value| *value <= most),
    };
    let bad = || Problem::bad(format!("`{name}` is a whole number from 0 to {most}"));
    value.map(Some).ok_or_else(bad)
}

fn timeout(object: &Map<String, Value>) -> Result<Option<u64>, Problem> {
    number(object, "timeout", TIMEOUT_SECONDS_MAX)
}

fn boolean(object: &Map<String, Value>, name: &str, usual: bool) -> Result<bool, Problem> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(usual),
        Some(value) => value.as_bool().ok_or_else(|| Problem::bad(format!("`{name}` is true or false"))),
    }
}

/// A member that has texts under names.
pub(super) fn pairs(object: &Map<String, Value>, name: &str) -> Result<BTreeMap<String, String>, Problem> {
    let bad = || Problem::bad(format!("`{name}` is an object whose values are texts"));
    let pairs = match object.get(name) {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(value) => value.as_object().ok_or_else(bad)?,
    };
    let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    let texts: BTreeMap<String, String> = pairs.iter().map(pair).collect::<Option<_>>().ok_or_else(bad)?;
    let bytes: usize = texts.iter().map(|(key, value)| key.len().saturating_add(value.len())).sum();
    if texts.len() > PAIRS_MAX || bytes > PAIRS_BYTES_MAX {
        let detail = format!("`{name}` may have {PAIRS_MAX} members and {PAIRS_BYTES_MAX} bytes");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "limit", detail));
    }
    Ok(texts)
}

/// Environment variables.
pub(super) fn environment(object: &Map<String, Value>, name: &str) -> Result<Vec<(String, String)>, Problem> {
    let variables = pairs(object, name)?;
    let is_bad =
        |(key, value): &(&String, &String)| key.is_empty() || key.contains(['=', '\0']) || value.contains('\0');
    if variables.iter().any(|pair| is_bad(&pair)) {
        return Err(Problem::bad(format!("a name in `{name}` is not empty and has no `=`; nothing in it has a NUL")));
    }
    Ok(variables.into_iter().collect())
}

async fn create(mut call: Call) -> Answer {
    let object = call.object().await?;
    for (name, what) in
        [("mcp", "`mcp`"), ("iam", "`iam`"), ("volumeMounts", "`volumeMounts`"), ("network", "`network`")]
    {
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(object) => object.is_empty(),
            _ => false,
        };
        if !object.get(name).is_none_or(is_empty) {
            return Err(unimplemented(&format!("{what} of a sandbox")));
        }
    }
    let template = match object.get("templateID") {
        None | Some(Value::Null) => "code-interpreter-v1",
        Some(value) => value.as_str().ok_or_else(|| Problem::bad("`templateID` is a text"))?,
    };
    let auto_resume = match object.get("autoResume") {
        None | Some(Value::Null) => false,
        Some(Value::Object(policy)) => boolean(policy, "enabled", false)?,
        Some(_) => return Err(Problem::bad("`autoResume` is an object")),
    };
    let new = NewSandbox {
        template: template.to_owned(),
        timeout: timeout(&object)?,
        metadata: pairs(&object, "metadata")?,
        environment: environment(&object, "envVars")?,
        auto_pause: boolean(&object, "autoPause", false)?,
        auto_resume,
    };
    let key = call.headers.get("idempotency-key").and_then(|key| key.to_str().ok()).filter(|key| key.len() <= 255);
    let what = fingerprint(&("sandbox", Value::Object(object).to_string()));
    let sandbox = match call.account.tenant.repeat(key, what)? {
        Repeat::Again(id) => found(&call.account, &id)?,
        Repeat::First(ticket) => {
            let sandbox = lives::create(&call.account, new).await?;
            if let Some(ticket) = ticket {
                ticket.made(&sandbox.id);
            }
            sandbox
        }
    };
    Ok(told(StatusCode::CREATED, &joined(&sandbox, &call.token)))
}

fn show(call: &Call, id: &str) -> Answer {
    let sandbox = found(&call.account, id)?;
    Ok(told(StatusCode::OK, &detail(&call.account, &sandbox)))
}

async fn kill(call: Call, id: &str) -> Answer {
    found(&call.account, id)?;
    match lives::remove(&call.account, id).await {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(not_found(id)),
    }
}

async fn set_timeout(mut call: Call, id: &str) -> Answer {
    let object = call.object().await?;
    let seconds = timeout(&object)?.ok_or_else(|| Problem::bad("`timeout` is missing: seconds from now"))?;
    lives::set_timeout(&call.account, id, seconds)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn refresh(mut call: Call, id: &str) -> Answer {
    let object = call.object().await?;
    let seconds = number(&object, "duration", TIMEOUT_SECONDS_MAX)?.unwrap_or(TIMEOUT_SECONDS);
    found(&call.account, id)?;
    lives::resume(&call.account, id, seconds, true).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn pause(mut call: Call, id: &str) -> Answer {
    let object = call.object().await?;
    match lives::pause(&call.account, id, boolean(&object, "memory", true)?).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(Problem::new(StatusCode::CONFLICT, "paused", format!("Sandbox {id} is paused already"))),
    }
}

async fn connect(mut call: Call, id: &str) -> Answer {
    let object = call.object().await?;
    let seconds = timeout(&object)?.unwrap_or(TIMEOUT_SECONDS);
    let (sandbox, was_paused) = lives::resume(&call.account, id, seconds, boolean(&object, "memory", true)?).await?;
    let status = if was_paused { StatusCode::CREATED } else { StatusCode::OK };
    Ok(told(status, &joined(&sandbox, &call.token)))
}

async fn fork(mut call: Call, id: &str) -> Answer {
    let object = call.object().await?;
    let count = number(&object, "count", FORKS_MAX)?.unwrap_or(1);
    let seconds = timeout(&object)?.unwrap_or(TIMEOUT_SECONDS);
    let from = found(&call.account, id)?;
    let mut forks = Vec::new();
    for _ in 0..count {
        forks.push(match lives::fork(&call.account, &from, seconds).await {
            Ok(sandbox) => json!({ "sandbox": joined(&sandbox, &call.token) }),
            Err(problem) => json!({ "error": { "code": problem.status().as_u16(), "message": problem.words() } }),
        });
    }
    Ok(told(StatusCode::CREATED, &Value::Array(forks)))
}

fn snapshot_json(snapshot: &Sandbox) -> Value {
    json!({ "snapshotID": snapshot.id, "names": snapshot.name.iter().collect::<Vec<_>>() })
}

async fn take_snapshot(mut call: Call, id: &str) -> Answer {
    let object = call.object().await?;
    if !boolean(&object, "memory", true)? {
        return Err(unimplemented("a snapshot of the files alone"));
    }
    let name = match object.get("name") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
            let is_name =
                |name: &&str| !name.is_empty() && name.len() <= NAME_CHARACTERS_MAX && name.chars().all(is_plain);
            let bad = || format!("`name` has letters, digits and `-_./`, {NAME_CHARACTERS_MAX} at most");
            Some(value.as_str().filter(is_name).ok_or_else(|| Problem::bad(bad()))?.to_owned())
        }
    };
    let from = found(&call.account, id)?;
    let snapshot = lives::take_snapshot(&call.account, &from, name).await?;
    Ok(told(StatusCode::CREATED, &snapshot_json(&snapshot)))
}

async fn delete_snapshot(call: Call, id: &str) -> Answer {
    let id = percent_decoded(id);
    let snapshot = call.account.sandboxes.snapshot(&id).ok_or_else(|| not_found(&id))?;
    lives::remove(&call.account, &snapshot.id).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn snapshots(call: &Call) -> Answer {
    let (of, name) = (call.asked("sandboxID"), call.asked("name"));
    let is_asked = |snapshot: &Sandbox| {
        of.as_ref().is_none_or(|id| snapshot.snapshot_of.as_ref() == Some(id))
            && name.as_ref().is_none_or(|name| snapshot.name.as_ref() == Some(name))
    };
    let mut list = call.account.sandboxes.list(true);
    list.retain(is_asked);
    page(call, list, snapshot_json)
}

fn list(call: &Call, with_paused: bool) -> Answer {
    let states: Option<Vec<String>> = call.asked("state").map(|states| states.split(',').map(str::to_owned).collect());
    let is_state = |sandbox: &Sandbox| {
        let state = if sandbox.is_paused { "paused" } else { "running" };
        match &states {
            Some(states) => states.iter().any(|asked| asked == state),
            None => with_paused || !sandbox.is_paused,
        }
    };
    // Both names and values are written as in a query, and then once more.
    let metadata: HashMap<String, String> = match call.asked("metadata") {
        Some(text) => url::form_urlencoded::parse(text.as_bytes())
            .map(|(name, value)| (percent_decoded(&name), percent_decoded(&value)))
            .collect(),
        None => HashMap::new(),
    };
    let template = call.asked("template");
    let since = match call.asked("startedAfter") {
        Some(text) => {
            let bad = |_| Problem::bad("`startedAfter` is a time, such as `2026-01-31T12:00:00Z`");
            Some(DateTime::parse_from_rfc3339(&text.replace(' ', "+")).map_err(bad)?.timestamp_millis())
        }
        None => None,
    };
    let now = lives::now();
    let mut list = call.account.sandboxes.list(false);
    list.retain(|sandbox| {
        let is_there = sandbox.auto_pause || !sandbox.is_due(now);
        is_there
            && is_state(sandbox)
            && metadata.iter().all(|(name, value)| sandbox.metadata.get(name) == Some(value))
            && template.as_ref().is_none_or(|template| sandbox.template == *template)
            && since.is_none_or(|since| i64::try_from(sandbox.started_at).is_ok_and(|started| started > since))
    });
    page(call, list, |sandbox| detail(&call.account, sandbox))
}

/// Returns a page of a list that is ordered from the oldest on; the newest come first unless the request says
/// otherwise.
fn page(call: &Call, mut list: Vec<Sandbox>, json: impl Fn(&Sandbox) -> Value) -> Answer {
    match call.asked("order").as_deref() {
        None | Some("desc") => list.reverse(),
        Some("asc") => {}
        Some(_) => return Err(Problem::bad("`order` is `asc` or `desc`")),
    }
    let limit = match call.asked("limit") {
        None => PAGE_MAX,
        Some(text) => {
            let limit = text.parse::<usize>().ok().filter(|limit| *limit > 0);
            limit.ok_or_else(|| Problem::bad("`limit` is a whole number from 1 on"))?.min(PAGE_MAX)
        }
    };
    // A page begins behind the last of the page before, which may be gone.
    let start = match call.asked("nextToken") {
        None => 0,
        Some(token) => {
            let bad = || Problem::bad("`nextToken` is what came with the page before");
            let (started_at, id) = token.split_once('-').ok_or_else(bad)?;
            let last = (started_at.parse::<u64>().map_err(|_| bad())?, id);
            let is_newest_first = call.asked("order").as_deref() != Some("asc");
            list.iter()
                .take_while(|entry| {
                    let place = (entry.started_at, entry.id.as_str());
                    if is_newest_first { place >= last } else { place <= last }
                })
                .count()
        }
    };
    let shown: Vec<&Sandbox> = list.iter().skip(start).take(limit).collect();
    let mut response: Response =
        told(StatusCode::OK, &Value::Array(shown.iter().map(|sandbox| json(sandbox)).collect()));
    if let Some(last) = shown.last().filter(|_| start.saturating_add(shown.len()) < list.len())
        && let Ok(token) = HeaderValue::from_str(&format!("{}-{}", last.started_at, last.id))
    {
        response.headers_mut().insert(HeaderName::from_static("x-next-token"), token);
    }
    Ok(response)
}

/// Decodes the `%XX` of a text; invalid UTF-8 is replaced by a mark.
fn percent_decoded(text: &str) -> String {
    // In a query `+` is a space, here it is itself.
    let text = text.replace('+', "%2B");
    let pair = format!("x={}", text.replace('&', "%26").replace('=', "%3D"));
    let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
    pairs.next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_decoded_once() {
        assert_eq!(percent_decoded("a%20b+c%2525&=d%zz"), "a b+c%25&=d%zz");
    }

    #[test]
    fn members_are_what_they_should_be() {
        let object = |value: Value| value.as_object().cloned().expect("an object");
        assert_eq!(timeout(&object(json!({"timeout": 5}))).expect("valid"), Some(5));
        for value in [json!(-1), json!("5"), json!(1e300), json!(5.5), json!([])] {
            assert!(timeout(&object(json!({"timeout": value}))).is_err(), "{value}");
        }
        for value in [json!([]), json!({"a": 1}), json!("a"), json!({"a": "x".repeat(PAIRS_BYTES_MAX)})] {
            assert!(pairs(&object(json!({"metadata": value})), "metadata").is_err(), "{value}");
        }
        for (name, value) in [("", "x"), ("A=B", "x"), ("A", "\0")] {
            assert!(environment(&object(json!({"envVars": {name: value}})), "envVars").is_err(), "{name:?}");
        }
    }
}
