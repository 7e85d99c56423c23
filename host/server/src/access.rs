//! Authentication: who asks by the token of a request, and what that allows.

mod oauth;
mod tokens;

use std::{
    collections::BTreeSet,
    sync::{PoisonError, RwLock, RwLockReadGuard},
};

use axum_core::response::Response;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use crate::problem::Problem;

pub(crate) use oauth::{Identity, Issuer, METADATA, bearer};
pub use tokens::{NewToken, Scope, Token, TokenError, TokenFile, mint};
pub(crate) use tokens::{Tokens, characters, digest, is_same, now};

/// The tokens that a server takes, and the tenants that they may name.
pub(crate) struct Access {
    tokens: RwLock<Tokens>,
    file: Option<TokenFile>,
    /// Tokens that are taken besides those of the file, for as long as the server runs.
    own: Vec<Token>,
    /// The authorization server whose tokens are taken as well.
    issuer: Option<Issuer>,
    tenants: BTreeSet<String>,
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
        let access = Access { tokens: RwLock::default(), file, own, issuer, tenants };
        access.reload()?;
        Ok(access)
    }

    /// Takes the tokens that the file has now. Blocks.
    ///
    /// # Errors
    /// The file cannot be read; then the tokens stay as they are.
    pub(crate) fn reload(&self) -> Result<(), TokenError> {
        let tokens = self.file.as_ref().map(TokenFile::list).transpose()?.unwrap_or_default();
        self.replace(tokens.into_iter().chain(self.own.iter().cloned()));
        Ok(())
    }

    /// Takes these tokens from now on, and none else.
    pub(crate) fn replace(&self, tokens: impl IntoIterator<Item = Token>) {
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Tokens::new(tokens);
    }

    /// The tokens that are taken.
    pub(crate) fn tokens(&self) -> RwLockReadGuard<'_, Tokens> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the tenant whose token this is the text of, if the token allows `scope`.
    ///
    /// # Errors
    /// 401 without a token that is known and of use, 403 where it does not allow that.
    pub(crate) fn tenant(&self, text: Option<&str>, scope: Scope) -> Result<String, Problem> {
        let unknown = || {
            let detail = "a token is needed, and none was given that is known and has not expired";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "token", detail);
            problem.hint("send `Authorization: Bearer cel_…`; `cellar token new` makes one")
        };
        let text = text.ok_or_else(unknown)?.trim();
        let (name, allows) = match self.tokens().find(text) {
            Some(token) => (token.tenant.clone(), token.allows(scope)),
            None => {
                let Identity { tenant, scopes } = self.identity(text).ok_or_else(unknown)?;
                (tenant, tokens::allows(&scopes, scope))
            }
        };
        // The tenant of a token may have gone from the configuration.
        if !self.tenants.contains(&name) {
            return Err(unknown());
        }
        if !allows {
            let detail = format!("this token has not the scope `{}`", scope.name());
            return Err(Problem::new(StatusCode::FORBIDDEN, "scope", detail));
        }
        Ok(name)
    }

    /// Identity by a token of the authorization server.
    pub(crate) fn identity(&self, text: &str) -> Option<Identity> {
        self.issuer.as_ref()?.identity(text)
    }

    /// Fetches the keys of the authorization server, if a request needs one that is not known.
    pub(crate) async fn learn_keys(&self, headers: &HeaderMap) {
        if let (Some(issuer), Some(token)) = (&self.issuer, bearer(headers)) {
            issuer.learn(token).await;
        }
    }

    /// Metadata of the protected resource: whose tokens are taken. Open to everybody, for whoever asks has none yet.
    pub(crate) fn metadata(&self) -> Result<Value, Problem> {
        self.issuer.as_ref().map(Issuer::metadata).ok_or_else(|| Problem::unknown("resource"))
    }

    /// Tells a client that was refused where to get a token that is not.
    pub(crate) fn challenge(&self, response: &mut Response) {
        if let Some(issuer) = &self.issuer {
            issuer.challenge(response);
        }
    }
}
