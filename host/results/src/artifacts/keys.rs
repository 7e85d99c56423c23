//! Keys from which the ids of artifacts are derived, and which grant a session access to artifacts.

use std::fmt;

use cellar_core::time::wall_nanos;
use rand::Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ID_DIGITS;

/// Length of a key in bytes.
pub(super) const KEY_BYTES: usize = 32;
/// Block size of SHA-256 in bytes.
const BLOCK_BYTES: usize = 64;
/// Maximum number of keys that a session inherits.
const EARLIER_MAX: usize = 64;

/// A secret of a session, or of a whole store. Ids are derived from contents with it, so that nobody without the key can
/// compute or confirm an id. The folder with the notes of its owner is named after it as well. The key never reaches a
/// guest.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactKey([u8; KEY_BYTES]);

impl ArtifactKey {
    /// Returns a new random key.
    pub fn random() -> ArtifactKey {
        ArtifactKey(rand::rng().random())
    }

    pub(super) fn from_bytes(bytes: [u8; KEY_BYTES]) -> ArtifactKey {
        ArtifactKey(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Returns the id of the content with this digest.
    pub(super) fn id_of(&self, digest: &[u8]) -> String {
        digits(self.mac(b"artifact", digest))
    }

    /// Returns true if `id` belongs to the content with this digest (hexadecimal). Older versions derived ids from the
    /// digest alone; such ids are accepted as well.
    pub(super) fn makes(&self, id: &str, digest: &str) -> bool {
        let byte =
            |place| digest.get(place..usize::checked_add(place, 2)?).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..digest.len()).step_by(2).map(byte).collect();
        bytes.is_some_and(|bytes| self.id_of(&bytes) == id) || digest.starts_with(id)
    }

    /// Returns the name of the folder with the notes of the key's owner.
    pub(super) fn holder(&self) -> String {
        digits(self.mac(b"holder", &[]))
    }

    /// Returns the key for artifacts that callers store under a session's name.
    pub(super) fn of_session(&self, session: &str) -> ArtifactKey {
        ArtifactKey(self.mac(b"session", session.as_bytes()))
    }

    /// Computes the HMAC-SHA-256 of a word and a text. No word is a prefix of another.
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
    /// Omits the key: the output may be visible to others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArtifactKey").finish_non_exhaustive()
    }
}

/// Returns the leading bytes in hexadecimal digits, as many as an id has.
pub(super) fn digits(bytes: [u8; KEY_BYTES]) -> String {
    hexadecimal(&bytes[..ID_DIGITS / 2])
}

/// Bytes as hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Keys of a session: its own, and inherited ones, each of which is valid up to a point in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactKeys {
    pub(super) own: ArtifactKey,
    /// Inherited keys, the latest last.
    pub(super) earlier: Vec<EarlierKey>,
}

/// A key of a session whose state another session continues from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EarlierKey {
    pub(super) key: ArtifactKey,
    /// Upper bound in nanoseconds since the Unix epoch: artifacts that were stored later are not accessible through this
    /// key.
    pub(super) until: u64,
}

impl Default for ArtifactKeys {
    fn default() -> ArtifactKeys {
        ArtifactKeys::of(ArtifactKey::random())
    }
}

impl ArtifactKeys {
    /// Returns the keys of a session without inherited keys.
    pub fn of(own: ArtifactKey) -> ArtifactKeys {
        ArtifactKeys { own, earlier: Vec::new() }
    }

    /// Returns the key under which the session stores artifacts.
    pub fn own(&self) -> &ArtifactKey {
        &self.own
    }

    /// Returns the keys of another session that continues from the state of this one at `until`, in nanoseconds since the
    /// Unix epoch.
    #[must_use]
    pub fn inherited(&self, until: u64) -> ArtifactKeys {
        let mut keys = ArtifactKeys::default();
        keys.inherit(self, until);
        keys
    }

    /// Grants access to all that a session with these keys could access at `until`. Only the latest keys are retained when
    /// there are more than the maximum.
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

    /// Drops the keys beyond the maximum: a file may contain any number.
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
