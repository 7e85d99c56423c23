//! Authentication: the tokens of this server, and those of an authorization server beside them.

pub(crate) mod oauth;
mod tokens;

pub use tokens::{NewToken, Scope, Token, TokenError, TokenFile, mint};
pub(crate) use tokens::{Tokens, allows, characters, digest, is_same, now};
