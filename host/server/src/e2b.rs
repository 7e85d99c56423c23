//! The same sessions for clients of E2B's code interpreter, as they come from PyPI and npm.
//!
//! A *sandbox* is a session, whose two languages are the contexts that are there from the start, and one more session for
//! each context that the client makes, over the same workspace. What clients say is translated: `control` makes, lists and
//! ends sandboxes, `execute` runs cells, `contexts` and `files` are what they say, and `filesystem` answers the remote
//! procedure calls (`connect`) by which the clients look after files,
//! `processes` those by which they run commands, at a `terminal` as well. `sandboxes` keeps what sessions do not say of
//! themselves. Read [`Interface::answer`] first.

mod charts;
mod connect;
mod contexts;
mod control;
mod execute;
mod files;
mod filesystem;
mod lives;
mod multipart;
mod processes;
mod results;
mod sandboxes;
mod terminal;
mod watch;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Method, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use serde_json::json;

use crate::{
    access::{Grant, Scope, Token, is_same, now},
    http::{Buffered, Carried, Declared, State, check_values, read_body, while_granted},
    problem::{Answer, Problem},
    tenant::Tenant,
};

use processes::Processes;
use sandboxes::Sandbox;
pub(crate) use sandboxes::{Sandboxes, folder_in};
use watch::Watchers;

/// Beginning of its paths.
const PREFIX: &str = "/e2b/";
/// Port at which clients believe the interpreter of a sandbox to listen.
const CODE_PORT: &str = "49999";
/// Port at which clients believe the agent for its files to listen.
const ENVD_PORT: &str = "49983";
/// First names of paths that are a sandbox's; all others are the service's.
const OF_SANDBOX: [&str; 6] = ["execute", "contexts", "health", "files", "filesystem.Filesystem", "process.Process"];
/// Operations of sandboxes. Paths are not decoded.
static OPERATIONS: [Declared; 10] = [
    Declared::act("GET", "health"),
    Declared::act("POST", "execute"),
    Declared::act("GET", "contexts"),
    Declared::act("POST", "contexts"),
    Declared::act("DELETE", "contexts/{id}"),
    Declared::act("POST", "contexts/{id}/restart"),
    Declared::act("GET", "files"),
    Declared::act("POST", "files"),
    Declared::act("POST", "filesystem.Filesystem/{procedure}"),
    Declared::act("POST", "process.Process/{procedure}"),
];
/// Bytes of an id, or of a token, that is looked at.
const ID_BYTES_MAX: usize = 200;
/// Time, and bytes, for which the body of a refused request is still read.
const HEARD_FOR: Duration = Duration::from_secs(1);
const HEARD_BYTES_MAX: usize = 64 << 10;

/// Request to this interface.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Segments of its path.
    path: Vec<String>,
    /// Sandbox that it is for.
    sandbox: Option<String>,
}

impl Asked {
    /// Parses a request, if it is for this interface: by its path, or by its host, which is `PORT-SANDBOX.` and a
    /// domain where a proxy passes such hosts on.
    pub(crate) fn of(parts: &Parts) -> Option<Asked> {
        let path = parts.uri.path();
        let of_host = parts.headers.get(header::HOST).and_then(|host| sandbox_of_host(host.to_str().ok()?));
        let path = match path.strip_prefix(PREFIX) {
            Some(path) => path,
            None if of_host.is_some() => path.strip_prefix('/')?,
            None => return None,
        };
        let path: Vec<String> = path.split('/').map(str::to_owned).collect();
        let named = parts.headers.get("e2b-sandbox-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        Some(Asked { path, sandbox: named.or(of_host).filter(|id| id.len() <= ID_BYTES_MAX) })
    }

    /// Returns the sandbox that it is for.
    pub(crate) fn sandbox(&self) -> Option<&str> {
        self.sandbox.as_deref()
    }

    fn is_of_sandbox(&self) -> bool {
        self.path.first().is_some_and(|first| OF_SANDBOX.contains(&first.as_str()))
    }

    /// Form of its refusals.
    fn manner(&self) -> Manner {
        match self.path.first().map(String::as_str) {
            Some("execute" | "contexts") => Manner::Text,
            Some("filesystem.Filesystem" | "process.Process") => Manner::Call,
            _ => Manner::Json,
        }
    }
}

fn sandbox_of_host(host: &str) -> Option<String> {
    let (port, rest) = host.split_once('-')?;
    let (id, _) = rest.split_once('.')?;
    (matches!(port, CODE_PORT | ENVD_PORT) && !id.is_empty()).then(|| id.to_ascii_lowercase())
}

/// Form of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// In words.
    Text,
    /// As an object with a number and words.
    Json,
    /// As the error of a remote procedure call.
    Call,
}

impl Manner {
    fn refuse(self, problem: Problem) -> Response {
        let status = problem.status();
        let words = problem.words();
        let mut response = match self {
            // The client takes what the front of a sandbox says for its end.
            _ if status == StatusCode::BAD_GATEWAY => {
                told(status, &json!({ "code": status.as_u16(), "message": words }))
            }
            Manner::Text => (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], words).into_response(),
            Manner::Json => told(status, &json!({ "code": status.as_u16(), "message": words })),
            Manner::Call => connect::refusal(&problem),
        };
        if let Some(after) = problem.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, after.as_secs().max(1).into());
        }
        response
    }
}

/// A JSON answer.
fn told(status: StatusCode, value: &serde_json::Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Tenant, with its sandboxes and watchers.
struct Account {
    tenant: Arc<Tenant>,
    sandboxes: Arc<Sandboxes>,
    watchers: Watchers,
    processes: Processes,
}

/// The interface: an account for each tenant.
#[derive(Default)]
pub(crate) struct Interface {
    by_tenant: BTreeMap<String, Arc<Account>>,
}

impl Interface {
    /// Adds a tenant, with its stored sandboxes.
    pub(crate) fn add(&mut self, tenant: &Arc<Tenant>, sandboxes: Arc<Sandboxes>) {
        let account = Account {
            tenant: tenant.clone(),
            sandboxes,
            watchers: Watchers::default(),
            processes: Processes::default(),
        };
        self.by_tenant.insert(tenant.name.clone(), Arc::new(account));
    }

    /// Ends the sandboxes whose time is over. Does not return.
    pub(crate) async fn keep(&self) {
        lives::end_in_time(self.by_tenant.values().cloned().collect()).await;
    }
}

/// A request that was let through.
struct Call {
    state: Arc<State>,
    account: Arc<Account>,
    /// The id of the token by which it was let through.
    token: String,
    headers: HeaderMap,
    query: Option<String>,
    body: Body,
}

impl Call {
    async fn body(&mut self) -> Result<Buffered, Problem> {
        let tenant = &self.account.tenant;
        read_body(std::mem::take(&mut self.body), self.state.body_bytes_max, &tenant.buffers).await
    }

    /// The body as a JSON object; an empty one is an object without members.
    async fn object(&mut self) -> Result<serde_json::Map<String, serde_json::Value>, Problem> {
        let bytes = self.body().await?;
        if bytes.is_empty() {
            return Ok(serde_json::Map::new());
        }
        check_values(&bytes)?;
        match serde_json::from_slice(&bytes) {
            Ok(serde_json::Value::Object(object)) => Ok(object),
            Ok(_) => Err(Problem::bad("the body of this request is a JSON object")),
            Err(error) => Err(Problem::bad(format!("the body of this request is no JSON: {error}"))),
        }
    }

    /// Parameter behind `?`; of several by one name the first.
    fn asked(&self, name: &str) -> Option<String> {
        let query = self.query.as_deref().unwrap_or_default();
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }
}

impl Interface {
    /// Answers a request.
    pub(crate) async fn answer(&self, state: &Arc<State>, asked: Asked, parts: Parts, body: Body) -> Response {
        let manner = asked.manner();
        let Parts { method, headers, uri, extensions, .. } = parts;
        let query = uri.query().map(str::to_owned);
        // THREAT: T01
        let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
        let find = |all| Declared::find(all, &method, &path).map(|declared| declared.scope);
        let is_of_sandbox = asked.is_of_sandbox();
        let declared = if is_of_sandbox { find(&OPERATIONS) } else { find(&control::OPERATIONS) };
        let let_through = if is_of_sandbox {
            self.of_sandbox(state, &asked, &method, &headers, query.as_deref())
                .map(|(passed, sandbox)| (passed, Some(sandbox)))
        } else {
            self.passed(state, &headers, declared.unwrap_or(Scope::Read)).map(|passed| (passed, None))
        };
        let (Passed { account, token, grant }, sandbox) = match let_through {
            Ok(found) => found,
            Err(problem) => {
                let response = manner.refuse(problem);
                state.metrics.count(None, response.status());
                return response;
            }
        };
        let tenant = account.tenant.clone();
        let carried = Carried::of_tenant(extensions.get(), &tenant.name);
        let permit = tenant.admit().and_then(|()| {
            if method == Method::POST {
                state.lifecycle.admit()?;
            }
            state.shares.take(&tenant.name)
        });
        let (admitted, permit) = permit.map_or_else(|problem| (Err(problem), None), |permit| (Ok(()), Some(permit)));
        let call = Call { state: state.clone(), account, token, headers, query, body };
        let work = async {
            let answered = match (admitted, sandbox) {
                (Err(problem), _) => Err(problem),
                (Ok(()), None) if declared.is_none() => Err(control::refusal(&method, &path)),
                (Ok(()), None) => {
                    let asked = asked.path.clone();
                    let method = method.clone();
                    to_its_end(async move {
                        let path: Vec<&str> = asked.iter().map(String::as_str).collect();
                        control::route(call, &method, &path).await
                    })
                    .await
                }
                (Ok(()), Some(sandbox)) => route(call, sandbox, declared, &method, &path).await,
            };
            answered.unwrap_or_else(|problem| manner.refuse(problem))
        };
        let response = while_granted(grant, permit, carried, work).await;
        state.metrics.count(Some(&tenant.name), response.status());
        response
    }

    /// Authenticates a client by a token of this server, given as an API key or as a bearer token.
    fn passed(&self, state: &State, headers: &HeaderMap, scope: Scope) -> Result<Passed, Problem> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let bearer = || text("authorization")?.split_once(' ').map(|(_, token)| token.trim());
        let key = text("x-api-key").or_else(bearer);
        let (grant, tenant) = state.authorize(key, scope).map_err(|problem| match problem.status() {
            StatusCode::UNAUTHORIZED => problem.hint("set E2B_API_KEY to a token; `cellar token new` makes one"),
            _ => problem,
        })?;
        // It is a token, so that it has an id.
        let token = key.and_then(|key| key.split('_').nth(1)).unwrap_or_default().to_owned();
        let account = self.by_tenant.get(&tenant.name).ok_or_else(|| Problem::unknown("resource"))?;
        Ok(Passed { account: account.clone(), token, grant })
    }

    /// Authenticates a client of a sandbox: by the access token that it received when it made or joined the sandbox, by
    /// the signature of an address, or by a token of this server. Returns no sandbox when it does not exist, or is
    /// another tenant's.
    fn of_sandbox(
        &self,
        state: &State,
        asked: &Asked,
        method: &Method,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<(Passed, Option<Sandbox>), Problem> {
        let id = asked.sandbox.as_deref().ok_or_else(|| {
            Problem::bad("no sandbox is named")
                .hint("send `E2b-Sandbox-Id`, or ask at the host `PORT-SANDBOX.` of your domain")
        })?;
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
        if let Some(shown) = text("x-access-token").or_else(|| text("e2b-traffic-access-token")) {
            let unknown = || {
                let problem =
                    Problem::new(StatusCode::UNAUTHORIZED, "token", "the access token is not known or has expired");
                problem.hint("connect to the sandbox again with an API key that is of use")
            };
            let (token_id, _) = shown.split_once('.').filter(|_| shown.len() <= ID_BYTES_MAX).ok_or_else(unknown)?;
            let tokens = state.access.tokens();
            let token = tokens.by_id(token_id).filter(|token| token.allows(Scope::Run)).ok_or_else(unknown)?;
            let account = self.by_tenant.get(&token.tenant).ok_or_else(unknown)?;
            let sandbox = account.sandboxes.get(id);
            let sandbox = sandbox.filter(|sandbox| is_same(sandbox.token(token_id).as_bytes(), shown.as_bytes()));
            // Whoever has shown nothing is charged to nobody.
            let sandbox = sandbox.ok_or_else(|| dead(None))?;
            let grant = state.access.grant(token, Scope::Run);
            return Ok((Passed { account: account.clone(), token: token_id.to_owned(), grant }, Some(sandbox)));
        }
        if let (Some("files"), Some(query)) = (asked.path.first().map(String::as_str), query)
            && let Some(found) = self.signed(state, id, method, query)?
        {
            return Ok(found);
        }
        let passed = self.passed(state, headers, Scope::Run)?;
        let sandbox = passed.account.sandboxes.get(id);
        Ok((passed, sandbox))
    }

    /// Authenticates a client by an address that was signed with the access token of a sandbox; none if the address has
    /// no signature.
    fn signed(
        &self,
        state: &State,
        id: &str,
        method: &Method,
        query: &str,
    ) -> Result<Option<(Passed, Option<Sandbox>)>, Problem> {
        let asked = |name: &str| {
            let mut pairs = url::form_urlencoded::parse(query.as_bytes());
            pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        let Some(shown) = asked("signature") else { return Ok(None) };
        let refused = |why: &str| Problem::new(StatusCode::UNAUTHORIZED, "signature", why);
        let expires = asked("signature_expiration");
        if let Some(text) = &expires {
            let at = text.parse::<u64>().map_err(|_| refused("the signature of this address has no end"))?;
            if at <= now() {
                return Err(refused("the signature of this address has expired"));
            }
        }
        let operation = if *method == Method::GET { "read" } else { "write" };
        let [path, user] = ["path", "username"].map(|name| asked(name).unwrap_or_default());
        if user.contains(':') {
            // What was signed could be taken apart in more than one way.
            return Err(refused("the user of this address has a colon"));
        }
        let tokens = state.access.tokens();
        for account in self.by_tenant.values() {
            let Some(sandbox) = account.sandboxes.get(id) else { continue };
            let is_signed = |token: &&Token| {
                let end = expires.as_ref().map(|end| format!(":{end}")).unwrap_or_default();
                let text = format!("{path}:{operation}:{user}:{}{end}", sandbox.token(&token.id));
                is_same(files::signature(&text).as_bytes(), shown.as_bytes())
            };
            let signer = tokens.of(&account.tenant.name).filter(|token| token.allows(Scope::Run)).find(is_signed);
            if let Some(token) = signer {
                let grant = state.access.grant(token, Scope::Run);
                let passed = Passed { account: account.clone(), token: token.id.clone(), grant };
                return Ok(Some((passed, Some(sandbox))));
            }
        }
        Err(refused("the signature of this address is not right, or the sandbox is gone"))
    }
}

/// Runs work in a task of its own, so that it is done to its end even if the client goes away.
async fn to_its_end(work: impl Future<Output = Answer> + Send + 'static) -> Answer {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(Problem::internal(&error, "task")))
}

/// Reads the body of a request that is about to be refused, because a client that is still sending takes the end of its
/// connection for a fault. The body is read for `HEARD_FOR` and up to `HEARD_BYTES_MAX` bytes.
async fn hear_out(body: Body) {
    let _ = tokio::time::timeout(HEARD_FOR, Limited::new(body, HEARD_BYTES_MAX).collect()).await;
}

/// Routes a request to a sandbox.
async fn route(
    call: Call,
    sandbox: Option<Sandbox>,
    declared: Option<Scope>,
    method: &Method,
    path: &[&str],
) -> Answer {
    let sandbox = match sandbox {
        Some(sandbox) => lives::running(&call.account, sandbox).await?,
        None => return Err(dead(None)),
    };
    let unknown = || Problem::new(StatusCode::NOT_FOUND, "unknown", "a sandbox is not asked for this");
    declared.ok_or_else(unknown)?;
    match (method.as_str(), path) {
        ("GET", ["health"]) => Ok(StatusCode::NO_CONTENT.into_response()),
        ("POST", ["execute"]) => execute::run(call, sandbox).await,
        ("GET", ["contexts"]) => contexts::list(&sandbox),
        ("POST", ["contexts"]) => to_its_end(contexts::create(call, sandbox)).await,
        ("DELETE", ["contexts", id]) => {
            let id = (*id).to_owned();
            to_its_end(async move { contexts::remove(call, sandbox, &id).await }).await
        }
        ("POST", ["contexts", id, "restart"]) => contexts::restart(call, sandbox, id).await,
        ("GET", ["files"]) => files::read(call, sandbox).await,
        ("POST", ["files"]) => files::write(call, sandbox).await,
        ("POST", ["filesystem.Filesystem", procedure @ "GetWatcherEvents"]) => {
            let procedure = (*procedure).to_owned();
            to_its_end(async move { filesystem::answer(call, sandbox, &procedure).await }).await
        }
        ("POST", ["filesystem.Filesystem", procedure]) => filesystem::answer(call, sandbox, procedure).await,
        ("POST", ["process.Process", procedure]) => processes::answer(call, sandbox, procedure).await,
        _ => Err(unknown()),
    }
}

/// Account that was let through, and the id of the token.
struct Passed {
    account: Arc<Account>,
    token: String,
    grant: Grant,
}

/// Refusal for a sandbox that is killed, paused, another's, or was never there. Clients look for these words.
fn dead(id: Option<&str>) -> Problem {
    let name = id.map(|id| format!(" {id}")).unwrap_or_default();
    Problem::new(StatusCode::BAD_GATEWAY, "sandbox", format!("The sandbox{name} was not found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_name_sandboxes() {
        assert_eq!(sandbox_of_host("49999-sbxABC.example.com:443").as_deref(), Some("sbxabc"));
        for host in ["127.0.0.1:8700", "8700-a.example.com", "49999-a", "49983-.x", "localhost", "49983"] {
            assert_eq!(sandbox_of_host(host), None, "{host}");
        }
    }
}
