//! The protocol over HTTP, for one tenant.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, request::Parts};
use http_body_util::{Full, combinators::BoxBody};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::{SessionManager, local::LocalSessionManager, never::NeverSessionManager},
};
use serde::Deserialize;

use super::Mcp;

/// Sessions of the protocol that are open at once; whoever comes when there are as many does without.
const SESSIONS_MAX: usize = 1_024;
/// How long one stays open of which nothing is heard.
const SESSION_IDLE: Duration = Duration::from_secs(3_600);
/// The pages that may ask: those of this machine. A page has no token, so this is a second lock behind the first.
const ORIGINS: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];
/// What names a session of the protocol.
const SESSION_HEADER: &str = "mcp-session-id";

/// What answers requests at `/mcp`.
///
/// Clients of the protocols before 2026-07-28 say once what they can, and send their answers to the server's requests and
/// what they cancel in requests of their own. A session of the protocol holds these together. Nothing else needs one: a
/// request with no session, or with one that is not known any more, is answered by itself, without what only a session can
/// do.
pub(crate) struct Endpoint {
    with_sessions: StreamableHttpService<Mcp, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    alone: StreamableHttpService<Mcp, NeverSessionManager>,
}

/// What is looked at before a message is read.
#[derive(Deserialize)]
struct Said {
    method: Option<String>,
}

impl Endpoint {
    pub(crate) fn new(served: Mcp) -> Endpoint {
        // The token is checked before, whatever the host is called by.
        let config = StreamableHttpServerConfig::default().disable_allowed_hosts().with_allowed_origins(ORIGINS);
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE);
        let sessions = Arc::new(sessions);
        let own = served.clone();
        let alone_config = config.clone().with_legacy_session_mode(false);
        Endpoint {
            with_sessions: StreamableHttpService::new(move || Ok(own.clone()), sessions.clone(), config),
            sessions,
            alone: StreamableHttpService::new(move || Ok(served.clone()), Arc::default(), alone_config),
        }
    }

    pub(crate) async fn answer(&self, parts: Parts, body: Bytes) -> Response<BoxBody<Bytes, Infallible>> {
        let has_session = self.has_session(&parts, &body).await;
        let is_end = parts.method == Method::DELETE;
        let request = Request::from_parts(parts, Full::new(body));
        let mut response = match has_session {
            true => self.with_sessions.handle(request).await,
            false => self.alone.handle(request).await,
        };
        // Clients take `Accepted` for a failure here.
        if is_end && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        response
    }

    /// Whether a request belongs to a session, or begins one.
    async fn has_session(&self, parts: &Parts, body: &Bytes) -> bool {
        if let Some(session) = parts.headers.get(SESSION_HEADER) {
            let Ok(session) = session.to_str() else { return false };
            return self.sessions.has_session(&session.into()).await.unwrap_or(false);
        }
        let said = || serde_json::from_slice::<Said>(body).ok()?.method;
        parts.method == Method::POST
            && said().is_some_and(|method| method == "initialize")
            && self.sessions.sessions.read().await.len() < SESSIONS_MAX
    }
}
