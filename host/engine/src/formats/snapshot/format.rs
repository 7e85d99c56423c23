//! Snapshots as bytes.
//!
//! ```text
//! magic      8 bytes  "cellar" 0x1A 's'
//! version    u32      everything is little-endian
//! head       u32      length of the head
//! head       postcard what [`Head`] says: the session, its kernels, which pages each chunk holds
//! chunks     zstd     one frame each, or plain where a frame would be no smaller; each page by exclusive or with the
//!                     page of the guest's image
//! checksum   16 bytes XXH3-128 of everything before
//! ```
//!
//! The checksum finds damage, not malice: whoever can write a snapshot can write any. A reader trusts nothing it says.

use std::{
    io::{self, Read},
    sync::Arc,
};

use cellar_core::cell::Language;
use cellar_results::artifacts::ArtifactKeys;
use serde::{Deserialize, Serialize};

use super::{
    KernelImage, KernelState, Snapshot, SnapshotError,
    pages::{CHUNK_PAGES, Chunk, PAGE_BYTES, Pages, Place, WASM_PAGE_BYTES, fingerprint},
};
use crate::formats::{
    header::{FileKind, PREFIX_BYTES, split_head},
    remembered::Remembered,
    stranger::bounded,
};

/// The version changes with every change to what is below.
pub(crate) const SNAPSHOT: FileKind = FileKind { name: "snapshot", letter: b's', version: 7 };
const CHECKSUM_BYTES: usize = 16;
/// Largest memory that a guest can address.
const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Kernels of a session: one a language.
const KERNELS_MAX: usize = 8;
/// Pages of the largest memory, and pages that are held for it, of which more than half may be overwritten.
const PAGES_MAX: usize = MEMORY_BYTES_MAX as usize / PAGE_BYTES;
const HELD_PAGES_MAX: usize = 2 * PAGES_MAX + CHUNK_PAGES;
/// Largest head: notes, open files, calls and cells, and five bytes for each page that is held.
const HEAD_BYTES_MAX: usize = 64 << 20;
/// Largest snapshot: the largest memory of every language, and some.
pub(crate) const BYTES_MAX: u64 = 16 << 30;
/// A page of a chunk that has been overwritten since.
const DEAD: u32 = u32::MAX;

/// Head of a snapshot, before the chunks.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    session: String,
    /// Nanoseconds since the Unix epoch.
    taken_at: u64,
    next_cell: u32,
    disk_bytes: u64,
    disk_files: u64,
    is_fork: bool,
    remembered: Remembered,
    artifacts: Option<ArtifactKeys>,
    #[serde(deserialize_with = "bounded::<_, _, KERNELS_MAX>")]
    kernels: Vec<KernelHead>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KernelHead {
    state: KernelState,
    page_bytes: u32,
    memory_bytes: u64,
    #[serde(deserialize_with = "bounded::<_, _, HELD_PAGES_MAX>")]
    chunks: Vec<ChunkHead>,
    /// Pages that are all zeros now.
    #[serde(deserialize_with = "bounded::<_, _, PAGES_MAX>")]
    zeros: Vec<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ChunkHead {
    bytes: u32,
    is_packed: bool,
    /// Number of each page in the memory, or [`DEAD`].
    #[serde(deserialize_with = "bounded::<_, _, CHUNK_PAGES>")]
    pages: Vec<u32>,
}

/// Writes a snapshot, compressing what is not.
pub(super) fn encode(snapshot: &Snapshot) -> Vec<u8> {
    let packed: Vec<Pages> = snapshot.kernels.iter().map(|kernel| kernel.pages.pack()).collect();
    let kernels = snapshot.kernels.iter().zip(&packed).map(|(kernel, pages)| kernel_head(kernel, pages)).collect();
    let head = Head {
        session: snapshot.session.clone(),
        taken_at: snapshot.taken_at_nanos,
        next_cell: snapshot.next_cell,
        disk_bytes: snapshot.disk_usage.0,
        disk_files: snapshot.disk_usage.1,
        is_fork: snapshot.is_fork,
        remembered: snapshot.remembered.clone(),
        artifacts: snapshot.artifacts.clone(),
        kernels,
    };
    let mut bytes = SNAPSHOT.begin(&head);
    bytes.reserve_exact(packed.iter().map(Pages::kept_bytes).sum::<usize>().saturating_add(CHECKSUM_BYTES));
    packed.iter().flat_map(|pages| &pages.chunks).for_each(|chunk| bytes.extend(chunk.bytes()));
    let checksum = fingerprint(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

fn kernel_head(kernel: &KernelImage, pages: &Pages) -> KernelHead {
    let mut chunks: Vec<ChunkHead> = pages
        .chunks
        .iter()
        .map(|chunk| ChunkHead {
            bytes: u32::try_from(chunk.bytes().len()).unwrap_or(u32::MAX),
            is_packed: matches!(&**chunk, Chunk::Packed { .. }),
            pages: vec![DEAD; chunk.pages()],
        })
        .collect();
    let mut zeros = Vec::new();
    for place in &pages.places {
        match place.at {
            Some((chunk, slot)) => chunks[chunk as usize].pages[slot as usize] = place.page,
            None => zeros.push(place.page),
        }
    }
    KernelHead {
        state: kernel.state.clone(),
        page_bytes: PAGE_BYTES as u32,
        memory_bytes: pages.memory_bytes,
        chunks,
        zeros,
    }
}

/// The chunks of a snapshot that [`encode`] wrote, in their order.
pub(super) fn chunks(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let head_bytes = check_prefix(bytes).ok()?;
    let (head, mut rest) = split_head::<Head>(bytes, head_bytes)?;
    let lengths = head.kernels.iter().flat_map(|kernel| &kernel.chunks).map(|chunk| chunk.bytes as usize);
    let mut chunks = Vec::new();
    for length in lengths {
        let (chunk, left) = rest.split_at_checked(length)?;
        chunks.push(chunk);
        rest = left;
    }
    Some(chunks)
}

/// Reads what [`encode`] wrote. Allocates no more than a small multiple of what it is given.
pub(super) fn decode(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    let head_bytes = check_prefix(bytes)?;
    let truncated = || SnapshotError::Truncated { bytes: bytes.len() as u64 };
    let body = bytes.len().checked_sub(CHECKSUM_BYTES).filter(|body| *body >= PREFIX_BYTES).ok_or_else(truncated)?;
    let (body, checksum) = bytes.split_at(body);
    if fingerprint(body).to_le_bytes() != checksum {
        // A file that ends early cannot tell; its head says how long it should have been.
        let is_short = split_head(body, head_bytes).is_none_or(|(head, rest)| rest.len() as u64 != chunk_bytes(&head));
        return Err(if is_short { truncated() } else { corrupt("its checksum does not match") });
    }
    let (head, mut rest) = split_head::<Head>(body, head_bytes).ok_or_else(|| corrupt("its head cannot be read"))?;
    let mut kernels: Vec<KernelImage> = Vec::new();
    for kernel in head.kernels {
        if kernels.iter().any(|earlier| earlier.state.language == kernel.state.language) {
            return Err(corrupt("it has two kernels of one language"));
        }
        let (image, left) = kernel_image(kernel, rest).map_err(corrupt)?;
        kernels.push(image);
        rest = left;
    }
    if !rest.is_empty() {
        return Err(corrupt("there is more than its head says"));
    }
    Ok(Snapshot {
        session: head.session,
        taken_at_nanos: head.taken_at,
        next_cell: head.next_cell.max(1),
        disk_usage: (head.disk_bytes, head.disk_files),
        is_fork: head.is_fork,
        remembered: head.remembered.bounded(),
        artifacts: head.artifacts.map(ArtifactKeys::bounded),
        kernels: kernels.into_iter().map(Arc::new).collect(),
    })
}

/// Reads all of a snapshot, and of anything else its first bytes.
pub(super) fn read(mut from: impl Read) -> io::Result<Result<Snapshot, SnapshotError>> {
    let mut bytes = Vec::new();
    from.by_ref().take(PREFIX_BYTES as u64).read_to_end(&mut bytes)?;
    if let Err(error) = check_prefix(&bytes) {
        return Ok(Err(error));
    }
    from.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(decode(&bytes))
}

/// The languages that the head of a snapshot names.
pub(super) fn languages(mut from: impl Read) -> Result<Vec<Language>, SnapshotError> {
    let truncated = |_| SnapshotError::Truncated { bytes: 0 };
    let mut prefix = [0; PREFIX_BYTES];
    from.read_exact(&mut prefix).map_err(truncated)?;
    let head_bytes = check_prefix(&prefix)?;
    let mut head = Vec::new();
    from.take(head_bytes as u64).read_to_end(&mut head).map_err(truncated)?;
    let head: Head = postcard::from_bytes(&head).map_err(|error| corrupt(error.to_string()))?;
    Ok(head.kernels.iter().filter_map(|kernel| kernel.state.language()).collect())
}

/// Checks magic and version; returns the length of the head.
fn check_prefix(bytes: &[u8]) -> Result<usize, SnapshotError> {
    let head_bytes = SNAPSHOT.head_bytes(bytes)?.ok_or(SnapshotError::Truncated { bytes: bytes.len() as u64 })?;
    match head_bytes > HEAD_BYTES_MAX {
        true => Err(corrupt(format!("its head has {head_bytes} bytes"))),
        false => Ok(head_bytes),
    }
}

fn corrupt(why: impl Into<String>) -> SnapshotError {
    SNAPSHOT.corrupt(why).into()
}

fn chunk_bytes(head: &Head) -> u64 {
    head.kernels.iter().flat_map(|kernel| &kernel.chunks).map(|chunk| u64::from(chunk.bytes)).sum()
}

fn kernel_image(head: KernelHead, mut rest: &[u8]) -> Result<(KernelImage, &[u8]), String> {
    if head.page_bytes as usize != PAGE_BYTES {
        return Err(format!("its pages have {} bytes, here they have {PAGE_BYTES}", head.page_bytes));
    }
    let memory_bytes = head.memory_bytes;
    if memory_bytes > MEMORY_BYTES_MAX || !memory_bytes.is_multiple_of(WASM_PAGE_BYTES) {
        return Err(format!("it has a memory of {memory_bytes} bytes"));
    }
    // As they are told by whoever writes a snapshot. It is also what makes a file that is lost cheap to find.
    if !head.state.files.is_sorted_by(|before, after| before.descriptor < after.descriptor) {
        return Err("its open files are out of order".to_owned());
    }
    let held = head.chunks.iter().map(|chunk| chunk.pages.len()).sum::<usize>();
    let live = head.chunks.iter().flat_map(|chunk| &chunk.pages).filter(|page| **page != DEAD).count();
    let all = live.saturating_add(head.zeros.len());
    if held > HELD_PAGES_MAX || all > PAGES_MAX {
        return Err(format!("it holds {held} pages, and says that {} are zeros", head.zeros.len()));
    }
    let mut chunks = Vec::new();
    let mut places = Vec::with_capacity(all);
    for (number, chunk) in (0..).zip(head.chunks) {
        let pages = chunk.pages.len();
        if pages == 0 || pages > CHUNK_PAGES {
            return Err(format!("it has a chunk of {pages} pages"));
        }
        let (bytes, left) = rest.split_at_checked(chunk.bytes as usize).ok_or("a chunk is missing")?;
        rest = left;
        let slots = (0..).zip(&chunk.pages).filter(|(_, page)| **page != DEAD);
        places.extend(slots.map(|(slot, page)| Place { page: *page, fingerprint: 0, at: Some((number, slot)) }));
        chunks.push(Arc::new(match chunk.is_packed {
            true => Chunk::Packed { bytes: bytes.to_vec(), pages },
            false if Some(bytes.len()) == pages.checked_mul(PAGE_BYTES) => Chunk::Dense(bytes.to_vec()),
            false => return Err(format!("{pages} pages have {} bytes", bytes.len())),
        }));
    }
    places.extend(head.zeros.iter().map(|page| Place { page: *page, fingerprint: 0, at: None }));
    places.sort_unstable_by_key(|place| place.page);
    if places.windows(2).any(|pair| pair[0].page == pair[1].page) {
        return Err("it has a page twice".to_owned());
    }
    if places
        .last()
        .is_some_and(|last| u64::from(last.page).saturating_add(1).saturating_mul(PAGE_BYTES as u64) > memory_bytes)
    {
        return Err("it has a page beyond its memory".to_owned());
    }
    Ok((KernelImage { state: head.state, pages: Pages { memory_bytes, chunks, places } }, rest))
}
