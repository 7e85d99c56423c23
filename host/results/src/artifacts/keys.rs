//! What makes the ids of artifacts, and what lets a session reach them.

use std::fmt;

use cellar_core::time::wall_nanos;
use rand::Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ID_DIGITS;

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 32;
/// Bytes that SHA-256 works on at a time.
const BLOCK_BYTES: usize = 64;
/// Most keys that a session has of those before it.
const EARLIER_MAX: usize = 64;

/// A secret of a session, or of a whole store. It makes ids of contents, so that nobody without it can compute or confirm
/// an id, and names the place where what its owner keeps is noted. It never reaches a guest.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactKey([u8; KEY_BYTES]);

impl ArtifactKey {
    /// A key that nobody else has.
    pub fn random() -> ArtifactKey {
        ArtifactKey(rand::rng().random())
    }

    pub(super) fn from_bytes(bytes: [u8; KEY_BYTES]) -> ArtifactKey {
        ArtifactKey(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// The id of what has this digest.
    pub(super) fn id_of(&self, digest: &[u8]) -> String {
        digits(self.mac(b"artifact", digest))
    }

    /// Whether the id of what has this digest, in hexadecimal digits, is this one. Older programs made ids of the digest alone.
    pub(super) fn makes(&self, id: &str, digest: &str) -> bool {
        let byte =
            |place| digest.get(place..usize::checked_add(place, 2)?).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..digest.len()).step_by(2).map(byte).collect();
        bytes.is_some_and(|bytes| self.id_of(&bytes) == id) || digest.starts_with(id)
    }

    /// What the folder is called in which the owner of the key has its notes.
    pub(super) fn holder(&self) -> String {
        digits(self.mac(b"holder", &[]))
    }

    /// The key for what is kept in the name of a session.
    pub(super) fn of_session(&self, session: &str) -> ArtifactKey {
        ArtifactKey(self.mac(b"session", session.as_bytes()))
    }

    /// HMAC with SHA-256 of a word and a text. No word is the beginning of another.
    fn mac(&self, word: &[u8], text: &[u8]) -> [u8; KEY_BYTES] {
        let pad = |with: u8| {
            let mut block = [with; BLOCK_BYTES];
            block.iter_mut().zip(self.0).for_each(|(byte, key)| *byte ^= key);
            block
        };
        let inner = Sha256::new().chain_update(pad(0x36)).chain_update(word).chain_update(text).finalize();
        Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
    }
}

impl fmt::Debug for ArtifactKey {
    /// Leaves the key out: this may be printed where somebody else can read it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactKey").finish_non_exhaustive()
    }
}

/// The start of some bytes, as long as an id.
pub(super) fn digits(bytes: [u8; KEY_BYTES]) -> String {
    hexadecimal(&bytes[..ID_DIGITS / 2])
}

/// Bytes as hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a session reaches: what is kept under its own key, and what was kept under others up to a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactKeys {
    pub(super) own: ArtifactKey,
    /// The latest last.
    pub(super) earlier: Vec<EarlierKey>,
}

/// The key of a session whose state another one goes on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EarlierKey {
    pub(super) key: ArtifactKey,
    /// What was kept later is of no concern to whoever has this. In nanoseconds since the Unix epoch.
    pub(super) until: u64,
}

impl Default for ArtifactKeys {
    fn default() -> ArtifactKeys {
        ArtifactKeys::of(ArtifactKey::random())
    }
}

impl ArtifactKeys {
    /// Those of a session that begins with nothing.
    pub fn of(own: ArtifactKey) -> ArtifactKeys {
        ArtifactKeys { own, earlier: Vec::new() }
    }

    /// The key under which the session keeps things.
    pub fn own(&self) -> &ArtifactKey {
        &self.own
    }

    /// Those of another session that goes on from this one as it was at a moment, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn inherited(&self, until: u64) -> ArtifactKeys {
        let mut keys = ArtifactKeys::default();
        keys.inherit(self, until);
        keys
    }

    /// Reaches from now on what a session with these keys reached at a moment. Of very many sessions, only the latest
    /// count.
    pub fn inherit(&mut self, from: &ArtifactKeys, until: u64) {
        // A moment that is still to come would reach what does not exist yet.
        let until = until.min(wall_nanos());
        let own = EarlierKey { key: from.own.clone(), until };
        let earlier =
            from.earlier.iter().map(|earlier| EarlierKey { until: earlier.until.min(until), ..earlier.clone() });
        for key in earlier.chain([own]).filter(|earlier| earlier.key != self.own) {
            match self.earlier.iter_mut().find(|known| known.key == key.key) {
                Some(known) => known.until = known.until.max(key.until),
                None => self.earlier.push(key),
            }
        }
        let surplus = self.earlier.len().saturating_sub(EARLIER_MAX);
        self.earlier.drain(..surplus);
    }

    /// The same without what is beyond the bounds: a file may say anything.
    #[must_use]
    pub fn bounded(mut self) -> ArtifactKeys {
        let surplus = self.earlier.len().saturating_sub(EARLIER_MAX);
        self.earlier.drain(..surplus);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_hmac_of_a_digest() {
        // RFC 4231, test case 1, whose key is padded with zeros here as HMAC does.
        let mut key = [0; KEY_BYTES];
        key[..20].fill(0x0b);
        let mac = ArtifactKey(key).mac(b"Hi ", b"There");
        assert_eq!(digits(mac), "b0344c61d8db38535ca8afceaf0bf12b");
    }

    #[test]
    fn keys_are_passed_on_up_to_a_moment_and_not_without_end() {
        let first = ArtifactKeys::default();
        let second = first.inherited(10);
        let third = second.inherited(20);
        let until: Vec<u64> = third.earlier.iter().map(|earlier| earlier.until).collect();
        assert_eq!((until, &third.earlier[0].key), (vec![10, 20], &first.own));
        let mut again = third.clone();
        again.inherit(&second, 30);
        let until: Vec<u64> = again.earlier.iter().map(|earlier| earlier.until).collect();
        assert_eq!(until, [10, 30], "no key is there twice");
        let mut last = third;
        (0..100).for_each(|number| last = last.inherited(number));
        assert_eq!(last.earlier.len(), EARLIER_MAX);
        assert!(first.inherited(u64::MAX).earlier[0].until <= wall_nanos(), "the future is not passed on");
    }
}
