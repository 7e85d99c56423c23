//! Pages of a linear memory that differ from the image its guest starts from.
//!
//! A page is kept as what it has not in common with the image, bit for bit (exclusive or): next to nothing where the guest
//! changed a counter of references, and the page itself where the image has none.

use std::{collections::HashMap, sync::Arc, thread};

use cellar_core::sync::cores;
use twox_hash::XxHash3_128;

use super::image::{Image, toggle};

/// Granularity of all that is compared and kept: the host's own page, so that a page the guest wrote is one page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Granularity of growth: a page as wasm counts them.
pub(crate) const WASM_PAGE_BYTES: u64 = 64 << 10;
/// Pages compressed together. Large enough to compress well, small enough to spread over the cores.
pub(crate) const CHUNK_PAGES: usize = 256;
/// zstd's fast end: a snapshot is waited for, and pages of interpreters compress well at any level.
const LEVEL: i32 = 1;
/// Threads that compress one snapshot.
const THREADS_MAX: usize = 4;
static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// Tells contents apart. Not a defence: a guest that makes two of its pages collide damages nobody but itself.
pub(crate) fn fingerprint(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// Some pages, together, each as it differs from the image.
#[derive(Debug)]
pub(crate) enum Chunk {
    Raw(Vec<u8>),
    /// Pages that a zstd frame would not make smaller.
    Dense(Vec<u8>),
    /// A zstd frame of so many pages.
    Packed {
        bytes: Vec<u8>,
        pages: usize,
    },
}

impl Chunk {
    /// Returns the number of pages that it holds.
    pub(crate) fn pages(&self) -> usize {
        match self {
            Chunk::Raw(bytes) | Chunk::Dense(bytes) => bytes.len() / PAGE_BYTES,
            Chunk::Packed { pages, .. } => *pages,
        }
    }

    /// Bytes as they are kept.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Raw(bytes) | Chunk::Dense(bytes) | Chunk::Packed { bytes, .. } => bytes,
        }
    }

    fn pack(&self) -> Option<Chunk> {
        let Chunk::Raw(raw) = self else { return None };
        let packed = zstd::bulk::compress(raw, LEVEL).ok().filter(|bytes| bytes.len() < raw.len());
        Some(match packed {
            Some(mut bytes) => {
                // It comes with room for what could not be compressed.
                bytes.shrink_to_fit();
                Chunk::Packed { bytes, pages: self.pages() }
            }
            None => Chunk::Dense(raw.clone()),
        })
    }
}

/// Location of a page's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) page: u32,
    /// 0 is not known.
    pub(crate) fingerprint: u128,
    /// Number of the chunk and of the page in it; `None` is a page of zeros.
    pub(crate) at: Option<(u32, u32)>,
}

/// The captured memory of a kernel: the pages that differ from its guest's image. Clones share the chunks, so they are cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    /// Size of the whole memory.
    pub(crate) memory_bytes: u64,
    pub(crate) chunks: Vec<Arc<Chunk>>,
    /// By page, each once.
    pub(crate) places: Vec<Place>,
}

impl Pages {
    /// Returns the number of pages that differ.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Bytes held for them.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes().len()).sum()
    }

    /// Bytes held for pages that were not compressed, and may be.
    pub(crate) fn unpacked_bytes(&self) -> usize {
        self.chunks.iter().filter(|chunk| matches!(***chunk, Chunk::Raw(_))).map(|chunk| chunk.bytes().len()).sum()
    }

    /// Returns true if every chunk was compressed, or cannot be.
    pub(crate) fn is_packed(&self) -> bool {
        self.chunks.iter().all(|chunk| !matches!(**chunk, Chunk::Raw(_)))
    }

    /// Returns true if so much of what is held has been overwritten that it is better to start afresh.
    pub(crate) fn is_stale(&self) -> bool {
        let held: usize = self.chunks.iter().map(|chunk| chunk.pages()).sum();
        held > self.places.len().saturating_mul(2).saturating_add(CHUNK_PAGES)
    }

    /// The same, with every chunk compressed. Takes about 2 ms a MiB of processor time.
    pub(crate) fn pack(&self) -> Pages {
        let packed = on_threads(&self.chunks, |chunk| chunk.pack().map_or_else(|| chunk.clone(), Arc::new));
        Pages { memory_bytes: self.memory_bytes, chunks: packed, places: self.places.clone() }
    }
}

/// Maps chunks on a few threads when there are many.
fn on_threads<'a, T: Send>(chunks: &'a [Arc<Chunk>], work: impl Fn(&'a Arc<Chunk>) -> T + Sync) -> Vec<T> {
    let share = chunks.len().div_ceil(cores().min(THREADS_MAX)).max(2);
    let (own, others) = chunks.split_at(share.min(chunks.len()));
    thread::scope(|scope| {
        let work = &work;
        let spawned: Vec<_> = others
            .chunks(share)
            .map(|part| (part, scope.spawn(move || part.iter().map(work).collect::<Vec<T>>())))
            .collect();
        let mut all: Vec<T> = own.iter().map(work).collect();
        for (part, thread) in spawned {
            // What a thread could not do is done here; zstd does not panic.
            all.extend(thread.join().unwrap_or_else(|_| part.iter().map(work).collect()));
        }
        all
    })
}

/// Gathers the pages of a memory that differ from its image, in rising order.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    image: &'a Image,
    /// Pages that need not be copied again if they are still the same.
    earlier: Option<&'a Pages>,
    /// Chunks of `earlier` that are used, by their number there.
    adopted: HashMap<u32, u32>,
    pages: Pages,
    /// Number of the chunk that is being filled.
    open: Option<u32>,
    buffer: Vec<u8>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(image: &'a Image, earlier: Option<&'a Pages>) -> Collector<'a> {
        let pages = Pages::default();
        let earlier = earlier.filter(|earlier| !earlier.is_stale());
        Collector { image, earlier, adopted: HashMap::new(), pages, open: None, buffer: Vec::new() }
    }

    /// Takes in a page that may differ.
    pub(crate) fn page(&mut self, page: u32, bytes: &[u8]) {
        let image = self.image.page(page);
        if bytes == image.as_deref().unwrap_or(&ZEROS) {
            return;
        }
        let fingerprint = fingerprint(bytes);
        let at = if bytes == ZEROS {
            None
        } else {
            Some(self.adopt(page, fingerprint).unwrap_or_else(|| self.copy(bytes, image.as_deref())))
        };
        self.pages.places.push(Place { page, fingerprint, at });
    }

    fn adopt(&mut self, page: u32, fingerprint: u128) -> Option<(u32, u32)> {
        let earlier = self.earlier?;
        let place = earlier.places.binary_search_by_key(&page, |place| place.page).ok()?;
        let place = earlier.places.get(place).filter(|place| place.fingerprint == fingerprint)?;
        let (chunk, slot) = place.at?;
        let held = earlier.chunks.get(chunk as usize)?;
        let pages = &mut self.pages;
        let adopted = *self.adopted.entry(chunk).or_insert_with(|| {
            pages.chunks.push(held.clone());
            number(pages.chunks.len().saturating_sub(1))
        });
        Some((adopted, slot))
    }

    fn copy(&mut self, bytes: &[u8], image: Option<&[u8]>) -> (u32, u32) {
        if self.buffer.len() >= CHUNK_PAGES * PAGE_BYTES {
            self.close();
        }
        let open = *self.open.get_or_insert_with(|| {
            self.pages.chunks.push(Arc::new(Chunk::Raw(Vec::new())));
            self.buffer.reserve(CHUNK_PAGES * PAGE_BYTES);
            number(self.pages.chunks.len().saturating_sub(1))
        });
        let begin = self.buffer.len();
        let slot = number(begin / PAGE_BYTES);
        self.buffer.extend_from_slice(bytes);
        if let Some(image) = image {
            toggle(&mut self.buffer[begin..], image);
        }
        (open, slot)
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.buffer.shrink_to_fit();
            self.pages.chunks[open as usize] = Arc::new(Chunk::Raw(std::mem::take(&mut self.buffer)));
        }
    }

    /// The pages of a memory of this size.
    pub(crate) fn finish(mut self, memory_bytes: u64) -> Pages {
        self.close();
        self.pages.places.shrink_to_fit();
        Pages { memory_bytes, ..self.pages }
    }
}

/// A memory of 4 GiB has a million pages: every number of one fits.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_chunk_holds_no_more_memory_than_it_needs() {
        let raw = Chunk::Raw(vec![7; CHUNK_PAGES * PAGE_BYTES]);
        let Some(Chunk::Packed { bytes, .. }) = raw.pack() else { panic!("it can be packed") };
        assert!(bytes.capacity() < PAGE_BYTES, "{} bytes for {}", bytes.capacity(), bytes.len());
    }
}
