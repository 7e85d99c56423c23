//! Authentication: the tenant of a request's token, and the permissions of that token.

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

/// Tokens that a server accepts, and the tenants that they may name.
pub(crate) struct Access {
    tokens: RwLock<Tokens>,
    file: Option<TokenFile>,
    /// Tokens that are accepted besides those of the file, for as long as the server runs.
    own: Vec<Token>,
    /// Authorization server whose tokens are accepted as well.
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
    }

    /// Returns the accepted tokens.
    pub(crate) fn tokens(&self) -> RwLockReadGuard<'_, Tokens> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of the tenant of a token, if the token allows `scope`.
    ///
    /// # Errors
    /// 401 without a known and valid token, 403 where it does not allow `scope`.
    pub(crate) fn tenant(&self, text: Option<&str>, scope: Scope) -> Result<String, Problem> {
        let unknown = || {
            let detail = "a token is needed, and none was given that is known and has not expired";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "token", detail);
            problem
                .hint("send `Authorization: Bearer cel_…`; `cellar token new` makes one, which is good a second later")
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
