//! Tokens of an authorization server: JSON Web Tokens of [RFC 9068](https://www.rfc-editor.org/rfc/rfc9068), beside those that
//! `cellar token` makes.
//!
//! Cellar is a resource server and nothing else: it says whose tokens it takes
//! ([RFC 9728](https://www.rfc-editor.org/rfc/rfc9728)), and checks signature, issuer, audience and time of each. A claim names the
//! tenant. The issuer's public keys are fetched when a token names one that is not known, and no more often than
//! [`FETCH_EVERY`], whatever tokens strangers send.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
    time::{Duration, Instant},
};

use axum_core::response::Response;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use cellar_config::OauthTable;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    jwk::{Jwk, KeyOperations, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;

use super::Scope;

/// Path of the protected resource's metadata, which comes before the path of the resource itself.
pub(crate) const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Time between two requests for keys, at least.
const FETCH_EVERY: Duration = Duration::from_secs(30);
/// Timeout of the issuer's response.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the issuer's response, at most.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Keys of an issuer.
const KEYS_MAX: usize = 64;
/// Bytes of a token.
const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Seconds by which clocks may differ.
const LEEWAY: u64 = 60;
/// Algorithms of signatures that are accepted. All are asymmetric: only the issuer holds its private key, and no secret
/// is shared.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// An authorization server whose tokens are taken.
pub(crate) struct Issuer {
    table: OauthTable,
    client: reqwest::Client,
    keys: RwLock<Arc<Keys>>,
    /// Time of the last request for keys. The lock admits one request at a time.
    asked: tokio::sync::Mutex<Option<Instant>>,
}

/// The keys by their names; one without a name has the empty one.
type Keys = HashMap<String, (DecodingKey, Option<Algorithm>)>;

/// Identity that a token conveys.
pub(crate) struct Identity {
    pub(crate) tenant: String,
    pub(crate) scopes: Vec<Scope>,
}

/// Metadata of an authorization server.
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

/// The keys of an authorization server, as RFC 7517 has them.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

impl Issuer {
    /// # Errors
    /// No client can be made, in words.
    pub(crate) fn new(table: OauthTable) -> Result<Issuer, String> {
        let builder = cellar_bridges::http_client(&[])?;
        let builder = builder.timeout(FETCH_TIMEOUT).redirect(reqwest::redirect::Policy::none());
        let client = builder.build().map_err(|error| error.to_string())?;
        Ok(Issuer { table, client, keys: RwLock::default(), asked: tokio::sync::Mutex::new(None) })
    }

    /// Returns the metadata of the protected resource, which is public: the issuer whose tokens are accepted, and the
    /// scopes.
    pub(super) fn metadata(&self) -> Value {
        json!({
            "resource": self.table.audience,
            "authorization_servers": [self.table.issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": [scope_word(Scope::Run), scope_word(Scope::Read)],
            "resource_name": "Cellar",
        })
    }

    /// Returns the URL of that metadata, as clients reach it.
    fn metadata_url(&self) -> Option<String> {
        let mut url = Url::parse(&self.table.audience).ok()?;
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{METADATA}{path}"));
        url.set_query(None);
        Some(url.into())
    }

    fn known(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Fetches the keys, if the token names an unknown one and [`FETCH_EVERY`] has passed since the last request.
    pub(super) async fn learn(&self, token: &str) {
        let Some(kid) = key_name(token).filter(|kid| !self.known().contains_key(kid)) else { return };
        let mut asked = self.asked.lock().await;
        // Whoever waited for another's request may know by now.
        if self.known().contains_key(&kid) || asked.is_some_and(|at| at.elapsed() < FETCH_EVERY) {
            return;
        }
        *asked = Some(Instant::now());
        match self.fetch().await {
            Ok(keys) => *self.keys.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(keys),
            Err(error) => tracing::warn!(issuer = self.table.issuer, error, "the keys of an issuer cannot be had"),
        }
    }

    async fn fetch(&self) -> Result<Keys, String> {
        let jwks = match &self.table.jwks {
            Some(jwks) => jwks.clone(),
            None => self.discover().await?,
        };
        let set: KeySet = self.get(&jwks).await?;
        // Kinds of keys that are not known here are nobody's fault.
        let known = set.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        let usable = known.filter(|key| {
            let is_for_signatures =
                key.common.public_key_use.as_ref().is_none_or(|use_| *use_ == PublicKeyUse::Signature);
            let verifies = key.common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
            is_for_signatures && verifies
        });
        let key = |key: Jwk| {
            let algorithm = key.common.key_algorithm.and_then(|named| named.to_string().parse().ok());
            let decoding = DecodingKey::from_jwk(&key).ok()?;
            Some((key.common.key_id.unwrap_or_default(), (decoding, algorithm)))
        };
        Ok(usable.take(KEYS_MAX).filter_map(key).collect())
    }

    /// Asks the issuer for the URL of its keys, as RFC 8414 and `OpenID` Connect specify.
    async fn discover(&self) -> Result<String, String> {
        let issuer = Url::parse(&self.table.issuer).map_err(|error| error.to_string())?;
        let path = issuer.path().trim_end_matches('/');
        let places = [
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("{path}/.well-known/openid-configuration"),
        ];
        let mut failure = String::new();
        for place in places {
            let mut url = issuer.clone();
            url.set_path(&place);
            match self.get::<Metadata>(url.as_str()).await {
                Ok(found) if found.issuer == self.table.issuer => {
                    return check_url(&found.jwks_uri).map(|()| found.jwks_uri);
                }
                Ok(found) => failure = format!("`{url}` is of the issuer `{}`", found.issuer),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, url: &str) -> Result<T, String> {
        let failed = |error: &dyn std::fmt::Display| format!("`{url}`: {error}");
        let mut response = self.client.get(url).send().await.map_err(|error| failed(&error))?;
        if response.status() != StatusCode::OK {
            return Err(failed(&response.status()));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| failed(&error))? {
            body.extend_from_slice(&piece);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(failed(&format!("the answer has more than {ANSWER_BYTES_MAX} bytes")));
            }
        }
        serde_json::from_slice(&body).map_err(|error| failed(&error))
    }

    /// Returns the identity in a token that this issuer signed for this server and that is valid now.
    pub(crate) fn identity(&self, token: &str) -> Option<Identity> {
        let header = jsonwebtoken::decode_header(token).ok().filter(|_| token.len() <= TOKEN_BYTES_MAX)?;
        let keys = self.known();
        let (key, algorithm) = keys.get(header.kid.as_deref().unwrap_or_default())?;
        let is_taken = ALGORITHMS.contains(&header.alg) && algorithm.is_none_or(|named| named == header.alg);
        if !is_taken {
            return None;
        }
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.table.issuer]);
        validation.set_audience(&[&self.table.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY;
        // THREAT: T03
        if has_critical(token) {
            return None;
        }
        let claims = jsonwebtoken::decode::<Map<String, Value>>(token, key, &validation).ok()?.claims;
        if !is_issued_by(&claims, &self.table.issuer) {
            return None;
        }
        let tenant = claims.get(&self.table.tenant_claim)?.as_str()?.to_owned();
        Some(Identity { tenant, scopes: scopes(&claims) })
    }
}

/// Returns true if claims name this issuer, as one text: RFC 7519, 4.1.1.
fn is_issued_by(claims: &Map<String, Value>, issuer: &str) -> bool {
    claims.get("iss").and_then(Value::as_str) == Some(issuer)
}

/// Returns true if the header of a token names extensions that must be understood: none are here. So does a header that
/// cannot be read.
fn has_critical(token: &str) -> bool {
    let header = token.split('.').next().and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let header = header.and_then(|bytes| serde_json::from_slice::<Map<String, Value>>(&bytes).ok());
    header.is_none_or(|header| header.contains_key("crit"))
}

/// The name of a scope in tokens.
fn scope_word(scope: Scope) -> String {
    format!("cellar:{}", scope.name())
}

/// Returns the scopes of a token: the claim `scope`, a text, and the claim `scp`, which some issuers give as a list.
fn scopes(claims: &Map<String, Value>) -> Vec<Scope> {
    let listed = |claim: &Value| match claim {
        Value::String(text) => text.split(' ').map(str::to_owned).collect(),
        Value::Array(words) => words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    let words: Vec<String> =
        ["scope", "scp"].into_iter().filter_map(|name| claims.get(name)).flat_map(listed).collect();
    Scope::ALL.into_iter().filter(|scope| words.contains(&scope_word(*scope))).collect()
}

/// The name of the key that signed what looks like a token of an issuer.
fn key_name(token: &str) -> Option<String> {
    let looks = token.len() <= TOKEN_BYTES_MAX && token.bytes().filter(|byte| *byte == b'.').count() == 2;
    let header = jsonwebtoken::decode_header(token).ok().filter(|_| looks)?;
    ALGORITHMS.contains(&header.alg).then(|| header.kid.unwrap_or_default())
}

/// Keys come encrypted, but from this machine itself.
fn check_url(text: &str) -> Result<(), String> {
    cellar_config::secure_url(text).map(|_| ()).ok_or_else(|| format!("`{text}` is not encrypted"))
}

/// The token that a request carries.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok())?;
    let (kind, text) = given.split_once(' ')?;
    kind.eq_ignore_ascii_case("bearer").then(|| text.trim())
}

impl Issuer {
    /// Adds the header that tells a refused client where to get a token.
    pub(super) fn challenge(&self, response: &mut Response) {
        let Some(url) = self.metadata_url() else { return };
        let error = match response.status() {
            StatusCode::UNAUTHORIZED => String::new(),
            StatusCode::FORBIDDEN => format!(", error=\"insufficient_scope\", scope=\"{}\"", scope_word(Scope::Run)),
            _ => return,
        };
        if let Ok(value) =
            HeaderValue::from_str(&format!("Bearer realm=\"cellar\", resource_metadata=\"{url}\"{error}"))
        {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_with_several_issuers_or_unknown_extensions_is_refused() {
        let token = |header: Value| format!("{}.e30.x", URL_SAFE_NO_PAD.encode(header.to_string()));
        assert!(!has_critical(&token(json!({"alg": "ES256", "kid": "a"}))));
        for header in [json!({"alg": "ES256", "crit": ["x"]}), json!({"alg": "ES256", "crit": []}), json!([])] {
            assert!(has_critical(&token(header.clone())), "{header}");
        }
        assert!(has_critical("") && has_critical("%%.e30.x"));
        let issuer = |iss: Value| is_issued_by(&Map::from_iter([("iss".to_owned(), iss)]), "https://a.example");
        assert!(issuer(json!("https://a.example")));
        for iss in
            [json!(["https://a.example"]), json!(["https://a.example", "x"]), json!("https://a.example/"), json!(null)]
        {
            assert!(!issuer(iss.clone()), "{iss}");
        }
    }
}
