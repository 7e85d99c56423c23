//! Credentials of this process, and how they are kept out of what cells are told.
//!
//! Services and commands like to repeat what they were given: a request in an answer, a key in an error. Whatever
//! credential is used is learned here first, and every answer, error and description of a tool is searched for all of
//! them on its way to a cell; what is found becomes `***`. They are known to the whole process, so that no session
//! is told those of another.
//!
//! Found are the credential itself and its usual encodings (`forms`): with the escapes of JSON and of the languages, of URLs,
//! of HTML and of mail, twice over as well; in base64 wherever it begins, and in hexadecimal digits, in broken lines too. A
//! service that is out to pass on what it was given can always do so.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::{
    borrow::Cow,
    collections::{BTreeSet, VecDeque},
    fmt,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{Arc, LazyLock, Mutex, PoisonError, RwLock},
};

mod forms;
mod json;
mod source;
mod text;

use forms::Finder;

pub use json::hide_json;
pub use source::SecretSource;
pub use text::{clip, quote};

/// Replacement of a credential.
const HIDDEN: &str = "***";
/// Shortest credential in bytes: hiding shorter ones would spoil answers and keep nothing secret.
const SECRET_BYTES_MIN: usize = 4;
/// Shortest value of a command's environment that is taken for a credential, by its looks or by its name.
const VARIABLE_BYTES_MIN: usize = 8;
const NAMED_BYTES_MIN: usize = 6;
/// Bytes of a file that holds a credential.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Credentials known at the same time; a further one evicts the oldest.
const SECRETS_MAX: usize = 1_024;
/// Parts of a variable's name that mark its value as a credential.
const NAMES: [&str; 13] =
    ["KEY", "TOKEN", "SECRET", "PASS", "PWD", "AUTH", "CRED", "COOKIE", "SIGN", "PRIVATE", "DSN", "BEARER", "WEBHOOK"];

static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);
/// Variables that a warning was logged for.
static WARNED: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(Mutex::default);

#[derive(Debug, Default)]
struct Known {
    values: VecDeque<String>,
    finder: Option<Arc<Finder>>,
}

impl Known {
    fn learn(&mut self, value: &str) {
        if self.values.len() >= SECRETS_MAX {
            self.values.pop_front();
        }
        self.values.push_back(value.to_owned());
        match Finder::new(self.values.iter().map(String::as_str)) {
            Ok(finder) => self.finder = Some(Arc::new(finder)),
            Err(error) => tracing::error!(%error, "credentials cannot be searched for"),
        }
    }
}

/// Makes a credential known, whatever surrounds it.
pub fn learn(value: &str) {
    let value = value.trim();
    let is_known = || KNOWN.read().unwrap_or_else(PoisonError::into_inner).values.iter().any(|known| known == value);
    if value.len() >= SECRET_BYTES_MIN && !is_known() {
        KNOWN.write().unwrap_or_else(PoisonError::into_inner).learn(value);
    }
}

/// Result of reading a credential that a configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// It is known, and taken out of all that cells are told.
    Hidden,
    /// It is too short: taking it out would spoil answers and keep nothing secret.
    TooShort,
    /// There is no such variable or file, or none with a text in it.
    Absent,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Named::Hidden => f.write_str("hidden"),
            Named::TooShort => write!(f, "not hidden: it is shorter than {SECRET_BYTES_MIN} bytes"),
            Named::Absent => f.write_str("not hidden: it is not there"),
        }
    }
}

/// Makes known what a configuration names as a credential: a variable of this process, or a file by its path.
pub fn learn_named(source: &SecretSource) -> Named {
    let value = match source {
        SecretSource::Variable(name) => std::env::var(name).ok(),
        SecretSource::File(path) => read_file(path).ok(),
    };
    match value.as_deref().map(str::trim) {
        None | Some("") => Named::Absent,
        Some(value) if value.len() < SECRET_BYTES_MIN => Named::TooShort,
        Some(value) => {
            learn(value);
            Named::Hidden
        }
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Makes the value of a command's variable known, if it is a credential by its name or by its looks. One that is
/// inherited is, unless it is a path: that is what variables are inherited for. One that is a credential by its name and too
/// short to be taken out of answers is warned of.
pub fn learn_variable(name: &str, value: &str, is_inherited: bool) {
    let value = value.trim();
    let name = name.to_uppercase();
    let is_named = NAMES.iter().any(|word| name.contains(word));
    let is_secret = looks_secret(value) || (is_inherited && !value.starts_with('/'));
    if value.len() >= VARIABLE_BYTES_MIN && is_secret || value.len() >= NAMED_BYTES_MIN && is_named {
        learn(value);
    } else if is_named
        && !value.is_empty()
        && WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone())
    {
        tracing::warn!(
            "the variable {name} looks like a credential and is too short to be recognised in what its command says; use a \
             longer one, or name it in `secrets`"
        );
    }
}

/// Returns true for a variable that is a credential by its name, and too short to be hidden. For checks of configurations.
pub fn is_too_short(name: &str, value: &str) -> bool {
    let (name, value) = (name.to_uppercase(), value.trim());
    NAMES.iter().any(|word| name.contains(word)) && !value.is_empty() && value.len() < NAMED_BYTES_MIN
}

/// Returns true if a text is a URL with a password, or as random as keys are.
fn looks_secret(value: &str) -> bool {
    let has_password = value.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
    let is_key = value.len() >= 20
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=+.".contains(&byte))
        && value.bytes().any(|byte| byte.is_ascii_digit())
        && value.bytes().any(|byte| byte.is_ascii_alphabetic());
    has_password || is_key
}

fn finder() -> Option<Arc<Finder>> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).finder.clone()
}

/// Bytes of the longest form of any credential.
pub fn longest() -> usize {
    finder().map_or(0, |finder| finder.longest())
}

/// Returns true if these bytes contain any credential.
pub fn is_found_in(bytes: &[u8]) -> bool {
    finder().is_some_and(|finder| !finder.find(bytes).is_empty())
}

/// Returns `text` without credentials. Call it before cutting anything off. Embedders may use it for their logs as well.
pub fn hide(text: &str) -> Cow<'_, str> {
    match finder().and_then(|finder| replaced(&finder, text.as_bytes())) {
        None => Cow::Borrowed(text),
        Some(cleaned) => Cow::Owned(String::from_utf8_lossy(&cleaned).into_owned()),
    }
}

/// Returns `text` without credentials, unchanged if it has none.
pub fn hide_text(text: String) -> String {
    match hide(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(cleaned) => cleaned,
    }
}

/// Bytes without credentials.
pub fn hide_bytes(bytes: Vec<u8>) -> Vec<u8> {
    finder().and_then(|finder| replaced(&finder, &bytes)).unwrap_or(bytes)
}

/// The bytes without credentials, if there are any.
fn replaced(finder: &Finder, bytes: &[u8]) -> Option<Vec<u8>> {
    let found = finder.find(bytes);
    if found.is_empty() {
        return None;
    }
    let mut cleaned = Vec::with_capacity(bytes.len());
    let mut place = 0;
    for (start, end) in found {
        cleaned.extend_from_slice(bytes.get(place..start).unwrap_or_default());
        cleaned.extend_from_slice(HIDDEN.as_bytes());
        place = end;
    }
    cleaned.extend_from_slice(bytes.get(place..).unwrap_or_default());
    Some(cleaned)
}

#[cfg(test)]
mod tests;
