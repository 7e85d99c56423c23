//! The forms of messages on a WebSocket.

use serde_json::{Map, Value, json};

use crate::message::{Channel, Content, Fault, part};

/// Parts of a message in the form with offsets: its channel, four of JSON, and buffers.
const PARTS_MAX: u64 = 1 + 4 + 64;

/// Encoding of messages in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON object in a text frame; with buffers, in a binary frame.
    Json,
    /// Parts behind their offsets, in a binary frame.
    Offsets,
}

impl Form {
    /// The subprotocol by which clients ask for [`Form::Offsets`].
    pub const OFFSETS: &str = "v1.kernel.websocket.jupyter.org";
}

/// Frame of a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Text.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
}

impl Frame {
    pub(super) fn len(&self) -> usize {
        match self {
            Frame::Text(text) => text.len(),
            Frame::Binary(bytes) => bytes.len(),
        }
    }
}

/// A message of the kernel.
#[derive(Debug)]
pub(super) struct Said {
    channel: &'static str,
    header: String,
    parent: String,
    content: String,
}

impl Said {
    pub(super) fn new(channel: &'static str, header: &Value, parent: &Value, content: &Value) -> Said {
        Said { channel, header: header.to_string(), parent: parent.to_string(), content: content.to_string() }
    }

    pub(super) fn len(&self) -> usize {
        [self.header.len(), self.parent.len(), self.content.len(), 128].into_iter().fold(0, usize::saturating_add)
    }
}

/// Takes a message from a frame: what it came by, its header, what it says.
///
/// # Errors
/// It is no message.
pub(super) fn read(form: Form, frame: &Frame) -> Result<(Channel, Map<String, Value>, Content), Fault> {
    let whole: Value;
    let (channel, header, content) = match (form, frame) {
        (Form::Json, Frame::Text(text)) => {
            whole = part(text.as_bytes(), "frame")?;
            members(&whole)?
        }
        (Form::Json, Frame::Binary(bytes)) => {
            whole = part(before_buffers(bytes).ok_or_else(|| Fault::new("its offsets make no sense"))?, "frame")?;
            members(&whole)?
        }
        (Form::Offsets, Frame::Binary(bytes)) => {
            let parts = parts(bytes).ok_or_else(|| Fault::new("its offsets make no sense"))?;
            let channel = std::str::from_utf8(parts[0]).unwrap_or_default().to_owned();
            (channel, part(parts[1], "header")?, part(parts[4], "content")?)
        }
        (Form::Offsets, Frame::Text(_)) => return Err(Fault::new("it is text, and offsets are expected")),
    };
    let channel = match channel.as_str() {
        "shell" => Channel::Shell,
        "control" => Channel::Control,
        "stdin" => Channel::Stdin,
        other => return Err(Fault::new(format!("channel: expected shell, control or stdin, found {other:?}"))),
    };
    match (header, content) {
        (Value::Object(header), Value::Object(content)) => Ok((channel, header, Content(content))),
        _ => Err(Fault::new("its header and its content are to be objects")),
    }
}

fn members(whole: &Value) -> Result<(String, Value, Value), Fault> {
    // Clients of the oldest protocol name no channel, and send what belongs to this one.
    let channel = whole["channel"].as_str().unwrap_or("shell").to_owned();
    Ok((channel, whole["header"].clone(), whole["content"].clone()))
}

/// The JSON of a frame with buffers: behind a number of parts and their offsets, of four bytes each.
fn before_buffers(bytes: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| Some(u32::from_be_bytes(*bytes.get(at.checked_mul(4)?..)?.first_chunk::<4>()?) as usize);
    let count = number(0)?;
    let start = number(1)?;
    let end = if count > 1 { number(2)? } else { bytes.len() };
    bytes.get(start..end)
}

/// The parts of a message behind their offsets: the first is that of the channel, the last is the end.
fn parts(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at.checked_mul(8)?..)?.first_chunk::<8>()?));
    let count = number(0).filter(|count| (6..=PARTS_MAX + 1).contains(count))?;
    let offsets = (1..=usize::try_from(count).ok()?).map(|at| usize::try_from(number(at)?).ok());
    let offsets: Vec<usize> = offsets.collect::<Option<_>>()?;
    offsets.windows(2).map(|pair| bytes.get(pair[0]..pair[1])).collect()
}

/// Puts a message into a frame.
pub(super) fn write(form: Form, said: &Said) -> Frame {
    let Said { channel, header, parent, content } = said;
    match form {
        Form::Json => Frame::Text(format!(
            "{{\"channel\":{},\"header\":{header},\"parent_header\":{parent},\"metadata\":{{}},\"content\":{content},\
             \"buffers\":[],\"msg_id\":{},\"msg_type\":{}}}",
            json!(channel),
            member(header, "msg_id"),
            member(header, "msg_type"),
        )),
        Form::Offsets => {
            let parts = [channel, header.as_str(), parent, "{}", content];
            let count = (parts.len() as u64).saturating_add(1);
            let mut offset = count.saturating_add(1).saturating_mul(8);
            let mut bytes = Vec::with_capacity(said.len());
            bytes.extend(count.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            for part in parts {
                offset = offset.saturating_add(part.len() as u64);
                bytes.extend(offset.to_le_bytes());
            }
            parts.iter().for_each(|part| bytes.extend(part.as_bytes()));
            Frame::Binary(bytes)
        }
    }
}

/// A member of a header, as JSON: clients find it beside the header as well.
fn member(header: &str, name: &str) -> Value {
    serde_json::from_str::<Value>(header).map(|header| header[name].clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> Said {
        Said::new("shell", &json!({"msg_type": "é", "msg_id": "1"}), &json!({"a": 1}), &json!({"code": "ü"}))
    }

    #[test]
    fn a_message_comes_back_in_both_forms() {
        for form in [Form::Json, Form::Offsets] {
            let (channel, header, content) = read(form, &write(form, &said())).expect("a message");
            assert_eq!((channel, &header["msg_type"], content.text("code")), (Channel::Shell, &json!("é"), Ok("ü")));
        }
        // With two buffers behind it.
        let text = br#"{"channel": "control", "header": {"msg_type": "x"}, "content": {}}"#;
        let mut bytes = Vec::new();
        for number in [3, 16, 16 + text.len(), 16 + text.len() + 2] {
            bytes.extend(u32::try_from(number).expect("small").to_be_bytes());
        }
        bytes.extend(text);
        bytes.extend(b"abcd");
        let (channel, ..) = read(Form::Json, &Frame::Binary(bytes)).expect("a message");
        assert_eq!(channel, Channel::Control);
    }

    #[test]
    fn frames_that_lie_are_refused() {
        let Frame::Binary(whole) = write(Form::Offsets, &said()) else { panic!("bytes") };
        for cut in 0..whole.len() {
            assert!(read(Form::Offsets, &Frame::Binary(whole[..cut].to_vec())).is_err(), "{cut}");
            assert!(read(Form::Json, &Frame::Binary(whole[..cut].to_vec())).is_err(), "{cut}");
        }
        for place in 0..7 {
            for number in [0, 1, 7, u64::MAX, u64::MAX / 8, whole.len() as u64 + 1] {
                let mut bytes = whole.clone();
                bytes[place * 8..][..8].copy_from_slice(&number.to_le_bytes());
                let _ = read(Form::Offsets, &Frame::Binary(bytes));
            }
        }
        for text in [
            "",
            "[]",
            "{}",
            "7",
            r#"{"header": {}, "content": 3}"#,
            r#"{"channel": "iopub", "header": {}, "content": {}}"#,
        ] {
            assert!(read(Form::Json, &Frame::Text(text.to_owned())).is_err(), "{text}");
        }
        assert!(read(Form::Offsets, &Frame::Text("{}".to_owned())).is_err());
    }
}
