//! Lies of a worker to the process in front, on the connections that it has to it.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, OwnedFd},
    os::unix::net::UnixStream,
    time::Duration,
};

/// Bytes of a flood: more than all buffers on the way.
const FLOOD_BYTES: usize = 8 << 20;

/// Names, and what is done.
pub(crate) const LIES: [(&str, fn()); 12] = [
    ("no message", || say(&frame(&[0xff; 40]))),
    ("an empty message", || say(&frame(&[]))),
    ("a message of 4 GiB", || say(&[0xff; 4])),
    ("a message of 128 MiB that does not come", || say(&(128_u32 << 20).to_le_bytes())),
    ("half a message", || say(&[200, 0, 0, 0, 5, 1, 2])),
    ("noise", || say(&noise(1 << 20))),
    ("notes without meaning", || say(&note("{\"nothing\":[1,2,3]}").repeat(1000))),
    ("notes at the wrong time", || {
        let notes = ["\"ready\"", "{\"leaving\":true}", "\"heeded\"", "{\"leaving\":false}", "[]", "\u{0}", ""];
        say(&notes.map(note).concat().repeat(100));
    }),
    ("calls by the thousand whose answers nobody reads", || {
        let calls: Vec<u8> =
            (0..4000_u32).flat_map(|number| frame(&[&[2], &varint(u64::from(number))[..]].concat())).collect();
        say(&calls);
    }),
    ("a flood", || say(&vec![0x41; FLOOD_BYTES])),
    ("words to those who say words", || {
        let control = std::io::stdin().as_fd().try_clone_to_owned().expect("a socket");
        let _ = UnixStream::from(control).write_all(&noise(1 << 10));
    }),
    ("ends of all connections", || {
        for socket in sockets() {
            let _ = UnixStream::from(socket).shutdown(std::net::Shutdown::Both);
        }
    }),
];

/// A frame, as the process in front reads it.
fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a length");
    [&length.to_le_bytes(), message].concat()
}

/// The frame of a note: the sixth kind of message.
fn note(text: &str) -> Vec<u8> {
    frame(&[&[5], &varint(text.len() as u64)[..], text.as_bytes()].concat())
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).expect("a byte") | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).expect("a byte"));
    bytes
}

fn noise(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).expect("noise");
    bytes
}

/// Every socket of this process.
fn sockets() -> Vec<OwnedFd> {
    let all = std::fs::read_dir("/proc/self/fd").map(|all| {
        let names = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        names.collect::<Vec<_>>()
    });
    let all = all.unwrap_or_else(|_| (0..256).collect());
    all.into_iter().filter_map(crate::system_calls::socket).collect()
}

/// Sends bytes on every connection but that for words, whatever becomes of them: a process in front that does not listen any more
/// reads none.
fn say(bytes: &[u8]) {
    for socket in sockets() {
        let mut stream = UnixStream::from(socket);
        let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
        let _ = stream.write_all(bytes);
    }
}
