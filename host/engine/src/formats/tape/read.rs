//! Reading a recording.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc};

use cellar_core::files::open_plain;

use super::{
    CHECKSUM_BYTES, END, End, FRAME_BYTES_MAX, FRAME_HEAD_BYTES, HEAD_BYTES_MAX, Head, ITEMS, RECORDING, ReplayError,
};
use crate::formats::{
    header::{PREFIX_BYTES, split_head, u32_at},
    snapshot::fingerprint,
};

/// A recording that is whole. Read by any number of cursors.
#[derive(Debug)]
pub(crate) struct TapeFile {
    file: File,
    pub(crate) bytes: u64,
    pub(crate) head: Head,
    pub(crate) end: End,
    frames: Vec<Frame>,
}

/// Location of the items of a frame.
#[derive(Clone, Copy, Debug)]
struct Frame {
    offset: u64,
    packed: usize,
    plain: usize,
}

fn corrupt(what: impl Into<String>) -> ReplayError {
    RECORDING.corrupt(what).into()
}

impl TapeFile {
    /// Opens a recording, and reads all of it once to see that nothing is missing and nothing has changed.
    ///
    /// # Errors
    /// When it cannot be read, is none, ends early or is damaged.
    pub(crate) fn open(path: &Path) -> Result<TapeFile, OpenError> {
        let file = open_plain(path, File::options().read(true))?;
        let bytes = file.metadata()?.len();
        let source = Source { file, bytes };
        let cut_off = || ReplayError::CutOff { bytes };
        let prefix = source.read(0, PREFIX_BYTES.min(usize::try_from(bytes).unwrap_or(PREFIX_BYTES)))?;
        let head_bytes = RECORDING.head_bytes(&prefix).map_err(ReplayError::from)?.ok_or_else(cut_off)?;
        if head_bytes > HEAD_BYTES_MAX {
            return Err(corrupt(format!("its head has {head_bytes} bytes")).into());
        }
        let body = source.read(0, PREFIX_BYTES.saturating_add(head_bytes))?;
        let mut offset = body.len() as u64;
        let mut checksum = source.read(offset, CHECKSUM_BYTES)?;
        if fingerprint(&body).to_le_bytes() != *checksum {
            return Err(corrupt("the checksum of its head does not match").into());
        }
        let (head, _) = split_head::<Head>(&body, head_bytes).ok_or_else(|| corrupt("its head cannot be read"))?;
        head.limits.check().map_err(corrupt)?;
        let mut frames = Vec::new();
        loop {
            offset = offset.saturating_add(CHECKSUM_BYTES as u64);
            let frame_head = source.read(offset, FRAME_HEAD_BYTES)?;
            let length = |at| u32_at(&frame_head, at).unwrap_or(u32::MAX) as usize;
            let (packed, plain) = (length(1), length(5));
            if packed > FRAME_BYTES_MAX || plain > FRAME_BYTES_MAX {
                return Err(corrupt(format!("the frame at {offset} has {packed} bytes, {plain} when unpacked")).into());
            }
            let payload = offset.saturating_add(FRAME_HEAD_BYTES as u64);
            let covered = [&*checksum, &*frame_head, &*source.read(payload, packed)?].concat();
            offset = payload.saturating_add(packed as u64);
            checksum = source.read(offset, CHECKSUM_BYTES)?;
            if fingerprint(&covered).to_le_bytes() != *checksum {
                return Err(corrupt(format!("the checksum of the frame before {offset} does not match")).into());
            }
            match frame_head[0] {
                ITEMS => frames.push(Frame { offset: payload, packed, plain }),
                END if offset.saturating_add(CHECKSUM_BYTES as u64) != bytes => {
                    return Err(corrupt("there is more after its end").into());
                }
                END => {
                    let end = &covered[CHECKSUM_BYTES + FRAME_HEAD_BYTES..];
                    let end = postcard::from_bytes(end).map_err(|_| corrupt("its end cannot be read"))?;
                    return Ok(TapeFile { file: source.file, bytes, head, end, frames });
                }
                tag => return Err(corrupt(format!("it has a frame of the unknown kind {tag}")).into()),
            }
        }
    }

    #[cfg(test)]
    pub(super) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// The items of a frame; `None` after the last.
    fn frame(&self, number: usize) -> Result<Option<Vec<u8>>, ReplayError> {
        let Some(frame) = self.frames.get(number) else { return Ok(None) };
        let mut packed = vec![0; frame.packed];
        let read = self.file.read_exact_at(&mut packed, frame.offset);
        read.map_err(|error| corrupt(format!("it changed while it was replayed ({error})")))?;
        let items = zstd::bulk::decompress(&packed, frame.plain).map_err(|error| corrupt(error.to_string()))?;
        if items.len() != frame.plain {
            return Err(corrupt(format!("a frame has {} bytes instead of {}", items.len(), frame.plain)));
        }
        Ok(Some(items))
    }
}

/// A file whose length is known.
struct Source {
    file: File,
    bytes: u64,
}

/// Reason why a recording cannot be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    Io(io::Error),
    Replay(ReplayError),
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::Io(error)
    }
}

impl From<ReplayError> for OpenError {
    fn from(error: ReplayError) -> OpenError {
        OpenError::Replay(error)
    }
}

impl Source {
    /// Reads so many bytes; fails without allocating if the file ends before.
    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, OpenError> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.bytes) {
            return Err(ReplayError::CutOff { bytes: self.bytes }.into());
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// Position in a recording, which only moves forward. A clone goes on from the same position.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    tape: Arc<TapeFile>,
    /// The frame after the one that is unpacked.
    next_frame: usize,
    items: Arc<Vec<u8>>,
    /// Offset of the next item in `items`.
    at: usize,
}

impl Cursor {
    pub(crate) fn new(tape: Arc<TapeFile>) -> Cursor {
        Cursor { tape, next_frame: 0, items: Arc::default(), at: 0 }
    }

    /// The next item with its stream; `None` at the end.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, &[u8])>, ReplayError> {
        while self.at >= self.items.len() {
            let Some(items) = self.tape.frame(self.next_frame)? else { return Ok(None) };
            self.next_frame = self.next_frame.saturating_add(1);
            (self.items, self.at) = (Arc::new(items), 0);
        }
        let beyond = || corrupt("an item goes beyond its frame");
        let (stream, at) = varint(&self.items, self.at).ok_or_else(beyond)?;
        let (size, at) = varint(&self.items, at).ok_or_else(beyond)?;
        let stream = u32::try_from(stream).map_err(|_| corrupt("an item has an impossible stream"))?;
        let end = usize::try_from(size).ok().and_then(|size| at.checked_add(size)).ok_or_else(beyond)?;
        let item = self.items.get(at..end).ok_or_else(beyond)?;
        self.at = end;
        Ok(Some((stream, item)))
    }

    /// The next item of a stream; those of others are passed over. `None` at the end.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn next_of(&mut self, wanted: u32) -> Result<Option<Vec<u8>>, ReplayError> {
        while let Some((stream, item)) = self.next()? {
            if stream == wanted {
                return Ok(Some(item.to_vec()));
            }
        }
        Ok(None)
    }
}

/// The number at an offset, and the offset behind it.
fn varint(bytes: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let byte = *bytes.get(at)?;
        at = at.checked_add(1)?;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some((number, at));
        }
    }
    None
}
