//! Routes: to which interface a request goes, and what the interfaces that take bearer tokens have in common: who asks, how
//! often, and whether there is time for it.

use std::sync::Arc;

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{Method, Request, StatusCode, request::Parts};

use crate::{
    access::{METADATA, Scope},
    api, e2b,
    http::{Call, Labels, Respond, State, answers, is_read, metrics, names},
    jupyter, mcp,
    problem::{Answer, Problem},
};

/// Path of the Model Context Protocol.
const MCP: &str = "/mcp";

/// All interfaces of a server. A cheap handle.
#[derive(Clone)]
pub(crate) struct Router(Arc<Interfaces>);

struct Interfaces {
    state: Arc<State>,
    mcp: mcp::Interface,
}

impl Respond for Router {
    async fn respond(&self, request: Request<Body>) -> Response {
        let (parts, body) = request.into_parts();
        self.answer(parts, body).await
    }
}

/// Interface that a request is for.
pub(crate) enum Target {
    E2b(e2b::Asked),
    Jupyter,
    Mcp,
    Api,
    /// Paths that are no tenant's.
    Other,
}

impl Target {
    pub(crate) fn of(parts: &Parts) -> Target {
        let path = parts.uri.path();
        match e2b::Asked::of(parts) {
            Some(asked) => Target::E2b(asked),
            None if path.starts_with(jupyter::PREFIX) => Target::Jupyter,
            None if path == MCP => Target::Mcp,
            None if path.starts_with(api::PREFIX) => Target::Api,
            None => Target::Other,
        }
    }
}

/// Route of a request as logs and traces name it.
pub(crate) fn label(path: &str) -> Option<&'static str> {
    if path == MCP { Some(MCP) } else { api::label(path) }
}

impl Router {
    pub(crate) fn new(state: Arc<State>) -> Router {
        let mcp = mcp::Interface::new(state.tenants.values());
        Router(Arc::new(Interfaces { state, mcp }))
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, parts: Parts, body: Body) -> Response {
        let state = &self.0.state;
        match Target::of(&parts) {
            Target::E2b(asked) => e2b::answer(state.clone(), asked, parts, body).await,
            Target::Jupyter => jupyter::answer(state.clone(), parts, body).await,
            Target::Mcp | Target::Api => self.answer_tenant(parts, body).await,
            Target::Other if is_read(&parts.method) => {
                self.answer_anybody(&parts).unwrap_or_else(Problem::into_response)
            }
            Target::Other => Problem::unknown("resource").into_response(),
        }
    }

    /// Answers what needs no tenant.
    fn answer_anybody(&self, parts: &Parts) -> Answer {
        let state = &self.0.state;
        match parts.uri.path() {
            "/healthz" => Ok("ok\n".into_response()),
            "/readyz" => state.lifecycle.admit().map(|()| "ready\n".into_response()),
            "/metrics" => metrics::show(state, &parts.headers),
            "/openapi.json" => api::describe(),
            path if path.starts_with(METADATA) => answers::json(StatusCode::OK, &state.access.metadata()?),
            _ => Err(Problem::unknown("resource")),
        }
    }

    /// Answers a tenant that shows a bearer token, and counts the answer.
    async fn answer_tenant(&self, parts: Parts, body: Body) -> Response {
        let state = &self.0.state;
        let path = parts.uri.path().to_owned();
        let (names, fault) = match names(&path) {
            Ok(names) => (names, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let tenant = match state.caller(&parts.headers, scope(&names, &parts.method)) {
            Ok(tenant) => tenant,
            Err(problem) => {
                let mut response = problem.into_response();
                state.access.challenge(&mut response);
                state.metrics.count(None, response.status());
                return response;
            }
        };
        let admitted = tenant.admit();
        let call = Call { state: state.clone(), tenant: tenant.clone(), parts, body };
        let answered = match (admitted, fault) {
            (Err(problem), _) => Err(problem),
            (Ok(()), _) if path == MCP => self.0.mcp.answer(call).await,
            (Ok(()), Some(problem)) => Err(problem),
            (Ok(()), None) => api::route(call, &names).await,
        };
        let mut response = answered.unwrap_or_else(Problem::into_response);
        state.metrics.count(Some(&tenant.name), response.status());
        response.extensions_mut().insert(Labels { tenant: Some(tenant.name.clone()), route: label(&path) });
        if let Some(rate) = tenant.rate() {
            set_rate(&mut response, rate);
        }
        response
    }
}

/// Scope that a path needs, of names behind the first.
fn scope(names: &[&str], method: &Method) -> Scope {
    match names {
        ["admin", ..] => Scope::Admin,
        // What comes over them may be anything.
        ["stdio"] | ["sessions", _, "stdio"] => Scope::Run,
        _ if is_read(method) => Scope::Read,
        _ => Scope::Run,
    }
}

/// Says how many requests a tenant may still make, as `draft-ietf-httpapi-ratelimit-headers` has it.
fn set_rate(response: &mut Response, (most, left, seconds): (u64, u64, u64)) {
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
