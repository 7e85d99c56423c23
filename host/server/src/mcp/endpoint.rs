//! The protocol over HTTP, for one tenant.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use cellar_core::sync::lock;
use http::{Method, Request, Response, StatusCode, request::Parts};
use http_body_util::{Full, combinators::BoxBody};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::{SessionManager, local::LocalSessionManager, never::NeverSessionManager},
};
use serde::Deserialize;

use super::{
    Mcp,
    connection::{SESSION_HEADER, name_of},
};
use crate::access::Grant;

/// Sessions of the protocol that may be open; further clients are served without one.
const SESSIONS_MAX: usize = 1_024;
/// Sessions that are remembered to have been ended by their clients, the latest.
const ENDED_MAX: usize = 1_024;
/// Time without messages after which a session of the protocol is closed.
const SESSION_IDLE: Duration = Duration::from_secs(3_600);
/// Interval of checks whether a session is still open.
const SESSION_CHECK: Duration = Duration::from_secs(60);
/// Origins of pages that may send requests: those of this machine. A page has no token, so this is a second check
/// besides the token.
const ORIGINS: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];

/// Endpoint of `/mcp`.
///
/// Clients of the protocols before 2026-07-28 declare their capabilities once, and send answers to the server's
/// requests and cancellations in requests of their own. A session of the protocol connects these. Nothing else needs
/// one: a request with no session, or with an unknown one, is answered by itself, without the features that need a
/// session. A request that names a session that its client has ended is refused with that reason.
pub(super) struct Endpoint {
    with_sessions: StreamableHttpService<Mcp, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    ended: Mutex<VecDeque<String>>,
    alone: StreamableHttpService<Mcp, NeverSessionManager>,
    served: Mcp,
}

/// Member of a message that is read before the message itself.
#[derive(Deserialize)]
struct Said {
    method: Option<String>,
}

impl Endpoint {
    pub(super) fn new(served: Mcp) -> Endpoint {
        // The token is checked before, whatever the host is called by.
        let config = StreamableHttpServerConfig::default().disable_allowed_hosts().with_allowed_origins(ORIGINS);
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE);
        let sessions = Arc::new(sessions);
        let own = served.clone();
        let alone_config = config.clone().with_legacy_session_mode(false);
        let kept = served.clone();
        Endpoint {
            with_sessions: StreamableHttpService::new(move || Ok(own.clone()), sessions.clone(), config),
            sessions,
            ended: Mutex::default(),
            alone: StreamableHttpService::new(move || Ok(served.clone()), Arc::default(), alone_config),
            served: kept,
        }
    }

    pub(super) async fn answer(&self, parts: Parts, body: Bytes, grant: Grant) -> Response<BoxBody<Bytes, Infallible>> {
        let has_session = self.has_session(&parts, &body).await;
        let is_end = parts.method == Method::DELETE;
        let ended = named(&parts).filter(|_| is_end).map(str::to_owned);
        let is_new = has_session && named(&parts).is_none();
        let request = Request::from_parts(parts, Full::new(body));
        let mut response = match has_session {
            true => self.with_sessions.handle(request).await,
            false => self.alone.handle(request).await,
        };
        let begun = response.headers().get(SESSION_HEADER).and_then(|id| id.to_str().ok());
        if let Some(session) = begun.filter(|_| is_new) {
            self.end_with(grant, session.to_owned());
        }
        // Clients take `Accepted` for a failure here.
        if is_end && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        if let Some(session) = ended.filter(|_| has_session && response.status().is_success()) {
            self.served.tenant.end_connection(&name_of(&session)).await;
            let mut ended = lock(&self.ended);
            ended.push_back(session);
            let excess = ended.len().saturating_sub(ENDED_MAX);
            ended.drain(..excess);
        }
        response
    }

    /// Closes a session when the token that it was begun with is not valid any more.
    fn end_with(&self, grant: Grant, session: String) {
        // THREAT: T02
        let sessions = self.sessions.clone();
        tokio::spawn(async move {
            let session = session.into();
            let ended = async {
                while sessions.has_session(&session).await.unwrap_or(false) {
                    tokio::time::sleep(SESSION_CHECK).await;
                }
            };
            tokio::select! {
                () = ended => {}
                () = grant.revoked() => {
                    if let Err(error) = sessions.close_session(&session).await {
                        tracing::debug!(%error, "a session of the protocol was not closed");
                    }
                }
            }
        });
    }

    /// Returns true if a request begins a session or belongs to one, even to one that was ended.
    async fn has_session(&self, parts: &Parts, body: &Bytes) -> bool {
        if parts.headers.contains_key(SESSION_HEADER) {
            let Some(session) = named(parts) else { return false };
            let is_ended = lock(&self.ended).iter().any(|ended| ended == session);
            return is_ended || self.sessions.has_session(&session.into()).await.unwrap_or(false);
        }
        let said = || serde_json::from_slice::<Said>(body).ok()?.method;
        parts.method == Method::POST
            && said().is_some_and(|method| method == "initialize")
            && self.sessions.sessions.read().await.len() < SESSIONS_MAX
    }
}

/// Returns the session that a request names.
fn named(parts: &Parts) -> Option<&str> {
    parts.headers.get(SESSION_HEADER)?.to_str().ok()
}
