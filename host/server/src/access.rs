//! Authentication: the tenant of a request's token, and the permissions of that token.

mod oauth;
mod tokens;

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use axum_core::response::Response;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::sync::watch;

use crate::problem::Problem;

pub(crate) use oauth::{Identity, Issuer, METADATA, bearer};
pub use tokens::{NewToken, Scope, Token, TokenError, TokenFile, mint};
pub(crate) use tokens::{Tokens, characters, digest, is_same, now};

/// Interval of checks of a token that nothing was told about: the keys of an issuer may have changed, or the clock.
const CHECK: Duration = Duration::from_secs(5);

/// Tokens that a server accepts, and the tenants that they may name.
pub(crate) struct Access {
    tokens: RwLock<Tokens>,
    file: Option<TokenFile>,
    /// Tokens that are accepted besides those of the file, for as long as the server runs.
    own: Vec<Token>,
    /// Authorization server whose tokens are accepted as well.
    issuer: Option<Issuer>,
    tenants: BTreeSet<String>,
    /// Told of every change of the accepted tokens.
    changes: watch::Sender<()>,
}

/// Credential by which a request was authorised.
#[derive(Clone, PartialEq, Eq)]
enum Credential {
    /// A token of the file, by its id and digest.
    Token { id: String, sha256: String },
    /// A token of the authorization server.
    Issued(String),
}

/// Authorisation of a request: its tenant, and the credential that it is valid with.
#[derive(Clone)]
pub(crate) struct Grant {
    access: Arc<Access>,
    pub(crate) tenant: String,
    credential: Credential,
    scope: Scope,
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grant").field("tenant", &self.tenant).field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl Grant {
    /// Name of the credential, for the audit log.
    pub(crate) fn by(&self) -> String {
        match &self.credential {
            Credential::Token { id, .. } => format!("token:{id}"),
            Credential::Issued(_) => "issued token".to_owned(),
        }
    }

    /// Time for which the credential is valid as far as is known, [`CHECK`] at most; none if it is not.
    fn lasts(&self) -> Option<Duration> {
        match &self.credential {
            Credential::Token { id, sha256 } => {
                let tokens = self.access.tokens();
                let token = tokens.by_id(id)?;
                let is_same = token.sha256 == *sha256 && token.tenant == self.tenant && token.allows(self.scope);
                let left = token.expires_at.map(|end| Duration::from_secs(end.saturating_sub(now())));
                is_same.then(|| left.unwrap_or(CHECK).min(CHECK))
            }
            Credential::Issued(text) => {
                let Identity { tenant, scopes } = self.access.identity(text)?;
                (tenant == self.tenant && tokens::allows(&scopes, self.scope)).then_some(CHECK)
            }
        }
    }

    /// Resolves when the credential was revoked, has expired, or does not allow any more what it allowed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn revoked(self) {
        let mut changes = self.access.changes.subscribe();
        while let Some(left) = self.lasts() {
            let _ = tokio::time::timeout(left, changes.changed()).await;
        }
    }
}

impl Access {
    /// Reads the file of tokens. Blocks.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn open(
        file: Option<TokenFile>,
        own: Vec<Token>,
        issuer: Option<Issuer>,
        tenants: BTreeSet<String>,
    ) -> Result<Access, TokenError> {
        let access = Access { tokens: RwLock::default(), file, own, issuer, tenants, changes: watch::Sender::new(()) };
        access.reload()?;
        Ok(access)
    }

    /// Reads the file of tokens again, and accepts those that it has now. Blocks.
    ///
    /// # Errors
    /// The file cannot be read; then the tokens stay as they are.
    pub(crate) fn reload(&self) -> Result<(), TokenError> {
        let tokens = self.file.as_ref().map(TokenFile::list).transpose()?.unwrap_or_default();
        self.replace(tokens.into_iter().chain(self.own.iter().cloned()));
        Ok(())
    }

    /// Returns the mark of the content of the file of tokens. Blocks.
    pub(crate) fn mark(&self) -> Option<(u64, u64, i64)> {
        self.file.as_ref()?.mark()
    }

    /// Accepts these tokens from now on, and no others.
    pub(crate) fn replace(&self, tokens: impl IntoIterator<Item = Token>) {
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Tokens::new(tokens);
        self.changes.send_replace(());
    }

    /// Returns the number of tenants that tokens may name.
    pub(crate) fn tenants(&self) -> usize {
        self.tenants.len()
    }

    /// Returns the accepted tokens.
    pub(crate) fn tokens(&self) -> RwLockReadGuard<'_, Tokens> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Authorises the bearer of a token for an operation that needs `scope`.
    ///
    /// # Errors
    /// 401 without a known and valid token, 403 where it does not allow `scope`.
    pub(crate) fn authorize(self: &Arc<Access>, text: Option<&str>, scope: Scope) -> Result<Grant, Problem> {
        let text = text.ok_or_else(unknown)?.trim();
        let (grant, allows) = match self.tokens().find(text) {
            Some(token) => (self.grant(token, scope), token.allows(scope)),
            None => {
                let Identity { tenant, scopes } = self.identity(text).ok_or_else(unknown)?;
                let credential = Credential::Issued(text.to_owned());
                (Grant { access: self.clone(), tenant, credential, scope }, tokens::allows(&scopes, scope))
            }
        };
        // The tenant of a token may have gone from the configuration.
        if !self.tenants.contains(&grant.tenant) {
            return Err(unknown());
        }
        if !allows {
            let detail = format!("this token has not the scope `{}`", scope.name());
            return Err(Problem::new(StatusCode::FORBIDDEN, "scope", detail));
        }
        Ok(grant)
    }

    /// Authorises the bearer of what was made with a token, of which the caller has checked that it allows `scope`.
    pub(crate) fn grant(self: &Arc<Access>, token: &Token, scope: Scope) -> Grant {
        let credential = Credential::Token { id: token.id.clone(), sha256: token.sha256.clone() };
        Grant { access: self.clone(), tenant: token.tenant.clone(), credential, scope }
    }

    /// Returns the identity in a token of the authorization server.
    pub(crate) fn identity(&self, text: &str) -> Option<Identity> {
        self.issuer.as_ref()?.identity(text)
    }

    /// Fetches the keys of the authorization server, if the token of a request names an unknown one.
    pub(crate) async fn learn_keys(&self, headers: &HeaderMap) {
        if let (Some(issuer), Some(token)) = (&self.issuer, bearer(headers)) {
            issuer.learn(token).await;
        }
    }

    /// Returns the metadata of the protected resource. It is public, because clients need it before they have a token.
    pub(crate) fn metadata(&self) -> Result<Value, Problem> {
        self.issuer.as_ref().map(Issuer::metadata).ok_or_else(|| Problem::unknown("resource"))
    }

    /// Adds the header that tells a refused client where to get a token.
    pub(crate) fn challenge(&self, response: &mut Response) {
        if let Some(issuer) = &self.issuer {
            issuer.challenge(response);
        }
    }
}

/// Refusal of a request without a token that is known and valid.
pub(crate) fn unknown() -> Problem {
    let detail = "a token is needed, and none was given that is known and has not expired";
    let problem = Problem::new(StatusCode::UNAUTHORIZED, "token", detail);
    problem.hint("send `Authorization: Bearer cel_…`; `cellar token new` makes one, which is good a second later")
}
