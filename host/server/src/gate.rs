//! The routes, and what stands before them: who asks, how often, and whether there is time for it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;

use crate::{
    Server,
    access::{self, Scope},
    e2b, files, jupyter, looks, metrics, oauth,
    problem::{Answer, Problem},
    runs, sessions, stores,
    tenant::Tenant,
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
        "/metrics" if is_asked => return metrics::show(&server, &parts.headers).into_response(),
        path if path == "/mcp" || path.starts_with("/v1/") => {}
        path if path.starts_with(oauth::METADATA) && is_asked => return server.resource_metadata().into_response(),
        _ => return Problem::unknown("resource").into_response(),
    }
    server.learn_keys(&parts.headers).await;
    let scope = if is_asked { Scope::Read } else { Scope::Run };
    let tenant = match server.caller(&parts.headers, scope) {
        Ok(tenant) => tenant,
        Err(problem) => {
            let mut response = problem.into_response();
            server.challenge(&mut response);
            server.0.metrics.count(None, response.status());
            return response;
        }
    };
    let starts_work = parts.method == Method::POST;
    let admitted = tenant.admit().and_then(|()| match starts_work && *server.0.is_draining.borrow() {
        true => Err(Problem::draining()),
        false => Ok(()),
    });
    let answered = match admitted {
        Ok(()) if parts.uri.path() == "/mcp" => server.mcp(&tenant, parts, body).await,
        Ok(()) => {
            let query = parts.uri.query().map(str::to_owned);
            let call = Call { server: server.clone(), tenant: tenant.clone(), headers: parts.headers, query, body };
            route(call, &parts.method, parts.uri.path()).await
        }
        Err(problem) => Err(problem),
    };
    let response = answered.unwrap_or_else(Problem::into_response);
    server.0.metrics.count(Some(&tenant.name), response.status());
    response
}

/// Finds what a request is for. The path of a file may have any number of names, and all else is as long as it is.
async fn route(call: Call, method: &Method, path: &str) -> Answer {
    let names: Result<Vec<String>, Problem> = path.split('/').skip(2).map(decoded).collect();
    let names = names?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let known: &[&str] = match names.as_slice() {
        ["eval"] => &["POST"],
        ["sessions"] => &["GET", "POST"],
        ["sessions", _] => &["GET", "DELETE"],
        ["sessions", _, "variables"] | ["sessions", _, "variables", _] => &["GET"],
        ["sessions", _, "files"] => &["GET"],
        ["sessions", _, "files", ..] => &["GET", "PUT", "DELETE"],
        ["sessions", _, "reset" | "hibernate" | "fork" | "rewind" | "runs" | "snapshots" | "complete" | "inspect"] => {
            &["POST"]
        }
        ["runs", _] | ["runs", _, "events"] => &["GET"],
        ["runs", _, "cancel" | "input"] => &["POST"],
        ["snapshots"] | ["artifacts"] | ["artifacts", _] | ["tenant"] | ["languages"] => &["GET"],
        ["snapshots", _] => &["GET", "DELETE"],
        _ => return Err(Problem::unknown("resource")),
    };
    if !known.contains(&method.as_str()) {
        let detail = format!("{method} has no meaning here; {} has", cellar_bridges::list(known));
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail));
    }
    match (method.as_str(), names.as_slice()) {
        ("POST", ["eval"]) => runs::eval(call).await,
        ("GET", ["sessions"]) => sessions::list(call).await,
        ("POST", ["sessions"]) => sessions::create(call).await,
        ("GET", ["sessions", session]) => sessions::show(call, session).await,
        ("DELETE", ["sessions", session]) => sessions::delete(call, session).await,
        ("POST", ["sessions", session, "reset"]) => sessions::reset(call, session).await,
        ("POST", ["sessions", session, "hibernate"]) => sessions::hibernate(call, session).await,
        ("POST", ["sessions", session, "fork"]) => sessions::fork(call, session).await,
        ("POST", ["sessions", session, "rewind"]) => sessions::rewind(call, session).await,
        ("POST", ["sessions", session, "runs"]) => runs::start(call, session).await,
        ("POST", ["sessions", session, "snapshots"]) => stores::take_snapshot(call, session).await,
        ("POST", ["sessions", session, "complete"]) => looks::complete(call, session).await,
        ("POST", ["sessions", session, "inspect"]) => looks::inspect(call, session).await,
        ("GET", ["sessions", session, "variables"]) => looks::variables(call, session).await,
        ("GET", ["sessions", session, "variables", name]) => looks::value(call, session, name).await,
        ("GET", ["sessions", session, "files", path @ ..]) => files::read(call, session, path).await,
        ("PUT", ["sessions", session, "files", path @ ..]) => files::write(call, session, path).await,
        ("DELETE", ["sessions", session, "files", path @ ..]) => files::remove(call, session, path).await,
        ("GET", ["runs", run]) => runs::show(call, run).await,
        ("GET", ["runs", run, "events"]) => runs::events(call, run).await,
        ("POST", ["runs", run, "cancel"]) => runs::cancel(call, run).await,
        ("POST", ["runs", run, "input"]) => runs::input(call, run).await,
        ("GET", ["snapshots"]) => stores::snapshots(call).await,
        ("GET", ["snapshots", snapshot]) => stores::read_snapshot(call, snapshot).await,
        ("DELETE", ["snapshots", snapshot]) => stores::delete_snapshot(call, snapshot).await,
        ("GET", ["artifacts"]) => stores::artifacts(call).await,
        ("GET", ["artifacts", artifact]) => stores::read_artifact(call, artifact).await,
        ("GET", ["tenant"]) => sessions::tenant(call).await,
        ("GET", ["languages"]) => sessions::languages(call).await,
        _ => Err(Problem::unknown("resource")),
    }
}

/// A name in a path, without its `%XX`.
pub(crate) fn decoded(name: &str) -> Result<String, Problem> {
    let bad = || Problem::bad("the path of this request is no UTF-8 text with `%XX` in the place of other bytes");
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
                let known = if known.is_empty() { "nothing".to_owned() } else { cellar_bridges::list(known) };
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
        let tenant = self.0.tenants.get(&name).ok_or_else(unknown)?;
        if !allows {
            let detail = format!("this token has not the scope `{}`", scope.name());
            return Err(Problem::new(StatusCode::FORBIDDEN, "scope", detail));
        }
        Ok(tenant.clone())
    }

    /// Answers a client of the Model Context Protocol.
    async fn mcp(&self, tenant: &Tenant, parts: Parts, body: Body) -> Answer {
        let body = self.body(body).await?;
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

/// A JSON answer.
pub(crate) fn json(status: StatusCode, value: &impl serde::Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_vec(value).map_err(|error| Problem::internal(&error, "json"))?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_text() {
        assert_eq!(decoded("a%20b%2Fc%c3%a9").expect("text"), "a b/cé");
        for name in ["%", "%2", "%zz", "%ff", "a%+1"] {
            assert!(decoded(name).is_err(), "{name}");
        }
    }
}
