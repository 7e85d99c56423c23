//! The interface for Jupyter's clients: what a kernel gateway speaks, under `/jupyter`.
//!
//! Each kernel has a session of its own, which goes with it. What kernels answer is in `cellar_jupyter`; here is who may
//! ask, which kernels there are, and how clients connect to them. Read [`Kernels`] first.

mod channels;
mod kernels;

use std::{collections::BTreeMap, sync::Arc};

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use cellar_engine::GuestName;
use cellar_jupyter::{LOGO, Spec, display_name, spec_name};
use http::{Method, StatusCode, header, request::Parts};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use self::kernels::Kernels;
use crate::{
    access::{Grant, Scope},
    http::{Carried, Declared, State, answers, decoded, read_body, while_granted},
    problem::{Answer, Problem},
    tenant::Tenant,
};

/// Beginning of its paths.
pub(crate) const PREFIX: &str = "/jupyter/";
/// Continuation of a path that has a client's token, as `token/TOKEN/api/kernels`: some can put it nowhere else.
pub(crate) const TOKEN: &str = "token/";
/// The name by which notebooks and programs ask for whatever Python there is.
const ANY_PYTHON: &str = "python3";
/// Bytes of the body of a request.
const BODY_BYTES_MAX: usize = 64 << 10;

/// All operations, by the names that are decoded.
static OPERATIONS: [Declared; 10] = [
    Declared::look("api/kernelspecs"),
    Declared::look("api/kernelspecs/{name}"),
    Declared::look("kernelspecs/{name}/logo-svg.svg"),
    Declared::look("api/kernels"),
    Declared::act("POST", "api/kernels"),
    Declared::look("api/kernels/{id}"),
    Declared::act("DELETE", "api/kernels/{id}"),
    Declared::act("POST", "api/kernels/{id}/interrupt"),
    Declared::act("POST", "api/kernels/{id}/restart"),
    // What comes over them may be anything.
    Declared::act("GET", "api/kernels/{id}/channels"),
];

/// The interface: the kernels of each tenant.
#[derive(Default)]
pub(crate) struct Interface {
    by_tenant: BTreeMap<String, Arc<Kernels>>,
}

impl Interface {
    /// Adds a tenant.
    pub(crate) fn add(&mut self, tenant: &Arc<Tenant>) {
        self.by_tenant.insert(tenant.name.clone(), Arc::new(Kernels::new(tenant.clone())));
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, state: &Arc<State>, parts: Parts, body: Body) -> Response {
        let path = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default().trim_end_matches('/').to_owned();
        let (token, path) = match path.strip_prefix(TOKEN).and_then(|rest| rest.split_once('/')) {
            Some((token, path)) => (Some(token), path),
            None => (None, path.as_str()),
        };
        // Whoever looks at whether there is a gateway has no token yet.
        if path == "api" && parts.method == Method::GET {
            let about = answers::json(StatusCode::OK, &json!({"version": env!("CARGO_PKG_VERSION")}));
            return about.unwrap_or_else(Problem::into_response);
        }
        // THREAT: T01
        let names: Result<Vec<String>, Problem> = path.split('/').map(decoded).collect();
        let routed = names.and_then(|names| {
            let named: Vec<&str> = names.iter().map(String::as_str).collect();
            let declared =
                Declared::find(&OPERATIONS, &parts.method, &named).ok_or_else(|| refusal(&parts.method, &named))?;
            Ok((declared, names))
        });
        let scope = routed.as_ref().map_or(Scope::Read, |(declared, _)| declared.scope);
        let authorized =
            token.map_or_else(|| caller(state, &parts, scope), |token| state.authorize(Some(token), scope));
        let (grant, tenant) = match authorized {
            Ok(authorized) => authorized,
            Err(problem) => {
                let response = refused(&problem);
                state.metrics.count(None, response.status());
                return response;
            }
        };
        let carried = Carried::of_tenant(parts.extensions.get(), &tenant.name);
        let begun = routed.and_then(|(_, names)| {
            tenant.admit()?;
            if scope != Scope::Read {
                state.lifecycle.admit()?;
            }
            Ok((names, state.shares.take(&tenant.name)?))
        });
        let kernels = self.by_tenant.get(&tenant.name).ok_or_else(|| Problem::unknown("resource"));
        let (begun, permit) = match begun {
            Ok((names, permit)) => (Ok(names), Some(permit)),
            Err(problem) => (Err(problem), None),
        };
        let work = async {
            let answered = match (begun, kernels) {
                (Ok(names), Ok(kernels)) => route(state, kernels, &grant, &names, parts, body).await,
                (Err(problem), _) | (_, Err(problem)) => Err(problem),
            };
            answered.unwrap_or_else(|problem| refused(&problem))
        };
        let response = while_granted(grant.clone(), permit, carried, work).await;
        state.metrics.count(Some(&tenant.name), response.status());
        response
    }
}

/// Refusal of a request that no operation is for.
fn refusal(method: &Method, names: &[&str]) -> Problem {
    match names {
        ["api", "kernelspecs" | "kernels", ..] => {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", format!("{method} has no meaning here"))
        }
        _ => Problem::unknown("resource"),
    }
}

/// Carries out an operation that is declared.
async fn route(
    state: &Arc<State>,
    kernels: &Arc<Kernels>,
    grant: &Grant,
    names: &[String],
    parts: Parts,
    body: Body,
) -> Answer {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tenant = &kernels.tenant;
    match (parts.method.as_str(), names.as_slice()) {
        ("GET", ["api", "kernelspecs"]) => answers::json(StatusCode::OK, &specs(tenant)),
        ("GET", ["api", "kernelspecs", name]) => {
            let guest = guest_of(tenant, name).ok_or_else(|| unknown_spec(name))?;
            answers::json(StatusCode::OK, &spec(name, guest))
        }
        ("GET", ["kernelspecs", name, "logo-svg.svg"]) if guest_of(tenant, name).is_some() => {
            Ok(([(header::CONTENT_TYPE, "image/svg+xml")], LOGO).into_response())
        }
        ("GET", ["api", "kernels"]) => answers::json(StatusCode::OK, &kernels.list()),
        ("POST", ["api", "kernels"]) => {
            let body = read_body(body, state.body_bytes_max, &tenant.buffers).await?;
            let wanted = Wanted::read(&body)?;
            let name = wanted.name.unwrap_or_else(|| ANY_PYTHON.to_owned());
            let guest = guest_of(tenant, &name).ok_or_else(|| unknown_spec(&name))?;
            let model = kernels.start(&name, guest, wanted.environment)?;
            let mut response = answers::json(StatusCode::CREATED, &model)?;
            if let Ok(place) = format!("{PREFIX}api/kernels/{}", model["id"].as_str().unwrap_or_default()).parse() {
                response.headers_mut().insert(header::LOCATION, place);
            }
            Ok(response)
        }
        ("GET", ["api", "kernels", id]) => answers::json(StatusCode::OK, &kernels.get(id)?.model()),
        ("DELETE", ["api", "kernels", id]) => {
            kernels.remove(id)?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        ("POST", ["api", "kernels", id, "interrupt"]) => {
            kernels.get(id)?.kernel.interrupt();
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        ("POST", ["api", "kernels", id, "restart"]) => {
            let entry = kernels.get(id)?;
            entry.kernel.restart().await;
            answers::json(StatusCode::OK, &entry.model())
        }
        ("GET", ["api", "kernels", id, "channels"]) => {
            let entry = kernels.get(id)?;
            channels::connect(state, &entry, kernels, (parts, grant.clone()))
        }
        _ => Err(Problem::unknown("resource")),
    }
}

/// Response of a refusal: clients look for a message.
fn refused(problem: &Problem) -> Response {
    let status = problem.status();
    let body = json!({"message": problem.words(), "reason": problem.json().code});
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response();
    if let Some(after) = problem.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, after.as_secs().max(1).into());
    }
    response
}

/// The tenant whose token a request carries that has none in its path: in a header, as Jupyter or as others say it, or behind
/// `?`.
fn caller(state: &State, parts: &Parts, scope: Scope) -> Result<(Grant, Arc<Tenant>), Problem> {
    let given = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let is_kind = |kind: &str| ["token", "bearer"].iter().any(|known| kind.eq_ignore_ascii_case(known));
    let of_header = given.and_then(|value| value.split_once(' ')).filter(|(kind, _)| is_kind(kind));
    match of_header {
        Some((_, text)) => state.authorize(Some(text), scope),
        None => {
            let query = parts.uri.query().unwrap_or_default().as_bytes();
            let found = form_urlencoded::parse(query).find(|(name, _)| name == "token");
            state.authorize(found.as_ref().map(|(_, text)| text.as_ref()), scope)
        }
    }
}

/// Request for a kernel. Other members belong to the clients' own files.
#[derive(Default, Deserialize)]
struct Wanted {
    name: Option<String>,
    #[serde(default, rename = "env")]
    environment: Map<String, Value>,
}

impl Wanted {
    fn read(body: &[u8]) -> Result<Wanted, Problem> {
        if body.len() > BODY_BYTES_MAX {
            let detail = format!("the body of this request may have {BODY_BYTES_MAX} bytes");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body", detail));
        }
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Wanted::default());
        }
        serde_json::from_slice(body).map_err(|error| Problem::bad(format!("the body is no kernel to start: {error}")))
    }
}

fn unknown_spec(name: &str) -> Problem {
    let name: String = name.chars().take(100).collect();
    Problem::unknown("kernelspec").hint(format!("`{name}` is not one of those that `api/kernelspecs` lists"))
}

/// The guests that there are, those first that clients are to choose.
fn guests(tenant: &Tenant) -> impl Iterator<Item = GuestName> {
    let known = [GuestName::PythonData, GuestName::Python, GuestName::JavaScript];
    known.into_iter().filter(|guest| tenant.hub.has(*guest))
}

/// The guest of a kernelspec.
fn guest_of(tenant: &Tenant, name: &str) -> Option<GuestName> {
    match name {
        ANY_PYTHON => guests(tenant).find(|guest| guest.language() == cellar_engine::Language::Python),
        _ => guests(tenant).find(|guest| spec_name(*guest) == name),
    }
}

fn spec(name: &str, guest: GuestName) -> Value {
    let spec = Spec {
        is_private: false,
        name: name.to_owned(),
        display_name: display_name(guest).to_owned(),
        language: guest.language(),
        command: Vec::new(),
    };
    let mut document = spec.document();
    document["env"] = json!({});
    json!({
        "name": name,
        "spec": document,
        "resources": {"logo-svg": format!("{PREFIX}kernelspecs/{name}/logo-svg.svg")},
    })
}

fn specs(tenant: &Tenant) -> Value {
    let any = guest_of(tenant, ANY_PYTHON).map(|guest| (ANY_PYTHON.to_owned(), guest));
    let named = guests(tenant).map(|guest| (spec_name(guest), guest));
    let all: Map<String, Value> = any
        .into_iter()
        .chain(named)
        .map(|(name, guest)| {
            let spec = spec(&name, guest);
            (name, spec)
        })
        .collect();
    json!({"default": ANY_PYTHON, "kernelspecs": all})
}
