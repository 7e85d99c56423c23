//! Words on a socket between two processes: a letter and a number, each with a descriptor or without.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};

/// Bytes of a word.
const WORD_BYTES: usize = 9;

/// Sends a message, with a descriptor if there is one. Never waits: if the other side does not read and its buffer is full,
/// that is an error.
///
/// # Errors
/// The other side is gone, or does not read.
pub fn pass(socket: &UnixStream, letter: u8, number: u64, descriptor: Option<OwnedFd>) -> io::Result<()> {
    let borrowed: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let mut word = [letter; WORD_BYTES];
    word[1..].copy_from_slice(&number.to_le_bytes());
    // A word is so short that it is sent whole or not at all.
    sendmsg(socket, &[IoSlice::new(&word)], &mut ancillary, flags)?;
    Ok(())
}

/// Waits for the next word, and the descriptor that came with it; `None` when the other side is gone. Blocks.
pub fn take(socket: &UnixStream) -> Option<(u8, u64, Option<OwnedFd>)> {
    loop {
        let (mut space, mut word) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [0; WORD_BYTES]);
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        match recvmsg(socket, &mut [IoSliceMut::new(&mut word)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            Ok(message) if message.bytes == WORD_BYTES => {}
            _ => return None,
        }
        let rights = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        let descriptor = rights.flatten().next();
        let [letter, number @ ..] = word;
        return Some((letter, u64::from_le_bytes(number), descriptor));
    }
}
