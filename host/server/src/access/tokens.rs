//! Tokens and what they permit. Only digests of tokens are stored.
//!
//! A token is `cel_<id>_<random><checksum>`. Its id finds it in a file that `cellar token` writes; the random part has 256
//! bits, so that its SHA-256 needs no salt and no slow hash; the checksum tells a mistyped token from a wrong one without a
//! look into the file. Read [`TokenFile`] first.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use cellar_core::files::{open_plain, replace};
use rand::{Rng, distr::Alphanumeric};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Prefix of all tokens.
const PREFIX: &str = "cel_";
/// Characters of an id.
const ID_LENGTH: usize = 10;
/// Characters of 62 that have 256 bits together.
const SECRET_LENGTH: usize = 43;
/// Characters of a checksum.
const CHECKSUM_LENGTH: usize = 8;
/// Tokens that one name may have at once, so that a new one can take over from an old one.
const PER_NAME_MAX: usize = 2;
/// Tokens in a file.
const TOKENS_MAX: usize = 10_000;
/// Bytes of a file of tokens.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Permission that a token grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Permission to open sessions and run cells in them, and all that `Read` permits.
    Run,
    /// Permission to read sessions, runs, files and outputs.
    Read,
    /// Permission to see the tenants and their usage, and to make the server refuse new work.
    Admin,
    /// Permission to read the metrics of all tenants.
    Metrics,
    /// Permission to decide on calls that wait for a person.
    Approve,
}

impl Scope {
    /// All of them.
    pub const ALL: [Scope; 5] = [Scope::Run, Scope::Read, Scope::Admin, Scope::Metrics, Scope::Approve];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Run => "run",
            Scope::Read => "read",
            Scope::Admin => "admin",
            Scope::Metrics => "metrics",
            Scope::Approve => "approve",
        }
    }
}

/// Stored record of a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Id by which the token is found.
    pub id: String,
    /// Name of the tenant that it belongs to.
    pub tenant: String,
    /// Purpose, in its owner's words.
    pub name: String,
    /// SHA-256 of the whole token, in hexadecimal digits.
    pub sha256: String,
    /// Its last characters, to tell tokens apart.
    pub last4: String,
    /// Permissions that it grants.
    pub scopes: Vec<Scope>,
    /// Seconds since the Unix epoch.
    pub created_at: u64,
    /// Seconds since the Unix epoch; never when absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<u64>,
}

impl Token {
    /// Returns true if it has expired.
    pub fn is_expired(&self) -> bool {
        self.expires_at.is_some_and(|end| end <= now())
    }

    /// Returns true if it grants this permission.
    pub fn allows(&self, scope: Scope) -> bool {
        allows(&self.scopes, scope)
    }
}

/// Returns true if these permissions include `scope`; `Run` includes `Read`.
pub(crate) fn allows(scopes: &[Scope], scope: Scope) -> bool {
    scopes.contains(&scope) || (scope == Scope::Read && scopes.contains(&Scope::Run))
}

/// Reason for which tokens cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("cannot {doing} the tokens in `{}`", path.display())]
    File {
        /// Operation that failed.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the host.
        #[source]
        source: io::Error,
    },
    /// A name has as many tokens as it may.
    #[error("tenant `{tenant}` has {PER_NAME_MAX} tokens by the name `{name}` already")]
    NameFull {
        /// The tenant.
        tenant: String,
        /// The name.
        name: String,
    },
    /// There are as many tokens as there may be.
    #[error("there are {TOKENS_MAX} tokens already")]
    Full,
    /// There is no such token.
    #[error("no token has the id `{0}`")]
    Unknown(String),
}

/// File with the records of tokens. Only its owner may read it.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    tokens: Vec<Token>,
}

/// A token to make.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Name of the tenant that it is for.
    pub tenant: String,
    /// Purpose.
    pub name: String,
    /// Permissions that it grants.
    pub scopes: Vec<Scope>,
    /// Time for which it is valid; for ever when absent.
    pub lifetime: Option<Duration>,
}

impl TokenFile {
    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file at this path, which need not exist yet.
    pub fn new(path: PathBuf) -> TokenFile {
        TokenFile { path }
    }

    /// Mark of the content of the file, which another content does not have; `None` where there is no file. Blocks.
    pub(crate) fn mark(&self) -> Option<(u64, u64, i64)> {
        let found = fs::metadata(&self.path).ok()?;
        Some((found.ino(), found.len(), found.mtime_nsec().saturating_add(found.mtime().saturating_mul(1_000_000_000))))
    }

    /// All tokens. Blocks.
    ///
    /// # Errors
    /// `File`
    pub fn list(&self) -> Result<Vec<Token>, TokenError> {
        let failed = |source| self.failed("read", source);
        // THREAT: T18
        let file = match open_plain(&self.path, fs::File::options().read(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.map_err(failed)?,
        };
        let found = file.metadata().map_err(failed)?;
        if found.mode() & 0o022 != 0 {
            let message = "others may write to it, and so make tokens: `chmod 600` it";
            return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, message)));
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?;
        Ok(stored.tokens)
    }

    /// Makes a token, and returns its text, which cannot be recovered later. Blocks.
    ///
    /// # Errors
    /// `NameFull`, `Full`, `File`
    pub fn add(&self, new: NewToken) -> Result<String, TokenError> {
        self.change(|tokens| {
            // Those that are of no use do not count, and go.
            tokens.retain(|token| !token.is_expired());
            let NewToken { tenant, name, .. } = &new;
            let same = tokens.iter().filter(|token| token.tenant == *tenant && token.name == *name).count();
            if same >= PER_NAME_MAX {
                return Err(TokenError::NameFull { tenant: tenant.clone(), name: name.clone() });
            }
            if tokens.len() >= TOKENS_MAX {
                return Err(TokenError::Full);
            }
            let (text, token) = mint(new.clone());
            tokens.push(token);
            Ok(text)
        })
    }

    /// Removes a token. Blocks.
    ///
    /// # Errors
    /// `Unknown`, `File`
    pub fn revoke(&self, id: &str) -> Result<(), TokenError> {
        self.change(|tokens| {
            let place = tokens.iter().position(|token| token.id == id);
            let place = place.ok_or_else(|| TokenError::Unknown(id.to_owned()))?;
            tokens.remove(place);
            Ok(())
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Token>) -> Result<T, TokenError>) -> Result<T, TokenError> {
        let failed = |source| self.failed("write", source);
        let folder = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        // One changes them at a time: whoever comes second reads what the first has written.
        let place = self.path.with_extension("lock");
        if place.exists() {
            open_plain(&place, fs::File::options().read(true)).map_err(failed)?;
        }
        let lock = fs::File::options().create(true).truncate(false).write(true).open(place);
        let lock = lock.map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut tokens = self.list()?;
        let value = change(&mut tokens)?;
        let text = serde_json::to_vec_pretty(&Stored { tokens }).map_err(|error| failed(error.into()))?;
        replace(&self.path, &text).map_err(failed)?;
        Ok(value)
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> TokenError {
        TokenError::File { doing, path: self.path.clone(), source }
    }
}

/// Makes a token: its text, and what is kept of it.
pub fn mint(new: NewToken) -> (String, Token) {
    let id = characters(ID_LENGTH).to_lowercase();
    let body = format!("{PREFIX}{id}_{}", characters(SECRET_LENGTH));
    let text = format!("{body}{:08x}", crc32(body.as_bytes()));
    let created_at = now();
    let token = Token {
        id,
        tenant: new.tenant,
        name: new.name,
        sha256: digest(&text),
        last4: text[text.len().saturating_sub(4)..].to_owned(),
        scopes: new.scopes,
        created_at,
        expires_at: new.lifetime.map(|lifetime| created_at.saturating_add(lifetime.as_secs())),
    };
    (text, token)
}

/// Random letters and digits.
pub(crate) fn characters(count: usize) -> String {
    rand::rng().sample_iter(Alphanumeric).take(count).map(char::from).collect()
}

/// The tokens that a server takes.
#[derive(Debug, Default)]
pub(crate) struct Tokens(HashMap<String, Token>);

impl Tokens {
    pub(crate) fn new(tokens: impl IntoIterator<Item = Token>) -> Tokens {
        Tokens(tokens.into_iter().map(|token| (token.id.clone(), token)).collect())
    }

    /// Returns the token of this id, if it is valid. An id is no secret: the caller must be authenticated by other
    /// means.
    pub(crate) fn by_id(&self, id: &str) -> Option<&Token> {
        self.0.get(id).filter(|token| !token.is_expired())
    }

    /// Returns the valid tokens of a tenant.
    pub(crate) fn of<'a>(&'a self, tenant: &'a str) -> impl Iterator<Item = &'a Token> {
        self.0.values().filter(move |token| token.tenant == tenant && !token.is_expired())
    }

    /// Returns the token with this text. Malformed, unknown and expired tokens cannot be told apart.
    pub(crate) fn find(&self, text: &str) -> Option<&Token> {
        let found = id_of(text).and_then(|id| self.0.get(id));
        // The digest is made and compared whether the id is known or not.
        let given = digest(text);
        let kept = found.map_or("", |token| &token.sha256);
        let is_same = is_same(given.as_bytes(), kept.as_bytes());
        found.filter(|token| is_same && !token.is_expired())
    }
}

/// Returns the id in a token, if its checksum is right.
fn id_of(text: &str) -> Option<&str> {
    const LENGTH: usize = PREFIX.len() + ID_LENGTH + 1 + SECRET_LENGTH + CHECKSUM_LENGTH;
    let is_plain = text.len() == LENGTH && text.is_ascii();
    let (body, checksum) = is_plain.then(|| text.split_at(LENGTH - CHECKSUM_LENGTH))?;
    let (id, _) = body.strip_prefix(PREFIX)?.split_once('_')?;
    (format!("{:08x}", crc32(body.as_bytes())) == checksum).then_some(id)
}

/// Compares two byte strings in a time that does not depend on where they differ.
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

/// SHA-256, in hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    format!("{:x}", Sha256::digest(text.as_bytes()))
}

/// The checksum of Ethernet and zip.
fn crc32(bytes: &[u8]) -> u32 {
    let fold = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    };
    !bytes.iter().fold(u32::MAX, fold)
}

/// Seconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    cellar_wire::unix_seconds(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn new(tenant: &str, name: &str) -> NewToken {
        NewToken {
            tenant: tenant.to_owned(),
            name: name.to_owned(),
            scopes: vec![Scope::Run],
            lifetime: Some(Duration::from_secs(60)),
        }
    }

    #[test]
    fn a_token_is_found_by_its_text_and_by_nothing_else() {
        let (text, token) = mint(new("a", "ci"));
        assert!(!format!("{token:?}").contains(&text[20..40]), "what is kept does not tell it");
        let (other, unknown) = mint(new("b", "ci"));
        let mut expired = unknown.clone();
        expired.expires_at = Some(1);
        let tokens = Tokens::new([token.clone(), expired]);
        assert_eq!(tokens.find(&text).expect("it is known").tenant, "a");
        let body = &text[..text.len() - CHECKSUM_LENGTH];
        let swapped = format!("{}{}", &body[..body.len() - 1], if body.ends_with('a') { 'b' } else { 'a' });
        let forged = format!("{swapped}{:08x}", crc32(swapped.as_bytes()));
        for text in ["", "cel_", &text[1..], &text[..text.len() - 1], &other, &forged, &format!("{text} ")] {
            assert!(tokens.find(text).is_none(), "{text}");
        }
        assert!(token.allows(Scope::Run) && token.allows(Scope::Read) && !token.allows(Scope::Metrics));
    }

    #[test]
    fn a_name_has_two_tokens_at_most_so_that_one_can_take_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = TokenFile::new(folder.path().join("sub/tokens.json"));
        let first = file.add(new("a", "ci")).expect("made");
        file.add(new("a", "ci")).expect("made");
        file.add(new("b", "ci")).expect("another tenant's");
        assert!(matches!(file.add(new("a", "ci")), Err(TokenError::NameFull { .. })));
        let id = id_of(&first).expect("a token");
        file.revoke(id).expect("it is there");
        assert!(matches!(file.revoke(id), Err(TokenError::Unknown(_))));
        file.add(new("a", "ci")).expect("there is room");
        let kept = fs::read_to_string(folder.path().join("sub/tokens.json")).expect("the file");
        assert!(!kept.contains(&first[20..40]), "{kept}");
        let mode = fs::metadata(folder.path().join("sub/tokens.json")).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_of_tokens_that_others_may_write_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.json");
        let file = TokenFile::new(path.clone());
        file.add(new("a", "ci")).expect("made");
        for mode in [0o666, 0o620, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            assert!(matches!(file.list(), Err(TokenError::File { .. })), "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        assert_eq!(file.list().expect("tokens").len(), 1);
        fs::remove_file(&path).expect("removed");
        // Reading a pipe would wait for whoever writes.
        assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        assert!(file.list().is_err() && file.add(new("a", "ci")).is_err());
    }

    #[test]
    fn the_checksum_is_that_of_everybody() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
