//! Routes: to which interface a request goes, and what the interfaces that take bearer tokens have in common: who asks, how
//! often, and whether there is time for it.

use std::sync::Arc;

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use cellar_hub::HubError;
use http::{Request, StatusCode, request::Parts};

use crate::{
    access::{METADATA, Scope},
    api,
    e2b::{self, Sandboxes},
    http::{Call, Carried, Labels, Respond, State, answers, is_read, metrics, names, while_granted},
    jupyter,
    mcp::{self, Offers},
    problem::{Answer, Problem},
    tenant::{Extensions, Ground, Tenant, TenantConfig},
};

/// Path of the Model Context Protocol.
const MCP: &str = "/mcp";

/// All interfaces of a server. A cheap handle.
#[derive(Clone)]
pub(crate) struct Router(Arc<Routes>);

struct Routes {
    state: Arc<State>,
    interfaces: Interfaces,
}

/// Interfaces by which tenants are reached, besides `/v1`, which keeps nothing of its own.
#[derive(Default)]
pub(crate) struct Interfaces {
    e2b: e2b::Interface,
    jupyter: jupyter::Interface,
    mcp: mcp::Interface,
}

impl Interfaces {
    /// Opens a tenant, and takes it up in every interface. Blocks.
    ///
    /// # Errors
    /// As [`Tenant::open`].
    pub(crate) fn open(&mut self, config: TenantConfig, ground: Ground) -> Result<Arc<Tenant>, HubError> {
        let sandboxes = Arc::new(Sandboxes::open(e2b::folder_in(&config.store)));
        let (offers, held) = (Offers::default(), sandboxes.clone());
        let extensions = Extensions::of_sampler(offers.clone()).with_held(move |session| held.get(session).is_some());
        let tenant = Arc::new(Tenant::open(config, ground, extensions)?);
        self.e2b.add(&tenant, sandboxes);
        self.jupyter.add(&tenant);
        self.mcp.add(&tenant, offers);
        Ok(tenant)
    }
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
    pub(crate) fn new(state: Arc<State>, interfaces: Interfaces) -> Router {
        Router(Arc::new(Routes { state, interfaces }))
    }

    /// Ends what interfaces keep for a time, when it is over. Does not return.
    pub(crate) async fn keep(&self) {
        self.0.interfaces.e2b.keep().await;
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, parts: Parts, body: Body) -> Response {
        let Routes { state, interfaces } = &*self.0;
        match Target::of(&parts) {
            Target::E2b(asked) => interfaces.e2b.answer(state, asked, parts, body).await,
            Target::Jupyter => interfaces.jupyter.answer(state, parts, body).await,
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

    /// Answers a tenant that shows a bearer token, and counts the answer. The request is routed first, and authorised as
    /// its operation declares.
    async fn answer_tenant(&self, parts: Parts, body: Body) -> Response {
        // THREAT: T01
        let Routes { state, interfaces } = &*self.0;
        let path = parts.uri.path().to_owned();
        let routed = match path == MCP {
            true => Ok(None),
            false => names(&path).and_then(|names| api::find(&parts.method, &names)).map(Some),
        };
        let scope = match &routed {
            Ok(None) => Scope::Run,
            Ok(Some(routed)) => routed.scope(),
            // Whoever may do nothing here is not told what there is.
            Err(_) => Scope::Read,
        };
        let (grant, tenant) = match state.caller(&parts.headers, scope) {
            Ok(authorized) => authorized,
            Err(problem) => {
                let mut response = problem.into_response();
                state.access.challenge(&mut response);
                state.metrics.count(None, response.status());
                return response;
            }
        };
        let carried = Carried::of_tenant(parts.extensions.get(), &tenant.name);
        let permit = tenant.admit().and_then(|()| state.shares.take(&tenant.name));
        let (admitted, permit) = permit.map_or_else(|problem| (Err(problem), None), |permit| (Ok(()), Some(permit)));
        let call = Call { state: state.clone(), tenant: tenant.clone(), grant: grant.clone(), parts, body };
        let work = async {
            let answered = match (admitted, routed) {
                (Err(problem), _) | (Ok(()), Err(problem)) => Err(problem),
                (Ok(()), Ok(None)) => interfaces.mcp.answer(call).await,
                (Ok(()), Ok(Some(routed))) => routed.carry_out(call).await,
            };
            answered.unwrap_or_else(Problem::into_response)
        };
        let mut response = while_granted(grant, permit, carried, work).await;
        state.metrics.count(Some(&tenant.name), response.status());
        response.extensions_mut().insert(Labels { tenant: Some(tenant.name.clone()), route: label(&path) });
        if let Some(rate) = tenant.rate() {
            set_rate(&mut response, rate);
        }
        response
    }
}

/// Adds the headers that report the tenant's remaining requests, as in `draft-ietf-httpapi-ratelimit-headers`.
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
