//! Forwarding of requests: to which worker each goes, and the response when a worker ends before it has answered.

use std::{sync::Arc, time::Duration};

use axum_core::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version, header, request::Parts};
use hyper::{
    body::{Body as HttpBody, Incoming},
    client::conn::http1::SendRequest,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::{Running, UnderWay, Worker, Workers, lost};
use crate::{
    access::{Grant, Scope, bearer},
    e2b,
    http::{
        Carried, Labels, Permit, QUOTAS_IN_FRONT,
        body::{Accompanied, Companion},
        is_read, names, while_granted,
    },
    jupyter,
    problem::Problem,
    router::{self, Target},
};

/// First name of the operator's paths behind `/v1`.
const ADMIN: &str = "admin";
/// Time for which a worker may say goodbye on a WebSocket whose token is not valid any more.
const LAST_WORD: Duration = Duration::from_secs(2);
/// Headers that apply to one connection alone.
const OF_CONNECTION: [header::HeaderName; 5] =
    [header::CONNECTION, header::PROXY_AUTHENTICATE, header::TE, header::TRAILER, header::TRANSFER_ENCODING];
/// Close frame of a WebSocket whose worker is lost: status 1011, an error of the server, with a code as its reason.
const LOST_FRAME: &[u8] = b"\x88\x0d\x03\xf3worker_lost";

impl Workers {
    /// Forwards a request to the worker of its tenant, or answers it for all workers; returns it unchanged when the router of
    /// this process must answer.
    pub(crate) async fn answer(&self, mut parts: Parts, body: Body) -> Result<Response, (Parts, Body)> {
        let path = parts.uri.path();
        // By the names that the operation is found by, however they are spelled.
        let is_admin = names(path).is_ok_and(|names| names.first().is_some_and(|first| first == ADMIN));
        match Target::of(&parts) {
            Target::Other if path == "/metrics" && is_read(&parts.method) => {
                return Ok(self.metrics(&parts.headers).await.unwrap_or_else(Problem::into_response));
            }
            Target::Other => return Err((parts, body)),
            Target::Api if is_admin => return Ok(self.admin(&parts).await),
            _ => {}
        }
        let Some((worker, grant)) = whose(self, &mut parts) else { return Err((parts, body)) };
        let carried = Carried::of_tenant(parts.extensions.get(), &worker.name);
        let route = router::label(parts.uri.path());
        let mut response = match self.state.shares.take(&worker.name) {
            Err(problem) => problem.into_response(),
            Ok(permit) => {
                let by = Authorized { grant: grant.clone(), permit: Some(permit) };
                let work = async { worker.send(self, parts, body, by).await.unwrap_or_else(Problem::into_response) };
                match grant {
                    Some(grant) => while_granted(grant, None, carried, work).await,
                    None => work.await,
                }
            }
        };
        self.state.access.challenge(&mut response);
        self.state.metrics.count(Some(&worker.name), response.status());
        response.extensions_mut().insert(Labels { tenant: Some(worker.name.clone()), route });
        Ok(response)
    }
}

/// Authorisation of a request that is forwarded, as far as this process knows.
#[derive(Default)]
pub(super) struct Authorized {
    grant: Option<Grant>,
    permit: Option<Permit>,
}

/// Returns the worker of the tenant that a request names, and the request's authorisation if this process knows it. The worker authenticates the request itself, so that a wrong
/// guess is refused there. The token of an issuer, which only this process can check, is replaced by one that the
/// worker knows.
fn whose<'a>(workers: &'a Workers, parts: &mut Parts) -> Option<(&'a Arc<Worker>, Option<Grant>)> {
    let access = &workers.state.access;
    let headers = &parts.headers;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let shown = ["x-access-token", "e2b-traffic-access-token"].into_iter().find_map(text);
    if let Some((id, _)) = shown.and_then(|shown| shown.split_once('.')) {
        let tokens = access.tokens();
        let token = tokens.by_id(id)?;
        return Some((workers.get(&token.tenant)?, Some(access.grant(token, Scope::Run))));
    }
    let of_header = text("x-api-key").or_else(|| text("authorization")?.split_once(' ').map(|(_, text)| text.trim()));
    let in_path = parts.uri.path().strip_prefix(jupyter::PREFIX).and_then(|path| path.strip_prefix(jupyter::TOKEN));
    let in_path = in_path.and_then(|rest| Some(rest.split_once('/')?.0));
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let in_query = url::form_urlencoded::parse(query).find(|(name, _)| name == "token").map(|(_, text)| text);
    let given = in_path.or(of_header).or(in_query.as_deref());
    if let Some(text) = given {
        let tokens = access.tokens();
        if let Some(token) = tokens.find(text) {
            let scope = Scope::ALL.into_iter().find(|scope| token.allows(*scope))?;
            return Some((workers.get(&token.tenant)?, Some(access.grant(token, scope))));
        }
    }
    let issued = bearer(headers).and_then(|text| Some((text.to_owned(), access.identity(text)?)));
    if let Some((text, identity)) = issued {
        let worker = workers.get(&identity.tenant)?;
        let own = match (identity.scopes.contains(&Scope::Run), identity.scopes.contains(&Scope::Approve)) {
            (true, false) => &worker.own.run,
            (false, false) => &worker.own.read,
            (true, true) => &worker.own.run_approve,
            (false, true) => &worker.own.read_approve,
        };
        // Whoever may do nothing there is refused here.
        let value = HeaderValue::from_str(&format!("Bearer {}", own.0)).ok();
        let value = value.filter(|_| identity.scopes.iter().any(|scope| matches!(scope, Scope::Run | Scope::Read)))?;
        let scope = if identity.scopes.contains(&Scope::Run) { Scope::Run } else { Scope::Read };
        let grant = access.authorize(Some(&text), scope).ok()?;
        parts.headers.insert(header::AUTHORIZATION, value);
        return Some((worker, Some(grant)));
    }
    // An address that was signed names nobody but a sandbox.
    e2b::Asked::of(parts).and_then(|asked| Some((workers.of_sandbox(asked.sandbox()?)?, None)))
}

impl Worker {
    /// Sends a request to the worker and returns its response. The request is sent once more, to a new worker, if the
    /// worker ended before it saw anything of it, or if the request changes nothing.
    ///
    /// # Errors
    /// The worker cannot be started, or ended before it answered.
    pub(super) async fn send(
        &self,
        workers: &Workers,
        parts: Parts,
        body: Body,
        Authorized { grant, permit }: Authorized,
    ) -> Result<Response, Problem> {
        let mut request = Request::from_parts(parts, body);
        let is_upgrade = request.headers().contains_key(header::UPGRADE);
        let upgrade = is_upgrade.then(|| hyper::upgrade::on(&mut request));
        for_worker(&mut request, is_upgrade);
        self.tell_models(&mut request);
        let told = (request.method().clone(), router::label(request.uri().path()));
        let is_harmless = !is_upgrade && request.method().is_safe() && request.body().is_end_stream();
        let mut under_way = self.running(workers).await?;
        let mut again = is_harmless.then(|| copy(&request));
        let (mut answer, mut sender) = match under_way.0.ask(request, &told).await {
            Ok(answered) => answered,
            Err(Unanswered { problem, unseen }) => {
                let request = unseen.or(again.take()).ok_or(problem)?;
                // The one that breaks its connections is not yet seen to end: asked again, it would break that as well.
                under_way.is_gone_soon().await;
                tracing::info!(tenant = self.name, "a request is passed on again, because its worker has ended");
                drop(under_way);
                under_way = self.running(workers).await?;
                under_way.0.ask(request, &told).await.map_err(|unanswered| unanswered.problem)?
            }
        };
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let theirs = hyper::upgrade::on(&mut answer);
            if let Some(ours) = upgrade {
                tokio::spawn(async move {
                    // The worker, which is told of tokens that are revoked, has the first word where it knows the token.
                    // THREAT: T02
                    let revoked = async {
                        match grant {
                            Some(grant) => grant.revoked().await,
                            None => std::future::pending().await,
                        }
                        tokio::time::sleep(LAST_WORD).await;
                    };
                    tokio::select! {
                        () = carry(ours, theirs, under_way) => {}
                        () = revoked => {}
                    }
                    drop(permit);
                });
            }
            return Ok(answer.map(|_| Body::empty()));
        }
        let running = under_way.0.clone();
        // It carries the next request when this one was answered whole.
        tokio::spawn(async move {
            if sender.ready().await.is_ok() {
                running.keep(sender);
            }
        });
        for name in OF_CONNECTION {
            answer.headers_mut().remove(name);
        }
        let form = Form::of(answer.headers());
        Ok(answer.map(|body| Body::new(Accompanied::new(body, Passed { under_way, form, _permit: permit }))))
    }
}

/// Request that was not answered.
struct Unanswered {
    problem: Problem,
    /// The request, if the worker has seen nothing of it.
    unseen: Option<Request<Body>>,
}

impl Running {
    /// Sends a request, and waits for the head of the response.
    async fn ask(
        &self,
        request: Request<Body>,
        (method, route): &(Method, Option<&'static str>),
    ) -> Result<(Response<Incoming>, SendRequest<Body>), Unanswered> {
        let mut sender = match self.connection().await {
            Ok(sender) => sender,
            Err(problem) => return Err(Unanswered { problem, unseen: Some(request) }),
        };
        tracing::debug!(%method, route = route.unwrap_or("other"), "a request is passed on");
        match sender.try_send_request(request).await {
            Ok(answer) => Ok((answer, sender)),
            Err(mut unsent) => {
                tracing::warn!(error = %unsent.error(), "a worker did not answer");
                Err(Unanswered { problem: lost(), unseen: unsent.take_message() })
            }
        }
    }
}

impl Worker {
    /// Adds the usage of models, which is counted in this process, to a request for the usage of the tenant.
    fn tell_models(&self, request: &mut Request<Body>) {
        let is_told = names(request.uri().path())
            .is_ok_and(|names| matches!(names.first().map(String::as_str), Some("tenant" | ADMIN)));
        if !is_told {
            return;
        }
        if let Ok(value) = HeaderValue::from_str(&self.models.json().to_string()) {
            request.headers_mut().insert(QUOTAS_IN_FRONT, value);
        }
    }
}

/// Returns a copy of a request without a body.
fn copy(request: &Request<Body>) -> Request<Body> {
    let mut copy = Request::new(Body::empty());
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy
}

/// Rewrites a request for a worker, in the form of HTTP/1.1.
fn for_worker(request: &mut Request<Body>, is_upgrade: bool) {
    *request.version_mut() = Version::HTTP_11;
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
    for name in OF_CONNECTION {
        if !(is_upgrade && name == header::CONNECTION) {
            request.headers_mut().remove(name);
        }
    }
    // Nobody but this process tells a worker of quotas.
    request.headers_mut().remove(QUOTAS_IN_FRONT);
    if !request.headers().contains_key(header::HOST) {
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
    }
}

/// Carries data between the two sides of a WebSocket, until one ends.
async fn carry(ours: hyper::upgrade::OnUpgrade, theirs: hyper::upgrade::OnUpgrade, under_way: UnderWay) {
    let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else { return };
    let (mut read, mut write) = tokio::io::split(TokioIo::new(ours));
    let (mut their_read, mut their_write) = tokio::io::split(TokioIo::new(theirs));
    let there = async {
        let _ = tokio::io::copy(&mut read, &mut their_write).await;
        let _ = their_write.shutdown().await;
        // What the worker still has to say is said.
        std::future::pending().await
    };
    tokio::select! {
        () = there => {}
        // Nothing is ended yet: whoever reads is told first how it ended.
        _ = tokio::io::copy(&mut their_read, &mut write) => {}
    }
    if under_way.is_gone_soon().await {
        let _ = write.write_all(LOST_FRAME).await;
    }
    let _ = write.shutdown().await;
}

impl UnderWay {
    /// Returns true if its worker has ended or is about to. It waits a moment, because connections break before the end
    /// of the process is noticed.
    async fn is_gone_soon(&self) -> bool {
        let _ = tokio::time::timeout(Duration::from_millis(500), self.0.ended()).await;
        self.is_gone() || self.0.is_ending()
    }
}

/// Form in which a stream reports its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Lines,
    Events,
    /// Any other, which reports its end by itself.
    Other,
}

impl Form {
    fn of(headers: &HeaderMap) -> Form {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match kind.split(';').next().map(str::trim) {
            Some("application/x-ndjson") => Form::Lines,
            Some("text/event-stream") => Form::Events,
            _ => Form::Other,
        }
    }

    /// Returns the last message of a stream whose worker is lost. It begins a new line, because the stream may have
    /// broken off within one.
    fn last(self) -> Option<Bytes> {
        let json = json!({"type": "error", "error": lost().json()});
        match self {
            Form::Lines => Some(format!("\n{json}\n").into()),
            Form::Events => Some(format!("\n\ndata: {json}\n\n").into()),
            Form::Other => None,
        }
    }
}

/// Companion of a worker's response: keeps the worker from leaving until the body was read, and ends a stream whose
/// worker is lost.
struct Passed {
    under_way: UnderWay,
    form: Form,
    _permit: Option<Permit>,
}

impl Companion<Incoming> for Passed {
    fn last(&mut self, error: &hyper::Error) -> Option<Bytes> {
        tracing::warn!(%error, is_gone = self.under_way.is_gone(), "an answer of a worker broke off");
        self.form.last()
    }
}
