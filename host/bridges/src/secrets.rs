//! Credentials of this process, and how they are kept out of what cells are told.
//!
//! Services and commands like to repeat what they were given: a request in an answer, a key in an error. Whatever
//! credential is used is learned here first, and every answer, error and description of a tool is searched for all of
//! them on its way to a cell; what is found becomes `***`. They are known to the whole process, so that no session
//! is told those of another.
//!
//! Found are the credential itself and its usual encodings: in JSON, in URLs, in base64 wherever it begins. A
//! service that is out to pass on what it was given can always do so.

use std::{
    borrow::Cow,
    collections::VecDeque,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

use aho_corasick::{AhoCorasick, MatchKind};
use base64::{
    Engine as _,
    engine::{
        GeneralPurpose,
        general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
    },
};
use cellar_engine::bridges::{CallError, Response, ToolSpec};
use memchr::memmem;
use serde_json::Value;
use url::form_urlencoded::byte_serialize;

/// What stands in the place of a credential.
const HIDDEN: &str = "***";
/// Shorter ones are none: hiding them would spoil answers and keep nothing secret.
const SECRET_BYTES_MIN: usize = 4;
/// Shortest value of a command's environment that is taken for a credential.
const VARIABLE_BYTES_MIN: usize = 8;
/// Shortest piece of an encoding that is searched for.
const ENCODED_BYTES_MIN: usize = 8;
/// Credentials that are known at the same time; the oldest make room.
const SECRETS_MAX: usize = 1_024;
/// Of the name of a variable, what says that it holds a credential.
const NAMES: [&str; 12] =
    ["KEY", "TOKEN", "SECRET", "PASS", "PWD", "AUTH", "CRED", "COOKIE", "SIGN", "PRIVATE", "DSN", "BEARER"];

static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);

#[derive(Debug, Default)]
struct Known {
    values: VecDeque<String>,
    finder: Option<Arc<AhoCorasick>>,
}

impl Known {
    fn learn(&mut self, value: &str) {
        if self.values.len() >= SECRETS_MAX {
            self.values.pop_front();
        }
        self.values.push_back(value.to_owned());
        let patterns = self.values.iter().flat_map(|value| forms(value));
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns);
        match built {
            Ok(finder) => self.finder = Some(Arc::new(finder)),
            Err(error) => tracing::error!(%error, "credentials cannot be searched for"),
        }
    }
}

/// Makes a credential known, whatever surrounds it.
pub(crate) fn learn(value: &str) {
    let value = value.trim();
    let is_known = || KNOWN.read().unwrap_or_else(PoisonError::into_inner).values.iter().any(|known| known == value);
    if value.len() >= SECRET_BYTES_MIN && !is_known() {
        KNOWN.write().unwrap_or_else(PoisonError::into_inner).learn(value);
    }
}

/// Makes the value of a command's variable known, if it is a credential by its name or by its looks. One that is
/// inherited is, unless it is a path: that is what variables are inherited for.
pub(crate) fn learn_variable(name: &str, value: &str, is_inherited: bool) {
    let value = value.trim();
    let name = name.to_uppercase();
    let is_named = NAMES.iter().any(|word| name.contains(word));
    let is_secret = is_named || looks_secret(value) || (is_inherited && !value.starts_with('/'));
    if value.len() >= VARIABLE_BYTES_MIN && is_secret {
        learn(value);
    }
}

/// Whether a text is a URL with a password, or as random as keys are.
fn looks_secret(value: &str) -> bool {
    let has_password = value.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
    let is_key = value.len() >= 20
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=+.".contains(&byte))
        && value.bytes().any(|byte| byte.is_ascii_digit())
        && value.bytes().any(|byte| byte.is_ascii_alphabetic());
    has_password || is_key
}

/// What a credential is searched for as.
fn forms(value: &str) -> Vec<Vec<u8>> {
    let json = Value::from(value).to_string();
    let json = json.trim_matches('"').to_owned();
    let url: String = byte_serialize(value.as_bytes()).collect();
    let mut forms = vec![
        value.to_owned(),
        json.replace('/', "\\/"),
        json,
        url.replace('+', "%20"),
        lower_hex(&url.replace('+', "%20")),
        lower_hex(&url),
        url,
    ];
    forms.extend([&STANDARD_NO_PAD, &URL_SAFE_NO_PAD].into_iter().flat_map(|engine| base64_forms(engine, value)));
    forms.sort_unstable();
    forms.dedup();
    forms.into_iter().filter(|form| !form.is_empty()).map(String::into_bytes).collect()
}

/// Percent-encoding with small letters.
fn lower_hex(url: &str) -> String {
    let mut pieces = url.split('%');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| {
        let (hex, rest) = piece.split_at(piece.len().min(2));
        format!("{text}%{}{rest}", hex.to_lowercase())
    })
}

/// What base64 has of a value for sure, wherever the value begins in what was encoded.
fn base64_forms(engine: &GeneralPurpose, value: &str) -> Vec<String> {
    let piece = |offset: usize| {
        let encoded = engine.encode([&vec![0; offset], value.as_bytes()].concat());
        // Bits of what stands before and behind are in the characters at the ends.
        let start = (offset * 8).div_ceil(6);
        let end = (offset + value.len()) * 8 / 6;
        encoded.get(start..end).map(str::to_owned)
    };
    (0..3).filter_map(piece).filter(|piece| piece.len() >= ENCODED_BYTES_MIN).collect()
}

fn finder() -> Option<Arc<AhoCorasick>> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).finder.clone()
}

/// Bytes of the longest form of any credential.
pub(crate) fn longest() -> usize {
    finder().map_or(0, |finder| finder.max_pattern_len())
}

/// `text` without credentials. To be done before anything of it is cut off. For logs of embedders as well.
pub fn hide(text: &str) -> Cow<'_, str> {
    match finder().filter(|finder| finder.is_match(text)) {
        None => Cow::Borrowed(text),
        Some(finder) => Cow::Owned(String::from_utf8_lossy(&replaced(&finder, text.as_bytes())).into_owned()),
    }
}

fn replaced(finder: &AhoCorasick, bytes: &[u8]) -> Vec<u8> {
    let mut cleaned = Vec::with_capacity(bytes.len());
    finder.replace_all_with_bytes(bytes, &mut cleaned, |_, _, to| {
        to.extend_from_slice(HIDDEN.as_bytes());
        true
    });
    cleaned
}

/// What a call came to, without credentials. Costs one pass over it.
pub(crate) fn clean(result: Result<Response, CallError>) -> Result<Response, CallError> {
    let Some(finder) = finder() else { return result };
    match result {
        Ok(Response::Json(text)) => Ok(Response::Json(clean_json(&finder, text))),
        Ok(Response::Text(text)) => Ok(Response::Text(clean_text(&finder, text))),
        Ok(Response::Http(mut response)) => {
            response.url = clean_text(&finder, response.url);
            for (name, value) in &mut response.headers {
                *name = clean_text(&finder, std::mem::take(name));
                // Characters stand for bytes.
                *value = clean_text(&finder, std::mem::take(value));
            }
            if finder.is_match(&response.body) {
                response.body = replaced(&finder, &response.body);
            }
            Ok(Response::Http(response))
        }
        Err(error) => Err(clean_error(error)),
    }
}

/// An error without credentials.
pub(crate) fn clean_error(error: CallError) -> CallError {
    CallError { message: hide(&error.message).into_owned(), ..error }
}

/// What a tool says of itself, without credentials.
pub(crate) fn clean_tool(spec: ToolSpec) -> ToolSpec {
    let Some(finder) = finder() else { return spec };
    ToolSpec {
        name: clean_text(&finder, spec.name),
        description: clean_text(&finder, spec.description),
        schema: spec.schema.map(|schema| clean_json(&finder, schema)),
    }
}

fn clean_text(finder: &AhoCorasick, text: String) -> String {
    if !finder.is_match(&text) {
        return text;
    }
    String::from_utf8_lossy(&replaced(finder, text.as_bytes())).into_owned()
}

/// A JSON text without credentials, and still one. Any letter may be written as `\u…`: then what is said counts.
fn clean_json(finder: &AhoCorasick, text: String) -> String {
    let is_suspect = finder.is_match(&text) || memmem::find(text.as_bytes(), b"\\u").is_some();
    if !is_suspect {
        return text;
    }
    let Ok(mut value) = serde_json::from_str::<Value>(&text) else { return clean_text(finder, text) };
    if clean_value(finder, &mut value) { value.to_string() } else { text }
}

/// Takes credentials out of a value; whether there were any.
fn clean_value(finder: &AhoCorasick, value: &mut Value) -> bool {
    match value {
        Value::String(text) if finder.is_match(text.as_str()) => {
            *text = clean_text(finder, std::mem::take(text));
            true
        }
        Value::Number(number) if finder.is_match(&number.to_string()) => {
            *value = Value::from(HIDDEN);
            true
        }
        Value::Array(items) => items.iter_mut().fold(false, |found, item| clean_value(finder, item) | found),
        Value::Object(fields) => {
            let mut found = fields.values_mut().fold(false, |found, item| clean_value(finder, item) | found);
            if fields.keys().any(|key| finder.is_match(key.as_str())) {
                found = true;
                *fields =
                    std::mem::take(fields).into_iter().map(|(key, item)| (clean_text(finder, key), item)).collect();
            }
            found
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
