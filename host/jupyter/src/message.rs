//! Messages of Jupyter's protocol: taken from frames, signed, and made into frames again.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use cellar_core::{limits::REQUEST_VALUES_MAX, mime::json_values, sync::lock};
use chrono::{SecondsFormat, Utc};
use rand::Rng;
use ring::hmac;
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;

use crate::zmtp::Incoming;

/// Version of the protocol.
pub(crate) const PROTOCOL_VERSION: &str = "5.4";

/// Delimiter between the routing identities of a message and its signature.
const DELIMITER: &[u8] = b"<IDS|MSG>";
/// Signatures of the latest messages that are remembered: a message with one of them is a replay and is refused.
const SIGNATURES_KEPT_MAX: usize = 1 << 16;
/// Characters of a fault's message.
const FAULT_CHARACTERS_MAX: usize = 300;

/// Channel of a request and of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Shell,
    Control,
    Stdin,
}

impl Channel {
    /// Its name in the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Channel::Shell => "shell",
            Channel::Control => "control",
            Channel::Stdin => "stdin",
        }
    }
}

/// A message of somebody who may use this kernel.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) channel: Channel,
    /// The peer that sent it.
    pub(crate) peer: u64,
    /// Identity of the peer's socket.
    pub(crate) identity: Bytes,
    /// Frames before the delimiter; a reply begins with them.
    envelope: Vec<Bytes>,
    /// Type of the message.
    pub(crate) kind: String,
    /// Header as it was received: replies quote it.
    pub(crate) header: Value,
    /// Content of the message.
    pub(crate) content: Content,
    /// Permit for the message while it waits; none while it is exchanged.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// Reason for the refusal of a message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Fault(String);

impl Fault {
    pub(crate) fn new(what: impl Into<String>) -> Fault {
        let mut what: String = what.into();
        if let Some((end, _)) = what.char_indices().nth(FAULT_CHARACTERS_MAX) {
            what.truncate(end);
            what.push('…');
        }
        Fault(what)
    }
}

/// Content of a message: an object whose members are read one by one. Unknown members are ignored, because clients of
/// later versions send more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content(pub(crate) Map<String, Value>);

/// Describes a value in a few words.
fn found(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(Value::Array(_)) => "an array".to_owned(),
        Some(other) => other.to_string().chars().take(80).collect(),
    }
}

impl Content {
    fn fault(&self, name: &str, expected: &str) -> Fault {
        Fault::new(format!("content.{name}: expected {expected}, found {}", found(self.0.get(name))))
    }

    /// Returns a text member, which is required.
    pub(crate) fn text(&self, name: &str) -> Result<&str, Fault> {
        self.0.get(name).and_then(Value::as_str).ok_or_else(|| self.fault(name, "a string"))
    }

    /// Yes or no.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, Fault> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            // Some clients say 0 and 1.
            Some(Value::Number(number)) => Ok(number.as_f64().is_some_and(|number| number != 0.0)),
            Some(_) => Err(self.fault(name, "true or false")),
        }
    }

    /// A whole number, where there is one.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, Fault> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or_else(|| self.fault(name, "an integer")),
        }
    }

    /// A place in a text, counted in characters; its end where that is not said.
    pub(crate) fn cursor(&self, code: &str) -> Result<u32, Fault> {
        let end = u32::try_from(code.chars().count()).unwrap_or(u32::MAX);
        let at = self.integer("cursor_pos")?.unwrap_or(i64::from(end));
        Ok(u32::try_from(at.max(0)).unwrap_or(u32::MAX).min(end))
    }

    /// An object whose members are texts.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<(&str, &str)>, Fault> {
        let members = match self.0.get(name) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Object(members)) => members,
            Some(_) => return Err(self.fault(name, "an object of strings")),
        };
        let texts = members.iter().map(|(key, value)| value.as_str().map(|text| (key.as_str(), text)));
        texts.collect::<Option<_>>().ok_or_else(|| self.fault(name, "an object of strings"))
    }
}

/// Makes and checks the signatures of messages, and remembers those that it has seen.
#[derive(Debug)]
pub(crate) struct Signer {
    /// None when the client has asked for no signatures, by an empty key.
    key: Option<hmac::Key>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    known: HashSet<Vec<u8>>,
    /// The oldest first.
    order: VecDeque<Vec<u8>>,
}

impl Signer {
    /// Creates the signer for the key of a connection file.
    ///
    /// # Errors
    /// The scheme is not supported.
    pub(crate) fn new(scheme: &str, key: &str) -> Result<Signer, Fault> {
        let algorithm = match scheme {
            "hmac-sha256" => hmac::HMAC_SHA256,
            "hmac-sha384" => hmac::HMAC_SHA384,
            "hmac-sha512" => hmac::HMAC_SHA512,
            _ => {
                return Err(Fault::new(format!(
                    "signatures are made by hmac-sha256, -sha384 or -sha512, not {scheme:?}"
                )));
            }
        };
        let key = (!key.is_empty()).then(|| hmac::Key::new(algorithm, key.as_bytes()));
        Ok(Signer { key, seen: Mutex::default() })
    }

    /// Returns true if messages are signed.
    pub(crate) fn is_signing(&self) -> bool {
        self.key.is_some()
    }

    /// Returns a signed message as frames, from the delimiter on. `parent` is the header of the request that it is
    /// about.
    pub(crate) fn frames(&self, header: &Value, parent: &Value, content: &Value) -> Vec<Bytes> {
        let parts = [header, parent, &json!({}), content].map(|part| Bytes::from(part.to_string()));
        let mut frames = vec![Bytes::from_static(DELIMITER), self.sign(&parts)];
        frames.extend(parts);
        frames
    }

    fn sign(&self, parts: &[Bytes]) -> Bytes {
        let Some(key) = &self.key else { return Bytes::new() };
        let mut context = hmac::Context::with_key(key);
        parts.iter().for_each(|part| context.update(part));
        let tag = context.sign();
        tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
    }

    fn check(&self, signature: &[u8], parts: &[Bytes]) -> Result<(), Fault> {
        let Some(key) = &self.key else { return Ok(()) };
        let tag = unhexed(signature).ok_or_else(|| Fault::new("its signature is not written in hexadecimal digits"))?;
        let signed = parts.concat();
        hmac::verify(key, &signed, &tag).map_err(|_| Fault::new("its signature is not that of this kernel's key"))?;
        let mut seen = lock(&self.seen);
        if !seen.known.insert(tag.clone()) {
            return Err(Fault::new("a message with its signature was seen before"));
        }
        seen.order.push_back(tag);
        if seen.order.len() > SIGNATURES_KEPT_MAX
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.known.remove(&oldest);
        }
        Ok(())
    }
}

fn unhexed(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.chunks(2).map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

/// Parses a part of a message.
///
/// # Errors
/// It is no JSON, or has too many values.
pub(crate) fn part(bytes: &[u8], what: &str) -> Result<Value, Fault> {
    let values = if bytes.len() > REQUEST_VALUES_MAX { json_values(bytes) } else { 0 };
    if values > REQUEST_VALUES_MAX {
        return Err(Fault::new(format!("its {what} has {values} values, at most {REQUEST_VALUES_MAX} are read")));
    }
    serde_json::from_slice(bytes).map_err(|error| Fault::new(format!("its {what} is no JSON: {error}")))
}

impl Message {
    /// Reads a message from its frames and checks its signature.
    ///
    /// # Errors
    /// It is not signed with the key, is a replay, or is no message.
    pub(crate) fn read(incoming: Incoming, channel: Channel, signer: &Signer) -> Result<Message, Fault> {
        let Incoming { peer, identity, mut frames, room } = incoming;
        let place = frames.iter().position(|frame| frame[..] == *DELIMITER);
        let place = place.ok_or_else(|| Fault::new("it has no <IDS|MSG>"))?;
        let said = frames.split_off(place);
        let parts = said.get(2..6).ok_or_else(|| {
            Fault::new(format!("{} frames follow its <IDS|MSG>, at least 5 are expected", said.len().saturating_sub(1)))
        })?;
        signer.check(&said[1], parts)?;
        let object = |n: usize, what: &str| match part(&parts[n], what)? {
            Value::Object(members) => Ok(members),
            other => Err(Fault::new(format!("its {what} is {}, an object is expected", found(Some(&other))))),
        };
        let header = object(0, "header")?;
        // What is wrong with the header is told before what is wrong with the content.
        let kind = kind_of(&header)?;
        let content = Content(object(3, "content")?);
        let header = Value::Object(header);
        Ok(Message { channel, peer, identity, envelope: frames, kind, header, content, room: Some(room) })
    }

    /// Creates a message of a peer that has only one connection.
    ///
    /// # Errors
    /// Its header has no message type.
    pub(crate) fn new(
        channel: Channel,
        peer: u64,
        header: Map<String, Value>,
        content: Content,
        room: OwnedSemaphorePermit,
    ) -> Result<Message, Fault> {
        let (identity, envelope, kind) = (Bytes::new(), Vec::new(), kind_of(&header)?);
        Ok(Message {
            channel,
            peer,
            identity,
            envelope,
            kind,
            header: Value::Object(header),
            content,
            room: Some(room),
        })
    }

    /// Returns the frames that a reply to this message begins with.
    pub(crate) fn envelope(&self) -> Vec<Bytes> {
        self.envelope.clone()
    }
}

/// Returns the message type in a header.
fn kind_of(header: &Map<String, Value>) -> Result<String, Fault> {
    let kind = header.get("msg_type").and_then(Value::as_str).map(str::to_owned);
    kind.ok_or_else(|| {
        Fault::new(format!("header.msg_type: expected a string, found {}", found(header.get("msg_type"))))
    })
}

/// Maker of the headers and topics of this kernel's messages.
#[derive(Debug)]
pub(crate) struct Voice {
    /// Session id of the kernel, new for each.
    session: String,
    count: AtomicU64,
}

impl Voice {
    pub(crate) fn new() -> Voice {
        let session = format!("{:032x}", rand::rng().random::<u128>());
        Voice { session, count: AtomicU64::new(1) }
    }

    /// Returns the header of a new message.
    pub(crate) fn header(&self, kind: &str) -> Value {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        json!({
            "msg_id": format!("{}_{number}", self.session),
            "session": self.session,
            "username": "cellar",
            "date": Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true),
            "msg_type": kind,
            "version": PROTOCOL_VERSION,
        })
    }

    /// Returns the topic by which subscribers select a type of message.
    pub(crate) fn topic(&self, kind: &str) -> Bytes {
        format!("kernel.{}.{kind}", self.session).into()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    fn incoming(frames: Vec<Bytes>) -> Incoming {
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("room");
        Incoming { peer: 1, identity: Bytes::new(), frames, room }
    }

    fn signer() -> Signer {
        Signer::new("hmac-sha256", "secret").expect("a scheme")
    }

    fn read(frames: Vec<Bytes>) -> Result<Message, String> {
        Message::read(incoming(frames), Channel::Shell, &signer()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_message_comes_back_as_it_was_said() {
        let header = Voice::new().header("execute_request");
        let mut frames = vec![Bytes::from_static(b"router")];
        frames.extend(signer().frames(&header, &json!({"a": 1}), &json!({"code": "1", "silent": true})));
        let message = read(frames.clone()).expect("read");
        assert_eq!((message.kind.as_str(), message.content.text("code")), ("execute_request", Ok("1")));
        assert_eq!((message.content.flag("silent", false), message.envelope()), (Ok(true), frames[..1].to_vec()));
    }

    #[test]
    fn forged_repeated_and_malformed_messages_are_refused_and_named() {
        let whole = signer().frames(&Voice::new().header("kernel_info_request"), &json!({}), &json!({}));
        let check = |frames: Vec<Bytes>, words: &str| {
            let refused = read(frames).expect_err(words);
            assert!(refused.contains(words), "{refused}");
        };
        check(Vec::new(), "no <IDS|MSG>");
        check(whole[..5].to_vec(), "4 frames follow");
        let with = |place: usize, bytes: &'static [u8]| {
            let mut frames = whole.clone();
            frames[place] = Bytes::from_static(bytes);
            frames
        };
        check(with(5, b"{\"x\": 1}"), "not that of this kernel's key");
        check(with(1, b"zz"), "hexadecimal");
        check(with(1, b"abc"), "hexadecimal");
        check(with(1, b""), "not that of this kernel's key");
        let signed = |header: &'static [u8], content: &'static [u8]| {
            let parts = [header, b"{}", b"{}", content].map(Bytes::from_static);
            let mut frames = vec![Bytes::from_static(DELIMITER), signer().sign(&parts)];
            frames.extend(parts);
            frames
        };
        check(signed(b"[]", b"{}"), "its header is an array");
        check(signed(b"{", b"{}"), "its header is no JSON");
        check(signed(b"\xff", b"{}"), "its header is no JSON");
        check(signed(b"{}", b"{}"), "header.msg_type: expected a string, found nothing");
        check(signed(b"{\"msg_type\": \"x\"}", b"3"), "its content is 3");
        let deep: &'static [u8] = Box::leak(vec![b'['; 1_000_000].into_boxed_slice());
        check(signed(b"{\"msg_type\": \"x\"}", deep), "its content is no JSON");
        let signer = signer();
        assert!(Message::read(incoming(whole.clone()), Channel::Shell, &signer).is_ok());
        let again = Message::read(incoming(whole), Channel::Shell, &signer).expect_err("seen").to_string();
        assert!(again.contains("seen before"), "{again}");
    }

    #[test]
    fn members_are_named_when_they_are_wrong() {
        let content = json!({"code": 5, "silent": "no", "cursor_pos": 1.5, "user_expressions": {"a": 1}});
        let Value::Object(members) = content else { panic!("an object") };
        let content = Content(members);
        let words = |fault: Fault| fault.to_string();
        assert_eq!(content.text("code").map_err(words), Err("content.code: expected a string, found 5".to_owned()));
        assert!(content.flag("silent", true).is_err() && content.cursor("x").is_err());
        assert!(content.texts("user_expressions").is_err() && content.text("none").is_err());
        assert_eq!((content.flag("none", true), content.integer("none")), (Ok(true), Ok(None)));
    }

    #[test]
    fn schemes_and_empty_keys() {
        assert!(Signer::new("hmac-md5", "k").is_err());
        let open = Signer::new("hmac-sha256", "").expect("a scheme");
        assert!(!open.is_signing());
        let frames = open.frames(&Voice::new().header("x"), &json!({}), &json!({}));
        assert!(Message::read(incoming(frames), Channel::Shell, &open).is_ok());
    }
}
