//! Writing a recording.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use serde::Serialize;

use super::{CHECKSUM_BYTES, END, End, FRAME_BYTES, FRAME_BYTES_MAX, FRAME_HEAD_BYTES, Head, ITEMS, RECORDING};
use crate::formats::snapshot::fingerprint;

/// zstd's fast end: the cells that are recorded wait for it.
const LEVEL: i32 = 1;

/// Writes a recording. Items wait until a frame is full, and only [`Writer::end`] writes the last frame, without which a
/// recording counts as cut off.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    /// Items that were not written yet.
    items: Vec<u8>,
    /// The last checksum that was written.
    checksum: [u8; CHECKSUM_BYTES],
    written: u64,
    bytes_max: u64,
    is_full: bool,
}

impl Writer {
    /// Begins a recording in a file that only its owner may read, and that it empties if it is there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn create(path: &Path, head: &Head, bytes_max: u64) -> io::Result<Writer> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut bytes = RECORDING.begin(head);
        let checksum = fingerprint(&bytes).to_le_bytes();
        bytes.extend(checksum);
        let written = bytes.len() as u64;
        let mut writer = Writer { file, items: Vec::new(), checksum, written, bytes_max, is_full: false };
        writer.file.write_all(&bytes)?;
        Ok(writer)
    }

    /// Adds an item, `body` with `more` behind it. One that finds no room ends the recording.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn add(&mut self, stream: u32, body: &[u8], more: &[u8]) -> io::Result<()> {
        let size = body.len().saturating_add(more.len());
        self.is_full |= size > FRAME_BYTES_MAX - FRAME_BYTES - 16;
        if self.is_full {
            return Ok(());
        }
        varint(&mut self.items, u64::from(stream));
        varint(&mut self.items, size as u64);
        self.items.extend_from_slice(body);
        self.items.extend_from_slice(more);
        if self.items.len() >= FRAME_BYTES { self.flush() } else { Ok(()) }
    }

    /// Returns true if the recording has ended because it had become too large.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Writes what was added, and that this is all. Returns the length of the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn end(&mut self, end: &End) -> io::Result<u64> {
        self.flush()?;
        let end = End { is_full: self.is_full, ..end.clone() };
        let bytes = postcard::to_stdvec(&end).map_err(io::Error::other)?;
        self.frame(END, &bytes, 0)?;
        self.file.sync_data()?;
        Ok(self.written)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        let packed = zstd::bulk::compress(&self.items, LEVEL)?;
        if self.written.saturating_add(packed.len() as u64) > self.bytes_max {
            self.is_full = true;
        } else {
            self.frame(ITEMS, &packed, self.items.len())?;
        }
        self.items.clear();
        // One large item must not hold memory for ever.
        self.items.shrink_to(2 * FRAME_BYTES);
        Ok(())
    }

    fn frame(&mut self, tag: u8, bytes: &[u8], plain: usize) -> io::Result<()> {
        let too_large = |_| io::Error::other("an item is too large to be recorded");
        let mut frame = Vec::with_capacity(bytes.len().saturating_add(2 * CHECKSUM_BYTES + FRAME_HEAD_BYTES));
        frame.extend(self.checksum);
        frame.push(tag);
        frame.extend(u32::try_from(bytes.len()).map_err(too_large)?.to_le_bytes());
        frame.extend(u32::try_from(plain).map_err(too_large)?.to_le_bytes());
        frame.extend_from_slice(bytes);
        self.checksum = fingerprint(&frame).to_le_bytes();
        frame.extend(self.checksum);
        let written = &frame[CHECKSUM_BYTES..];
        self.file.write_all(written)?;
        self.written = self.written.saturating_add(written.len() as u64);
        Ok(())
    }
}

/// Appends a number, seven bits a byte, low ones first.
fn varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// The bytes of a value.
pub(crate) fn bytes_of(value: &impl Serialize) -> Vec<u8> {
    // Only fails when the sink does, and a vector does not, or for a sequence of unknown length, which none has.
    postcard::to_stdvec(value).unwrap_or_default()
}
