//! Sessions of calls. A call that names none goes on in the session of its connection.
//!
//! A connection on standard input and output is the process. One over HTTP is what the client calls it: the header
//! `Cellar-Session` names a session of its own choice, `Mcp-Session-Id` the session of the protocol, whose id gives the name
//! of ours. The same id leads to the same session when this server has started anew, so that a client notices nothing.
//! Clients of the protocol without sessions that send neither have a new session with each call that names none.

use cellar_hub::SessionEntry;
use http::{HeaderMap, request::Parts};
use rmcp::service::{RequestContext, RoleServer};

use super::Mcp;
use crate::{
    access::digest,
    problem::Problem,
    tenant::{Stray, minted},
};

/// Header by which a client names the session of its connection.
const OWN_HEADER: &str = "cellar-session";
/// Header that names a session of the protocol.
pub(super) const SESSION_HEADER: &str = "mcp-session-id";
/// Characters of the digest of an id in the name of a session.
const DIGEST_CHARACTERS: usize = 22;

/// Session of a call.
#[derive(Debug)]
pub(super) struct Used {
    pub(super) name: String,
    pub(super) entry: SessionEntry,
    /// True if it was opened for the call.
    pub(super) is_new: bool,
}

/// Returns the name of the session that belongs to a session of the protocol.
pub(super) fn name_of(protocol_session: &str) -> String {
    let digest = digest(protocol_session);
    format!("con-{}", digest.get(..DIGEST_CHARACTERS).unwrap_or(&digest))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().filter(|value| !value.is_empty())
}

impl Mcp {
    /// Returns the name of the session that calls of this connection use, and its owner.
    fn of_connection(&self, context: &RequestContext<RoleServer>) -> Option<(String, Stray)> {
        if let Some(own) = &self.own {
            return Some((own.to_string(), Stray::OfConnection));
        }
        let headers = &context.extensions.get::<Parts>()?.headers;
        let named = header(headers, OWN_HEADER).map(|name| (name.to_owned(), Stray::Named));
        named.or_else(|| Some((name_of(header(headers, SESSION_HEADER)?), Stray::OfConnection)))
    }

    /// Returns the session of a call. A session that is not there is opened.
    ///
    /// # Errors
    /// The name is none that a session can have, another process uses the session, or a limit is reached.
    pub(super) async fn session(
        &self,
        named: Option<String>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Used, Problem> {
        let named = named.map(|name| (name, Stray::Named)).or_else(|| self.of_connection(context));
        let (name, stray) = named.unwrap_or_else(|| (minted("ses"), Stray::Named));
        let (entry, is_new) = self.tenant.session_or_new(&name, stray).await?;
        Ok(Used { name, entry, is_new })
    }

    /// Returns the session of a call that makes no sense in a new one.
    ///
    /// # Errors
    /// There is no such session.
    pub(super) async fn known_session(
        &self,
        named: Option<String>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Used, Problem> {
        let name = match named {
            Some(name) => name,
            None => self.of_connection(context).map(|(name, _)| name).ok_or_else(unnamed)?,
        };
        let entry = self.tenant.session(&name).await.map_err(|problem| match problem.status() {
            http::StatusCode::NOT_FOUND => problem.hint(
                "leave `session` out for the session of this connection, which `eval` opens, or give a name that an answer had",
            ),
            _ => problem,
        })?;
        Ok(Used { name, entry, is_new: false })
    }
}

/// Refusal of a call without a session by a client that has none.
fn unnamed() -> Problem {
    Problem::bad("$.session: expected the name of a session, found nothing")
        .hint("`eval` opens one, and its answer has the name")
}
