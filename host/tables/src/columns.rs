//! Columns on their way to a guest: the bytes of a table, of which it takes one piece after the other.

use std::collections::VecDeque;

use arrow_buffer::Buffer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The columns of a table as a guest takes them. They are the buffers of the rows, and not copied before they are taken.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    buffers: VecDeque<Buffer>,
    bytes: usize,
}

impl Columns {
    /// Returns the number of remaining bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns true if all bytes were taken.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes the next bytes, `length` at most.
    pub fn take(&mut self, length: usize) -> Vec<u8> {
        let mut piece = Vec::with_capacity(length.min(self.bytes));
        while let Some(first) = self.buffers.front_mut() {
            let count = first.len().min(length.saturating_sub(piece.len()));
            piece.extend_from_slice(&first[..count]);
            first.advance(count);
            if !first.is_empty() {
                break;
            }
            self.buffers.pop_front();
        }
        self.bytes = self.bytes.saturating_sub(piece.len());
        piece
    }
}

impl Extend<Buffer> for Columns {
    fn extend<T: IntoIterator<Item = Buffer>>(&mut self, buffers: T) {
        for buffer in buffers.into_iter().filter(|buffer| !buffer.is_empty()) {
            self.bytes = self.bytes.saturating_add(buffer.len());
            self.buffers.push_back(buffer);
        }
    }
}

impl From<Vec<u8>> for Columns {
    fn from(bytes: Vec<u8>) -> Columns {
        let mut columns = Columns::default();
        columns.extend([Buffer::from_vec(bytes)]);
        columns
    }
}

impl PartialEq for Columns {
    fn eq(&self, other: &Columns) -> bool {
        self.bytes == other.bytes
            && self.buffers.iter().flat_map(|one| &one[..]).eq(other.buffers.iter().flat_map(|one| &one[..]))
    }
}

impl Eq for Columns {}

impl Serialize for Columns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.buffers.iter().flat_map(|one| one.iter()))
    }
}

impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Columns, D::Error> {
        Vec::<u8>::deserialize(deserializer).map(Columns::from)
    }
}
