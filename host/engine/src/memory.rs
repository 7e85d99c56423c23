//! A kernel's linear memory as its host sees it: read by views of it, written in place.

use std::{fs::File, os::unix::fs::FileExt};

use wasmtime::{
    Store,
    component::{Instance, TypedFunc, WasmList},
};

use crate::{
    bindings,
    snapshot::{Collector, Image, PAGE_BYTES, Pages, Place},
    store::StoreData,
};

/// Bytes looked at in one crossing. Below what the host lets a guest hand over at once.
const WINDOW_BYTES: u64 = 64 << 20;
/// Bytes of zeros written in one crossing.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Reads memory from the start, a window at a time.
struct Reader {
    read: TypedFunc<(u64, u64), (WasmList<u8>,)>,
    size: u64,
}

impl Reader {
    async fn new(
        store: &mut Store<StoreData>,
        instance: &Instance,
        exports: &bindings::Kernel,
    ) -> wasmtime::Result<Reader> {
        let read = instance.get_typed_func(&mut *store, "memory-read")?;
        let size = exports.call_memory_size(store).await?;
        Ok(Reader { read, size })
    }

    /// Hands every window to `look`, with its offset.
    async fn each(&self, store: &mut Store<StoreData>, mut look: impl FnMut(u64, &[u8])) -> wasmtime::Result<()> {
        let mut offset = 0;
        while offset < self.size {
            let length = WINDOW_BYTES.min(self.size - offset);
            let (list,) = self.read.call_async(&mut *store, (offset, length)).await?;
            let window = list.as_le_slice(&*store);
            if window.len() as u64 != length {
                wasmtime::bail!("memory-read gave {} bytes instead of {length}", window.len());
            }
            look(offset, window);
            offset += length;
        }
        Ok(())
    }
}

/// Looks at every page of a new kernel.
pub(crate) async fn image(
    store: &mut Store<StoreData>,
    instance: &Instance,
    exports: &bindings::Kernel,
) -> wasmtime::Result<Image> {
    let reader = Reader::new(store, instance, exports).await?;
    let mut image = Image::new();
    reader.each(store, |_, window| image.extend(window)).await?;
    Ok(image)
}

/// Copies the pages that differ from the image, but for those that are as they were `earlier`.
pub(crate) async fn capture(
    store: &mut Store<StoreData>,
    instance: &Instance,
    exports: &bindings::Kernel,
    image: &Image,
    earlier: Option<&Pages>,
) -> wasmtime::Result<Pages> {
    let reader = Reader::new(store, instance, exports).await?;
    let mut collector = Collector::new(image, earlier, reader.size);
    let pagemap = File::open("/proc/self/pagemap").ok();
    reader
        .each(store, |offset, window| {
            let written = pagemap.as_ref().and_then(|pagemap| Written::of(pagemap, window));
            // A guest of 4 GiB has a million pages.
            let first = u32::try_from(offset / PAGE_BYTES as u64).unwrap_or(u32::MAX);
            for (index, page) in (0..).zip(window.chunks(PAGE_BYTES)) {
                if written.as_ref().is_none_or(|written| written.is(index as usize)) {
                    collector.page(first + index, page);
                }
            }
        })
        .await?;
    Ok(collector.finish())
}

/// Makes the memory of a new kernel what was captured.
pub(crate) async fn restore(
    store: &mut Store<StoreData>,
    exports: &bindings::Kernel,
    pages: &Pages,
) -> wasmtime::Result<()> {
    if !exports.call_memory_grow(&mut *store, pages.memory_bytes).await? {
        wasmtime::bail!("memory cannot grow to {} bytes", pages.memory_bytes);
    }
    let chunks = pages.unpack().map_err(|error| wasmtime::format_err!("the snapshot is damaged: {error}"))?;
    let mut places = pages.places.as_slice();
    while let Some(first) = places.first() {
        // Pages that lie side by side, here and there, are written as one.
        let follows = |count: usize, place: &Place| {
            let at = first.at.map(|(chunk, slot)| (chunk, slot + count as u32));
            place.page == first.page + count as u32 && place.at == at
        };
        let most = if first.at.is_some() { usize::MAX } else { ZEROS.len() / PAGE_BYTES };
        let count = places.iter().take(most).enumerate().take_while(|(count, place)| follows(*count, place)).count();
        let bytes = match first.at {
            Some((chunk, slot)) => {
                let begin = slot as usize * PAGE_BYTES;
                chunks.get(chunk as usize).and_then(|chunk| chunk.get(begin..begin + count * PAGE_BYTES))
            }
            None => ZEROS.get(..count * PAGE_BYTES),
        };
        let bytes = bytes.ok_or_else(|| wasmtime::format_err!("the snapshot is damaged: a page is missing"))?;
        exports.call_memory_target(&mut *store, u64::from(first.page) * PAGE_BYTES as u64).await?;
        exports.call_memory_write(&mut *store, bytes).await?;
        places = &places[count..];
    }
    Ok(())
}

/// Which pages of a window were written since the image was mapped, as far as the host's kernel tells. It may say so
/// of more, never of fewer.
struct Written(Vec<u8>);

impl Written {
    /// Bytes that `/proc/self/pagemap` has about a page.
    const ENTRY_BYTES: usize = 8;
    /// The page is in memory.
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    /// The page is that of the mapped file, not a private copy.
    const FILE: u64 = 1 << 61;

    /// `None` when nothing can be told: then every page is looked at.
    fn of(pagemap: &File, window: &[u8]) -> Option<Written> {
        let address = window.as_ptr() as usize;
        if rustix::param::page_size() != PAGE_BYTES || !address.is_multiple_of(PAGE_BYTES) {
            return None;
        }
        let mut entries = vec![0; window.len() / PAGE_BYTES * Self::ENTRY_BYTES];
        let offset = (address / PAGE_BYTES * Self::ENTRY_BYTES) as u64;
        pagemap.read_exact_at(&mut entries, offset).ok()?;
        Some(Written(entries))
    }

    fn is(&self, index: usize) -> bool {
        let entry = self.0.as_chunks().0.get(index).map_or(u64::MAX, |entry| u64::from_ne_bytes(*entry));
        entry & Self::SWAPPED != 0 || (entry & Self::PRESENT != 0 && entry & Self::FILE == 0)
    }
}
