//! Frames, greetings and commands as bytes.

use std::{io, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{MESSAGE_BYTES_MAX, socket::Kind};
use crate::queue::kib;

/// Frames of a message.
const FRAMES_MAX: usize = 64;
/// Bytes of a command.
const COMMAND_BYTES_MAX: usize = 4 << 10;
/// Time that a frame may take from its first byte to its last.
const FRAME_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a message that are read before it takes a permit.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read at once, so that memory grows with what was received and not with what was announced.
const PIECE_BYTES: usize = 256 << 10;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Capacity, in KiB, for messages that were received and not answered yet.
pub(super) const WAITING_KIB: usize = (4 * MESSAGE_BYTES_MAX) >> 10;
/// Capacity, in KiB, for large messages of peers that have not sent a signed message yet.
pub(super) const STRANGERS_KIB: usize = (2 * MESSAGE_BYTES_MAX) >> 10;
/// Capacity, in KiB, for small messages of such peers, so that these never wait for a large one.
pub(super) const STRANGERS_SMALL_KIB: usize = (128 * SMALL_BYTES_MAX) >> 10;
/// Timeout of a large message of such a peer, once it has its permit.
pub(super) const STRANGER_TIMEOUT: Duration = Duration::from_secs(10);

const GREETING_BYTES: usize = 64;
const MECHANISM: &[u8] = b"NULL";

/// Reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The peer has gone.
    #[error("the peer has gone")]
    Gone,
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[source] io::Error),
    /// The peer breaks the protocol, or lacks a part of it that is needed.
    #[error("{0}")]
    Protocol(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Broken::Gone,
            _ => Broken::Io(error),
        }
    }
}

fn protocol<T>(what: impl Into<String>) -> Result<T, Broken> {
    Err(Broken::Protocol(what.into()))
}

/// Capacity for the messages of a peer.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// Free KiB for small messages.
    pub(super) small: Arc<Semaphore>,
    /// Free KiB for large ones; both may be the same semaphore.
    pub(super) large: Arc<Semaphore>,
    /// Timeout of a large message once it has its permit, for a peer that has not signed anything; absent for others.
    pub(super) patience: Option<Duration>,
}

/// Message or command that a peer sends after the greeting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A message: its frames.
    Message(Vec<Bytes>),
    /// A command: its name and what follows it.
    Command(Bytes, Bytes),
}

/// Greets a peer, and returns its identity.
///
/// # Errors
/// It speaks another protocol, wants another mechanism, or is a socket that does not go with this one.
pub(super) async fn greet<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, kind: Kind) -> Result<Bytes, Broken> {
    let mut own = [0_u8; GREETING_BYTES];
    // Version 3.0: subscriptions come as messages, and nobody pings.
    (own[0], own[9], own[10]) = (0xff, 0x7f, 3);
    own[12..][..MECHANISM.len()].copy_from_slice(MECHANISM);
    stream.write_all(&own).await?;
    let mut greeting = [0_u8; GREETING_BYTES];
    // An older peer sends less, so its version is read first.
    stream.read_exact(&mut greeting[..11]).await?;
    if greeting[0] != 0xff || greeting[9] & 1 == 0 {
        return protocol("it does not speak ZMTP");
    }
    if greeting[10] < 3 {
        return protocol(format!(
            "it speaks version {} of ZMTP, and 3 is the oldest that is spoken here",
            greeting[10]
        ));
    }
    stream.read_exact(&mut greeting[11..]).await?;
    let mechanism = &greeting[12..32];
    if mechanism.strip_prefix(MECHANISM).is_none_or(|rest| rest.iter().any(|byte| *byte != 0)) {
        let name = String::from_utf8_lossy(mechanism);
        return protocol(format!("it wants the mechanism {:?}, and only NULL is known", name.trim_end_matches('\0')));
    }
    let mut ready = BytesMut::new();
    ready.put_slice(b"\x05READY");
    property(&mut ready, "Socket-Type", kind.name().as_bytes());
    property(&mut ready, "Identity", b"");
    write_frame(stream, COMMAND, &ready).await?;
    stream.flush().await?;
    let free = Arc::new(Semaphore::new(STRANGERS_KIB));
    let room = Room { small: free.clone(), large: free, patience: Some(STRANGER_TIMEOUT) };
    match read(stream, || room.clone()).await?.0 {
        Received::Command(name, body) if name == b"READY"[..] => {
            let properties = properties(&body)?;
            let value = |name: &str| {
                let found = properties.iter().find(|(key, _)| key.eq_ignore_ascii_case(name.as_bytes()));
                found.map(|(_, value)| value.clone())
            };
            let socket = value("Socket-Type").unwrap_or_default();
            if !kind.goes_with(&socket) {
                let socket = String::from_utf8_lossy(&socket);
                return protocol(format!("it is a socket {socket:?}, which does not go with {}", kind.name()));
            }
            Ok(value("Identity").unwrap_or_default())
        }
        _ => protocol("it said something else before READY"),
    }
}

fn property(ready: &mut BytesMut, name: &str, value: &[u8]) {
    // Both are words of this file.
    ready.put_u8(name.len() as u8);
    ready.put_slice(name.as_bytes());
    ready.put_u32(value.len() as u32);
    ready.put_slice(value);
}

/// Parses the properties in the body of a `READY` command.
fn properties(body: &Bytes) -> Result<Vec<(Bytes, Bytes)>, Broken> {
    let short = || Broken::Protocol("a property of its READY is cut off".to_owned());
    let mut found = Vec::new();
    let mut rest = body.clone();
    while !rest.is_empty() {
        let name_end = 1 + usize::from(rest[0]);
        let value_start = name_end.saturating_add(4);
        let size = rest.get(name_end..value_start).ok_or_else(short)?;
        let size = u32::from_be_bytes([size[0], size[1], size[2], size[3]]);
        let value_end = usize::try_from(size).ok().and_then(|size| value_start.checked_add(size)).ok_or_else(short)?;
        if value_end > rest.len() {
            return Err(short());
        }
        found.push((rest.slice(1..name_end), rest.slice(value_start..value_end)));
        rest = rest.slice(value_end..);
    }
    Ok(found)
}

/// Reads the next message or command, with its permit for the capacity that `room` returns when it begins. A small
/// message takes its permit after it was read. A large one takes it before, for the largest size that a message may
/// have, so that two messages can never wait for each other.
///
/// # Errors
/// The peer has gone, sends too much or too slowly, or breaks the framing.
pub(super) async fn read<R: AsyncRead + Unpin>(
    reader: &mut R,
    room: impl Fn() -> Room,
) -> Result<(Received, OwnedSemaphorePermit), Broken> {
    let (mut frames, mut bytes, mut reserved, mut deadline) = (Vec::new(), 0_usize, None, None);
    // A peer may be silent for long, but not in the middle of something.
    let mut first = Some(reader.read_u8().await?);
    let Room { small, large, patience } = room();
    loop {
        let within = Within(deadline);
        let flags = match first.take() {
            Some(flags) => flags,
            None => within.wait(reader.read_u8()).await?,
        };
        if flags & !(MORE | LONG | COMMAND) != 0 || (flags & COMMAND != 0 && (flags & MORE != 0 || !frames.is_empty()))
        {
            return protocol(format!("a frame has the flags {flags:#04x}"));
        }
        let size = match flags & LONG {
            0 => u64::from(within.wait(reader.read_u8()).await?),
            _ => within.wait(reader.read_u64()).await?,
        };
        let most = if flags & COMMAND == 0 { MESSAGE_BYTES_MAX.saturating_sub(bytes) } else { COMMAND_BYTES_MAX };
        let Some(size) = usize::try_from(size).ok().filter(|size| *size <= most) else {
            return protocol(format!("a frame of {size} bytes makes its message larger than it may be"));
        };
        bytes = bytes.saturating_add(size);
        if bytes > SMALL_BYTES_MAX && reserved.is_none() {
            reserved = Some(take(&large, kib(MESSAGE_BYTES_MAX)).await?);
            deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        }
        let body = Within(deadline).wait(read_body(reader, size)).await?;
        if flags & COMMAND != 0 {
            let name_end = 1 + usize::from(*body.first().unwrap_or(&0));
            if body.len() < name_end {
                return protocol("a command has no name");
            }
            let command = Received::Command(body.slice(1..name_end), body.slice(name_end..));
            return Ok((command, take(&small, 0).await?));
        }
        frames.push(body);
        if flags & MORE == 0 {
            let room = match reserved {
                // What was taken too much is given back.
                Some(mut reserved) => match reserved.split(kib(bytes) as usize) {
                    Some(needed) => needed,
                    None => reserved,
                },
                None => take(&small, kib(bytes)).await?,
            };
            return Ok((Received::Message(frames), room));
        }
        if frames.len() == FRAMES_MAX {
            return protocol(format!("a message has more than {FRAMES_MAX} frames"));
        }
    }
}

/// Deadline of the rest of a message whose first byte was read: that of the whole message, or `FRAME_TIMEOUT` for each
/// part.
#[derive(Clone, Copy)]
struct Within(Option<Instant>);

impl Within {
    async fn wait<T, E: Into<Broken>>(self, reading: impl Future<Output = Result<T, E>>) -> Result<T, Broken> {
        match self.0 {
            Some(deadline) => match timeout_at(deadline, reading).await {
                Ok(read) => read.map_err(E::into),
                Err(_) => protocol("a large message of a peer that has signed nothing has not come in time"),
            },
            None => match timeout(FRAME_TIMEOUT, reading).await {
                Ok(read) => read.map_err(E::into),
                Err(_) => protocol(format!("a frame has not come within {} s", FRAME_TIMEOUT.as_secs())),
            },
        }
    }
}

async fn take(room: &Arc<Semaphore>, kib: u32) -> Result<OwnedSemaphorePermit, Broken> {
    // It is closed when nobody reads any more.
    room.clone().acquire_many_owned(kib).await.map_err(|_| Broken::Gone)
}

async fn read_body<R: AsyncRead + Unpin>(reader: &mut R, size: usize) -> Result<Bytes, Broken> {
    let mut body = BytesMut::with_capacity(size.min(PIECE_BYTES));
    while body.len() < size {
        let missing = size.saturating_sub(body.len());
        body.reserve(missing.min(PIECE_BYTES));
        if (&mut *reader).take(missing.min(PIECE_BYTES) as u64).read_buf(&mut body).await? == 0 {
            return Err(Broken::Gone);
        }
    }
    Ok(body.freeze())
}

/// Writes a message, without flushing.
///
/// # Errors
/// The peer has gone.
pub(super) async fn write<W: AsyncWrite + Unpin>(writer: &mut W, frames: &[Bytes]) -> io::Result<()> {
    for (n, frame) in frames.iter().enumerate() {
        let flags = if n.saturating_add(1) < frames.len() { MORE } else { 0 };
        write_frame(writer, flags, frame).await?;
    }
    Ok(())
}

async fn write_frame<W: AsyncWrite + Unpin>(writer: &mut W, flags: u8, body: &[u8]) -> io::Result<()> {
    match u8::try_from(body.len()) {
        Ok(size) => writer.write_all(&[flags, size]).await?,
        Err(_) => {
            writer.write_u8(flags | LONG).await?;
            writer.write_u64(body.len() as u64).await?;
        }
    }
    writer.write_all(body).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_runtime<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
    }

    fn received(bytes: &[u8]) -> Result<Received, String> {
        let free = Arc::new(Semaphore::new(WAITING_KIB));
        let room = Room { small: free.clone(), large: free, patience: None };
        let read = on_runtime(async { read(&mut &*bytes, || room.clone()).await.map_err(|broken| broken.to_string()) });
        read.map(|(received, permit)| {
            assert!(
                matches!(received, Received::Command(..)) || permit.num_permits() < kib(MESSAGE_BYTES_MAX) as usize
            );
            received
        })
    }

    #[test]
    fn messages_come_back_as_they_were_written() {
        let frames = [Bytes::new(), Bytes::from_static(b"ab"), vec![7; 300].into(), vec![8; 1 << 20].into()];
        let mut written = Vec::new();
        on_runtime(write(&mut written, &frames)).expect("written");
        assert_eq!(received(&written), Ok(Received::Message(frames.to_vec())));
    }

    #[test]
    fn what_is_no_frame_or_too_much_is_refused_and_named() {
        let check = |bytes: &[u8], words: &str| {
            let refused = received(bytes).expect_err(words);
            assert!(refused.contains(words), "{refused}");
        };
        check(&[0x80, 0], "flags 0x80");
        check(&[COMMAND | MORE, 0], "flags 0x05");
        check(&[MORE, 1, 9, COMMAND, 0], "flags 0x04");
        check(&[COMMAND, 1, 9], "no name");
        check(&[0, 5, 1], "gone");
        check(&[LONG, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "larger than");
        check(&[LONG | COMMAND, 0, 0, 0, 0, 0, 1, 0, 0], "larger than");
        check(&[MORE, 0].repeat(FRAMES_MAX), "more than 64 frames");
    }

    #[test]
    fn a_stranger_that_announces_much_and_sends_little_is_cut_off() {
        on_runtime(async {
            let (mut stranger, mut own) = tokio::io::duplex(1 << 10);
            let free = Arc::new(Semaphore::new(STRANGERS_KIB));
            let room = || Room { small: free.clone(), large: free.clone(), patience: Some(Duration::from_millis(1)) };
            stranger.write_all(&[LONG, 0, 0, 0, 0, 1, 0, 0, 0, 7]).await.expect("written");
            let refused = read(&mut own, room).await.expect_err("too slow").to_string();
            assert!(refused.contains("has not come in time"), "{refused}");
            assert_eq!(free.available_permits(), STRANGERS_KIB);
        });
    }

    #[test]
    fn peers_that_do_not_fit_are_refused() {
        let greeting = |version: u8, mechanism: &[u8]| {
            let mut bytes = vec![0_u8; GREETING_BYTES];
            (bytes[0], bytes[9], bytes[10]) = (0xff, 0x7f, version);
            bytes[12..12 + mechanism.len()].copy_from_slice(mechanism);
            bytes
        };
        let ready = |socket: &str| {
            let mut body = BytesMut::new();
            body.put_slice(b"\x05READY");
            property(&mut body, "Socket-Type", socket.as_bytes());
            property(&mut body, "Identity", b"me");
            let mut bytes = vec![COMMAND, body.len() as u8];
            bytes.extend_from_slice(&body);
            bytes
        };
        let greeted = |bytes: Vec<u8>| {
            on_runtime(async {
                let mut stream = tokio_pair(bytes);
                greet(&mut stream, Kind::Router).await.map_err(|broken| broken.to_string())
            })
        };
        let good = [greeting(3, MECHANISM), ready("DEALER")].concat();
        assert_eq!(greeted(good), Ok(Bytes::from_static(b"me")));
        let check = |bytes: Vec<u8>, words: &str| {
            let refused = greeted(bytes).expect_err(words);
            assert!(refused.contains(words), "{refused}");
        };
        check(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), "does not speak ZMTP");
        check(greeting(2, MECHANISM), "version 2");
        check(greeting(3, b"CURVE"), "CURVE");
        check([greeting(3, MECHANISM), ready("SUB")].concat(), "does not go with ROUTER");
        check([greeting(3, MECHANISM), vec![COMMAND, 8, 5, b'R', b'E', b'A', b'D', b'Y', 200, 1]].concat(), "cut off");
        check([greeting(3, MECHANISM), vec![0, 1, 1]].concat(), "before READY");
    }

    /// A stream that gives these bytes and takes whatever is written.
    fn tokio_pair(bytes: Vec<u8>) -> tokio::io::Join<io::Cursor<Vec<u8>>, tokio::io::Sink> {
        tokio::io::join(io::Cursor::new(bytes), tokio::io::sink())
    }
}
