//! The routes, and what stands before them: who asks, how often, and whether there is time for it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use cellar_core::{limits::REQUEST_VALUES_MAX, mime::json_values};
use http::{HeaderMap, Method, Request, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;

use crate::{
    Server,
    access::{self, Scope, oauth},
    api::{admin, calls, files, looks, openapi, operations, runs, sessions, stdio, stores},
    e2b,
    http::{metrics, traces::Told},
    jupyter,
    problem::{Answer, Problem},
    tenant::Tenant,
    workers,
};

/// How long the body of a request that is not a file may take to come.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of an Idempotency-Key.
const KEY_BYTES_MAX: usize = 255;

/// A request that was let through.
pub(crate) struct Call {
    pub(crate) server: Server,
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) headers: HeaderMap,
    query: Option<String>,
    body: Body,
}

/// Answers a request.
pub(crate) async fn answer(server: Server, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    server.learn_keys(&parts.headers).await;
    let (parts, body) = match workers::pass(&server, parts, body).await {
        Ok(response) => return response,
        Err(own) => own,
    };
    if let Some(asked) = e2b::Asked::of(&parts) {
        return e2b::answer(server, asked, parts, body).await;
    }
    if parts.uri.path().starts_with(jupyter::PREFIX) {
        return jupyter::answer(server, parts, body).await;
    }
    let is_asked = parts.method == Method::GET || parts.method == Method::HEAD;
    match parts.uri.path() {
        "/healthz" if is_asked => return "ok\n".into_response(),
        "/readyz" if is_asked && *server.0.is_draining.borrow() => return Problem::draining().into_response(),
        "/readyz" if is_asked => return "ready\n".into_response(),
        "/metrics" if is_asked => return metrics::show(&server, &parts.headers).await.into_response(),
        "/openapi.json" if is_asked => return openapi::show().into_response(),
        path if server.0.workers.is_some() && path.starts_with("/v1/admin/") => {
            return workers::admin(&server, &parts).await;
        }
        path if path == "/mcp" || path.starts_with("/v1/") => {}
        path if path.starts_with(oauth::METADATA) && is_asked => return server.resource_metadata().into_response(),
        _ => return Problem::unknown("resource").into_response(),
    }
    let names = names(parts.uri.path());
    let names: Result<Vec<&str>, &Problem> =
        names.as_ref().map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
    let place: &[&str] = names.as_deref().unwrap_or_default();
    let scope = match place {
        ["admin", ..] => Scope::Admin,
        // What comes over them may be anything.
        ["stdio"] | ["sessions", _, "stdio"] => Scope::Run,
        _ if is_asked => Scope::Read,
        _ => Scope::Run,
    };
    let told = told(parts.uri.path());
    let tenant = match server.caller(&parts.headers, scope) {
        Ok(tenant) => tenant,
        Err(problem) => {
            let mut response = problem.into_response();
            server.challenge(&mut response);
            server.0.metrics.count(None, response.status());
            return response;
        }
    };
    let answered = match (tenant.admit(), names.is_ok()) {
        (Err(problem), _) => Err(problem),
        (Ok(()), _) if parts.uri.path() == "/mcp" => match *server.0.is_draining.borrow() && !is_asked {
            true => Err(Problem::draining()),
            false => Ok(()),
        },
        (Ok(()), false) => Err(Problem::bad(NOT_UTF8)),
        (Ok(()), true) => Ok(()),
    };
    let answered = match answered {
        Ok(()) if parts.uri.path() == "/mcp" => server.mcp(&tenant, parts, body).await,
        Ok(()) => {
            let query = parts.uri.query().map(str::to_owned);
            let method = parts.method.clone();
            match (method, place) {
                (Method::GET, ["stdio"]) => stdio::connect(&server, tenant.clone(), None, parts).await,
                (Method::GET, ["sessions", session, "stdio"]) => {
                    let session = Some((*session).to_owned());
                    stdio::connect(&server, tenant.clone(), session, parts).await
                }
                (method, place) => {
                    let (server, tenant) = (server.clone(), tenant.clone());
                    route(Call { server, tenant, headers: parts.headers, query, body }, &method, place).await
                }
            }
        }
        Err(problem) => Err(problem),
    };
    let mut response = answered.unwrap_or_else(Problem::into_response);
    server.0.metrics.count(Some(&tenant.name), response.status());
    response.extensions_mut().insert(Told { tenant: Some(tenant.name.clone()), route: told });
    if let Some(rate) = tenant.rate() {
        tell_rate(&mut response, rate);
    }
    response
}

/// Tells how many requests a tenant may still make, as `draft-ietf-httpapi-ratelimit-headers` has it.
fn tell_rate(response: &mut Response, (most, left, seconds): (u64, u64, u64)) {
    let headers = response.headers_mut();
    for (name, text) in [
        ("ratelimit-policy", format!("\"requests\";q={most};w=1")),
        ("ratelimit", format!("\"requests\";r={left};t={seconds}")),
    ] {
        if let Ok(value) = text.parse() {
            headers.insert(name, value);
        }
    }
}

/// What collectors are told that a request is for.
pub(crate) fn told(path: &str) -> Option<&'static str> {
    if path == "/mcp" {
        return Some("/mcp");
    }
    let names = names(path).ok().filter(|_| path.starts_with("/v1/"))?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    operations::at(&names).map(|operation| operation.path).next()
}

/// The names of a path, behind the first.
fn names(path: &str) -> Result<Vec<String>, Problem> {
    path.split('/').skip(2).map(decoded).collect()
}

/// Finds what a request is for. The path of a file may have any number of names, and all else is as long as it is.
async fn route(call: Call, method: &Method, names: &[&str]) -> Answer {
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let known: Vec<&str> = operations::at(names).map(|operation| operation.method).collect();
    if known.is_empty() {
        return Err(Problem::unknown("resource"));
    }
    let Some(operation) = operations::at(names).find(|operation| operation.method == method.as_str()) else {
        let detail = format!("{method} has no meaning here; {} has", cellar_core::text::list(&known));
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail));
    };
    if operation.starts_work() && *call.server.0.is_draining.borrow() {
        return Err(Problem::draining());
    }
    match (method.as_str(), names) {
        ("POST", ["eval"]) => runs::eval(call).await,
        ("GET", ["sessions"]) => sessions::list(call).await,
        ("POST", ["sessions"]) => sessions::create(call).await,
        ("GET", ["sessions", session]) => sessions::show(call, session).await,
        ("PATCH", ["sessions", session]) => sessions::change(call, session).await,
        ("DELETE", ["sessions", session]) => sessions::delete(call, session).await,
        ("GET", ["sessions", session, "calls"]) => calls::list(call, session).await,
        ("POST", ["sessions", session, "calls", name]) => calls::reply(call, session, name).await,
        ("POST", ["sessions", session, "reset"]) => sessions::reset(call, session).await,
        ("POST", ["sessions", session, "hibernate"]) => sessions::hibernate(call, session).await,
        ("POST", ["sessions", session, "fork"]) => sessions::fork(call, session).await,
        ("POST", ["sessions", session, "rewind"]) => sessions::rewind(call, session).await,
        ("POST", ["sessions", session, "runs"]) => runs::start(call, session).await,
        ("POST", ["sessions", session, "snapshots"]) => stores::take_snapshot(call, session).await,
        ("POST", ["sessions", session, "complete"]) => looks::complete(call, session).await,
        ("POST", ["sessions", session, "inspect"]) => looks::inspect(call, session).await,
        ("GET", ["sessions", session, "origins"]) => looks::origins(call, session).await,
        ("GET", ["sessions", session, "variables"]) => looks::variables(call, session).await,
        ("GET", ["sessions", session, "variables", name]) => looks::value(call, session, name).await,
        ("GET", ["sessions", session, "files", path @ ..]) => files::read(call, session, path).await,
        ("PUT", ["sessions", session, "files", path @ ..]) => files::write(call, session, path).await,
        ("DELETE", ["sessions", session, "files", path @ ..]) => files::remove(call, session, path).await,
        ("GET", ["runs", run]) => runs::show(call, run).await,
        ("GET", ["runs", run, "events"]) => runs::events(call, run).await,
        ("GET", ["runs", run, "outputs"]) => runs::outputs(call, run, None).await,
        ("GET", ["runs", run, "outputs", output]) => runs::outputs(call, run, Some(output)).await,
        ("POST", ["runs", run, "cancel"]) => runs::cancel(call, run).await,
        ("POST", ["runs", run, "input"]) => runs::input(call, run).await,
        ("POST", ["runs", run, "calls", name]) => calls::reply_in_run(call, run, name).await,
        ("GET", ["snapshots"]) => stores::snapshots(call).await,
        ("GET", ["snapshots", snapshot]) => stores::read_snapshot(call, snapshot).await,
        ("DELETE", ["snapshots", snapshot]) => stores::delete_snapshot(call, snapshot).await,
        ("GET", ["artifacts"]) => stores::artifacts(call).await,
        ("GET", ["artifacts", artifact]) => stores::read_artifact(call, artifact).await,
        ("GET", ["tenant"]) => sessions::tenant(call).await,
        ("GET", ["languages"]) => sessions::languages(call).await,
        ("GET", ["admin", "tenants"]) => admin::tenants(&call),
        ("GET", ["admin", "tenants", tenant]) => admin::tenant(call, tenant).await,
        ("POST", ["admin", "reload"]) => admin::reload(&call),
        ("POST", ["admin", "drain"]) => admin::drain(&call, true),
        ("DELETE", ["admin", "drain"]) => admin::drain(&call, false),
        _ => Err(Problem::unknown("resource")),
    }
}

/// What is said of a path that is no text.
const NOT_UTF8: &str = "the path of this request is no UTF-8 text with `%XX` in the place of other bytes";

/// A name in a path, without its `%XX`.
pub(crate) fn decoded(name: &str) -> Result<String, Problem> {
    let bad = || Problem::bad(NOT_UTF8);
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let ([high, low], tail) = rest.split_first_chunk().ok_or_else(bad)?;
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (high, low) = digit(high).zip(digit(low)).ok_or_else(bad)?;
        bytes.push(high << 4 | low);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

impl Call {
    /// The body, of a request that is not a file's.
    pub(crate) async fn body(&mut self) -> Result<Bytes, Problem> {
        self.server.body(std::mem::take(&mut self.body)).await
    }

    /// The body as it comes.
    pub(crate) fn stream(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }

    /// What stands behind `?`: names that are known here, each once at most.
    pub(crate) fn asked(&self, known: &[&str]) -> Result<HashMap<String, String>, Problem> {
        let mut asked = HashMap::new();
        for (name, value) in url::form_urlencoded::parse(self.query.as_deref().unwrap_or_default().as_bytes()) {
            if !known.contains(&name.as_ref()) {
                let known = if known.is_empty() { "nothing".to_owned() } else { cellar_core::text::list(known) };
                return Err(Problem::bad(format!("`{name}` is not known behind `?`; known is {known}")));
            }
            if asked.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                return Err(Problem::bad(format!("`{name}` is given twice behind `?`")));
            }
        }
        Ok(asked)
    }

    /// The key by which the request may be repeated.
    pub(crate) fn key(&self) -> Result<Option<String>, Problem> {
        let Some(value) = self.headers.get("idempotency-key") else { return Ok(None) };
        let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= KEY_BYTES_MAX);
        let bad = || Problem::bad(format!("an Idempotency-Key has 1 to {KEY_BYTES_MAX} visible characters"));
        text.map(|text| Some(text.to_owned())).ok_or_else(bad)
    }
}

impl Server {
    /// The tenant whose token the request carries.
    pub(crate) fn caller(&self, headers: &HeaderMap, scope: Scope) -> Result<Arc<Tenant>, Problem> {
        self.bearer(oauth::bearer(headers), scope)
    }

    /// The tenant whose token this is the text of.
    pub(crate) fn bearer(&self, text: Option<&str>, scope: Scope) -> Result<Arc<Tenant>, Problem> {
        let name = self.scoped(text, scope)?;
        self.0.tenants.get(&name).cloned().ok_or_else(|| Problem::unknown("resource"))
    }

    /// The name of the tenant whose token this is the text of.
    pub(crate) fn scoped(&self, text: Option<&str>, scope: Scope) -> Result<String, Problem> {
        let unknown = || {
            let detail = "a token is needed, and none was given that is known and has not expired";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "token", detail);
            problem.hint("send `Authorization: Bearer cel_…`; `cellar token new` makes one")
        };
        let text = text.ok_or_else(unknown)?;
        let tokens = self.0.tokens.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let signed = || self.0.issuer.as_ref()?.identity(text.trim());
        let (name, allows) = match tokens.find(text.trim()) {
            Some(token) => (token.tenant.clone(), access::allows(&token.scopes, scope)),
            None => signed().map(|known| (known.tenant, access::allows(&known.scopes, scope))).ok_or_else(unknown)?,
        };
        // The tenant of a token may have gone from the configuration.
        let is_known =
            self.0.tenants.contains_key(&name) || self.0.workers.as_ref().is_some_and(|all| all.get(&name).is_some());
        if !is_known {
            return Err(unknown());
        }
        if !allows {
            let detail = format!("this token has not the scope `{}`", scope.name());
            return Err(Problem::new(StatusCode::FORBIDDEN, "scope", detail));
        }
        Ok(name)
    }

    /// Answers a client of the Model Context Protocol.
    async fn mcp(&self, tenant: &Tenant, parts: Parts, body: Body) -> Answer {
        let body = self.body(body).await?;
        check_values(&body)?;
        let endpoint = self.0.mcp.get(&tenant.name).ok_or_else(|| Problem::unknown("resource"))?;
        Ok(endpoint.answer(parts, body).await.map(Body::new))
    }

    /// The body of a request that is not a file.
    pub(crate) async fn body(&self, body: Body) -> Result<Bytes, Problem> {
        let most = self.0.body_bytes_max;
        let too_large = || {
            let detail = format!("the body of this request may have {most} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body", detail)
        };
        // What says that it is too large is not waited for.
        if body.size_hint().lower() > most as u64 {
            return Err(too_large());
        }
        let read = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, most).collect());
        match read.await {
            Err(_) => {
                let detail = format!("the body took more than {} seconds to come", BODY_TIMEOUT.as_secs());
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body-timeout", detail))
            }
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(_)) => Err(Problem::bad("the body broke off")),
            Ok(Ok(body)) => Ok(body.to_bytes()),
        }
    }
}

/// Refuses JSON of so many values that reading it would take many times its bytes.
pub(crate) fn check_values(json: &[u8]) -> Result<(), Problem> {
    // Few values need no counting: each has a byte at least.
    let values = if json.len() > REQUEST_VALUES_MAX { json_values(json) } else { 0 };
    if values > REQUEST_VALUES_MAX {
        return Err(Problem::bad(format!(
            "the body of this request has {values} values, at most {REQUEST_VALUES_MAX} are read"
        )));
    }
    Ok(())
}

/// An answer that has nothing to say.
pub(crate) fn empty() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Cuts a page out of a list that is in the order of its names, as `limit` and `after` ask: the page, and the `after` of the
/// next.
pub(crate) fn page<T>(
    asked: &HashMap<String, String>,
    list: Vec<T>,
    name: impl Fn(&T) -> &str,
) -> Result<(Vec<T>, Option<String>), Problem> {
    let limit = match asked.get("limit") {
        None => PAGE,
        Some(text) => {
            let limit = text.parse::<usize>().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
            limit.ok_or_else(|| Problem::bad(format!("`limit` is a number from 1 to {PAGE_MAX}")))?
        }
    };
    let after = asked.get("after").map(String::as_str);
    let mut rest = list.into_iter().filter(|item| after.is_none_or(|after| name(item) > after));
    let page: Vec<T> = rest.by_ref().take(limit).collect();
    let next = rest.next().and_then(|_| page.last()).map(|last| name(last).to_owned());
    Ok((page, next))
}

/// How many are on a page, unless it is said.
const PAGE: usize = 100;
/// How many may be.
const PAGE_MAX: usize = 1_000;

/// A JSON answer.
pub(crate) fn json(status: StatusCode, value: &impl serde::Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_vec(value).map_err(|error| Problem::internal(&error, "json"))?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_one_another() {
        let list = || vec!["a", "b", "c"];
        let asked = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            page(&pairs, list(), |name| name).map_err(|problem| problem.words())
        };
        assert_eq!(asked(&[]).expect("a page"), (list(), None));
        assert_eq!(asked(&[("limit", "2")]).expect("a page"), (vec!["a", "b"], Some("b".to_owned())));
        assert_eq!(asked(&[("limit", "2"), ("after", "b")]).expect("a page"), (vec!["c"], None));
        // What was named may have gone meanwhile.
        assert_eq!(asked(&[("limit", "1"), ("after", "aa")]).expect("a page"), (vec!["b"], Some("b".to_owned())));
        for limit in ["0", "1001", "x", "-1"] {
            assert!(asked(&[("limit", limit)]).is_err(), "{limit}");
        }
    }

    #[test]
    fn names_in_paths_are_text() {
        assert_eq!(decoded("a%20b%2Fc%c3%a9").expect("text"), "a b/cé");
        for name in ["%", "%2", "%zz", "%ff", "a%+1"] {
            assert!(decoded(name).is_err(), "{name}");
        }
    }
}
