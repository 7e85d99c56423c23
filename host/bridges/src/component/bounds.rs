//! Memory of a call, and room for the calls of this process.

use wasmtime::ResourceLimiter;

/// Bytes that an element of a table is taken to need.
const TABLE_ELEMENT_BYTES: u64 = 16;
/// Maximum number of module instances of a component: its own, and those that connect them.
const INSTANCES_MAX: usize = 128;
/// Tables, likewise.
const TABLES_MAX: usize = 128;
/// Memories, likewise: each reserves addresses.
const MEMORIES_MAX: usize = 16;

/// Remaining growth of all memories and tables of a call together.
#[derive(Debug)]
pub(crate) struct Bounds {
    left_bytes: u64,
    /// True if growth was refused: tells an abort for lack of memory from others.
    pub(crate) was_refused: bool,
}

impl Bounds {
    pub(crate) fn new(memory_bytes: u64) -> Bounds {
        Bounds { left_bytes: memory_bytes, was_refused: false }
    }

    fn take(&mut self, current: usize, desired: usize, unit_bytes: u64) -> bool {
        let more = u64::try_from(desired.saturating_sub(current)).unwrap_or(u64::MAX).saturating_mul(unit_bytes);
        match self.left_bytes.checked_sub(more) {
            Some(left) => {
                self.left_bytes = left;
                true
            }
            None => {
                self.was_refused = true;
                false
            }
        }
    }
}

impl ResourceLimiter for Bounds {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(maximum.is_none_or(|maximum| desired <= maximum) && self.take(current, desired, 1))
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let may_grow = maximum.is_none_or(|maximum| desired <= maximum);
        Ok(may_grow && self.take(current, desired, TABLE_ELEMENT_BYTES))
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_share_what_there_is() {
        let mut bounds = Bounds::new(1_000);
        assert!(bounds.memory_growing(0, 400, None).expect("answers"));
        assert!(bounds.table_growing(0, 20, None).expect("answers"));
        assert!(!bounds.memory_growing(400, 700, Some(650)).expect("answers"));
        assert!(!bounds.was_refused, "what the program forbids itself is no refusal");
        assert!(!bounds.memory_growing(400, 700, None).expect("answers"));
        assert!(bounds.was_refused);
        assert!(bounds.memory_growing(400, 680, None).expect("answers"));
        assert!(!bounds.table_growing(20, usize::MAX, None).expect("answers"));
    }
}
