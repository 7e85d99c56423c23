//! Tests of reading snapshots, snapshots that were changed, and bytes that never were any.

use std::sync::Arc;

use cellar_results::artifacts::ArtifactKeys;
use proptest::prelude::*;

use super::{
    CellState, KernelImage, KernelState, SNAPSHOT, Snapshot, SnapshotError,
    image::Image,
    pages::{CHUNK_PAGES, Collector, PAGE_BYTES, Pages, WASM_PAGE_BYTES},
};
use crate::formats::header::FormatError;
use crate::formats::remembered::Remembered;

/// A memory of so many pages, each filled with one byte.
fn pages(contents: &[u8], image: &Image, earlier: Option<&Pages>) -> Pages {
    let size = ((contents.len() * PAGE_BYTES) as u64).next_multiple_of(WASM_PAGE_BYTES);
    let mut collector = Collector::new(image, earlier);
    for (number, content) in (0..).zip(contents) {
        collector.page(number, &[*content; PAGE_BYTES]);
    }
    collector.finish(size)
}

fn image(contents: &[u8]) -> Arc<Image> {
    Arc::new(Image::of_bytes(contents.iter().flat_map(|content| [*content; PAGE_BYTES]).collect()))
}

/// The memory that comes of an image and what differs from it.
fn memory(image: &Arc<Image>, pages: &Pages, count: usize) -> Vec<u8> {
    let mut memory: Vec<u8> = (0..count).map(|page| image.page(page as u32).map_or(0, |page| page[7])).collect();
    let mut runs = pages.runs(image).expect("room to unpack in");
    while let Some((first, bytes)) = runs.next().expect("whole chunks") {
        for (page, bytes) in (first as usize..).zip(bytes.chunks(PAGE_BYTES)) {
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "page {page}");
            memory[page] = bytes[0];
        }
    }
    memory
}

fn state() -> KernelState {
    KernelState {
        language: "probe".to_owned(),
        guest: "guest".to_owned(),
        world: "0.0.0".to_owned(),
        wall_clock: 1,
        monotonic_clock: 2,
        cpu_time: 3,
        memory_peak: 4,
        wake_at: Some(5),
        next_call: 6,
        calls: vec![(1, 2)],
        cells: vec![CellState { id: 2, time_left: 7, output_left: Some(8), fuel_left: None, depth: 1 }],
        abandoned: vec![9],
        deepest: 1,
        gated: vec![1],
        configuration: 10,
        files: Vec::new(),
        fetches: Vec::new(),
        origins: Vec::new(),
    }
}

fn snapshot(pages: Pages) -> Snapshot {
    let kernels = vec![Arc::new(KernelImage { state: state(), pages })];
    let mut remembered = Remembered::default();
    remembered.remember("a".to_owned()).expect("room");
    let disk_usage = (4, 5);
    Snapshot {
        session: "s".to_owned(),
        taken_at_nanos: 1,
        next_cell: 3,
        disk_usage,
        is_fork: false,
        remembered,
        artifacts: Some(ArtifactKeys::default()),
        kernels,
    }
}

#[test]
fn what_is_written_is_read() {
    let (before, after) = ([1, 2, 0, 4], [1, 3, 5, 0, 0, 6]);
    let image = image(&before);
    let original = snapshot(pages(&after, &image, None));
    let read = Snapshot::from_bytes(&original.to_bytes()).expect("a snapshot");
    assert_eq!((read.session(), read.next_cell, read.disk_usage), ("s", 3, (4, 5)));
    assert_eq!(read.artifacts, original.artifacts);
    let kernel = &read.kernels[0];
    assert_eq!(kernel.state, state());
    assert_eq!(kernel.pages.len(), 4);
    assert_eq!(memory(&image, &kernel.pages, after.len()), after);
}

#[test]
fn errors_name_what_is_wrong() {
    let bytes = snapshot(pages(&[1; 300], &image(&[]), None)).to_bytes();
    let error = |bytes: &[u8]| Snapshot::from_bytes(bytes).expect_err("an error");
    assert_eq!(error(b"PK\x03\x04 something else"), FormatError::Other(SNAPSHOT).into());
    assert_eq!(error(b""), SnapshotError::Truncated { bytes: 0 });
    let short = &bytes[..bytes.len() - 1];
    assert_eq!(error(short), SnapshotError::Truncated { bytes: short.len() as u64 });
    let mut newer = bytes.clone();
    newer[8] = 200;
    assert_eq!(error(&newer), FormatError::Version { kind: SNAPSHOT, found: 200 }.into());
    let mut damaged = bytes.clone();
    let last = damaged.len() - 20;
    damaged[last] ^= 1;
    assert_eq!(error(&damaged), SNAPSHOT.corrupt("its checksum does not match").into());
    let longer = [bytes.as_slice(), b"x"].concat();
    assert!(matches!(
        error(&longer),
        SnapshotError::File(FormatError::Corrupt { .. }) | SnapshotError::Truncated { .. }
    ));
}

/// Puts the right checksum under bytes, as somebody would who means harm.
fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let checksum = super::pages::fingerprint(&body);
    body.extend(checksum.to_le_bytes());
    body
}

#[test]
fn what_hardly_differs_from_its_image_takes_hardly_a_byte() {
    // Nothing that compresses by itself.
    let noise: Vec<u8> = (0_u64..)
        .flat_map(|word| super::pages::fingerprint(&word.to_le_bytes()).to_le_bytes())
        .take(100 * PAGE_BYTES)
        .collect();
    let image = Arc::new(Image::of_bytes(noise.clone()));
    let mut collector = Collector::new(&image, None);
    for (number, page) in (0..).zip(noise.chunks(PAGE_BYTES)) {
        let mut page = page.to_vec();
        page[number as usize * 8] += 1;
        collector.page(number, &page);
    }
    let bytes = snapshot(collector.finish((112 * PAGE_BYTES) as u64)).to_bytes();
    assert!(bytes.len() < 4_000, "{}", bytes.len());
    let read = Snapshot::from_bytes(&bytes).expect("a snapshot");
    let mut runs = read.kernels[0].pages.runs(&image).expect("room to unpack in");
    let (first, restored) = runs.next().expect("a whole chunk").expect("pages");
    assert_eq!((first, restored.len()), (0, noise.len()));
    let changed = restored.iter().zip(&noise).filter(|(restored, original)| restored != original);
    assert_eq!(changed.count(), 100);
}

proptest! {
    #[test]
    fn any_memory_survives(
        before in prop::collection::vec(0_u8..4, 0..20),
        first in prop::collection::vec(0_u8..4, 20..600),
        changes in prop::collection::vec((0_usize..600, 0_u8..4), 0..20),
    ) {
        let image = image(&before);
        let earlier = pages(&first, &image, None);
        let mut second = first.clone();
        for (page, content) in changes {
            if let Some(page) = second.get_mut(page) {
                *page = content;
            }
        }
        let later = pages(&second, &image, Some(&earlier));
        prop_assert_eq!(&memory(&image, &later, second.len()), &second);
        prop_assert_eq!(&memory(&image, &later.pack(), second.len()), &second);
        prop_assert!(later.len() <= second.len());
        let read = Snapshot::from_bytes(&snapshot(later).to_bytes()).expect("a snapshot");
        prop_assert_eq!(&memory(&image, &read.kernels[0].pages, second.len()), &second);
    }

    #[test]
    fn a_changed_byte_is_noticed(place in any::<prop::sample::Index>(), change in 1_u8..) {
        let mut bytes = snapshot(pages(&[1, 2, 3, 0, 5], &image(&[]), None)).to_bytes();
        let place = place.index(bytes.len());
        bytes[place] ^= change;
        prop_assert!(Snapshot::from_bytes(&bytes).is_err());
    }

    #[test]
    fn forged_snapshots_are_refused_or_read(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        length in any::<prop::sample::Index>(),
    ) {
        let bytes = snapshot(pages(&[1, 2, 3, 0, 5], &image(&[]), None)).to_bytes();
        let mut body = bytes[..bytes.len() - 16].to_vec();
        for (place, byte) in edits {
            let place = 8 + place.index(body.len() - 8);
            body[place] = byte;
        }
        body.truncate(16 + length.index(body.len() - 15));
        for bytes in [sealed(body.clone()), body] {
            if let Ok(read) = Snapshot::from_bytes(&bytes) {
                for kernel in &read.kernels {
                    let end = (kernel.pages.memory_bytes / PAGE_BYTES as u64) as usize;
                    let image = image(&[7; 3]);
                    let mut runs = kernel.pages.runs(&image).expect("room to unpack in");
                    while let Ok(Some((page, bytes))) = runs.next() {
                        prop_assert!(bytes.len() <= CHUNK_PAGES * PAGE_BYTES && bytes.len().is_multiple_of(PAGE_BYTES));
                        prop_assert!(page as usize + bytes.len() / PAGE_BYTES <= end);
                    }
                }
            }
        }
    }

    #[test]
    fn noise_is_no_snapshot(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Snapshot::from_bytes(&sealed([b"cellar\x1as\x02\0\0\0".as_slice(), &noise].concat())).is_err());
    }
}
