//! The buffers of a column on their way to a guest, each as long as its type and the number of its values ask for.
//!
//! A guest takes buffers by their lengths alone: one of another length would shift the values of all rows behind it. So every
//! buffer is added with the number of its values, and one that has others is an error.

use arrow_array::{Array, ArrayRef};
use arrow_buffer::Buffer;
use serde_json::Value;

use crate::error::TableError;

/// A column as a guest takes it.
pub(crate) struct Encoded {
    /// Description of its type, for the head of the column.
    pub(crate) kind: Value,
    /// Tells whether the first buffer is a mask.
    pub(crate) nullable: bool,
    /// Each in the parts that the column has.
    buffers: Vec<Vec<Buffer>>,
}

impl Encoded {
    /// A column without buffers.
    pub(crate) fn new(kind: Value) -> Encoded {
        Encoded { kind, nullable: false, buffers: Vec::new() }
    }

    /// Adds the validity mask if there are missing values: a byte for each row, 0 for a missing one.
    pub(crate) fn with_mask(mut self, parts: &[ArrayRef]) -> Result<Encoded, TableError> {
        if parts.iter().all(|part| part.null_count() == 0) {
            return Ok(self);
        }
        let there = |part: &ArrayRef| match part.nulls() {
            Some(nulls) => flags(nulls.iter()),
            None => flags(std::iter::repeat_n(true, part.len())),
        };
        self.nullable = true;
        self.with::<u8>(rows(parts), parts.iter().map(there).collect())
    }

    /// Adds a buffer of `count` numbers.
    ///
    /// # Errors
    /// The size of the parts differs.
    pub(crate) fn with<T>(mut self, count: usize, parts: Vec<Buffer>) -> Result<Encoded, TableError> {
        let wanted = count.checked_mul(size_of::<T>()).ok_or(TableError::TooLarge)?;
        let found = length(&parts);
        if found != wanted {
            return Err(TableError::Length { wanted, found });
        }
        self.buffers.push(parts);
        Ok(self)
    }

    /// Adds the buffers of another column.
    pub(crate) fn with_all(mut self, other: Encoded) -> Encoded {
        self.buffers.extend(other.buffers);
        self
    }

    /// Lengths of the buffers, in bytes.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        self.buffers.iter().map(|parts| length(parts)).collect()
    }

    /// All buffers, one after the other.
    pub(crate) fn into_buffers(self) -> impl Iterator<Item = Buffer> {
        self.buffers.into_iter().flatten()
    }
}

/// Encodes flags as one byte each.
pub(crate) fn flags(values: impl Iterator<Item = bool>) -> Buffer {
    Buffer::from_vec(values.map(u8::from).collect::<Vec<u8>>())
}

/// Counts the rows of all parts of a column.
pub(crate) fn rows(parts: &[ArrayRef]) -> usize {
    parts.iter().map(|part| part.len()).fold(0, usize::saturating_add)
}

fn length(parts: &[Buffer]) -> usize {
    parts.iter().map(Buffer::len).fold(0, usize::saturating_add)
}
