//! A kernel's linear memory as its host sees it: read by views of it, written in place.

use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

use rustix::mm::{Advice, madvise};
use wasmtime::{
    Store,
    component::{Instance, TypedFunc, WasmList},
};

use crate::{
    formats::snapshot::{Collector, Image, PAGE_BYTES, Pages},
    kernel::{
        border,
        scheduling::{Beat, Beats, Room},
        state::StoreData,
    },
};

/// Bytes looked at in one crossing. Below what the host lets a guest hand over at once.
const WINDOW_BYTES: u64 = 64 << 20;
/// Pages side by side from which on they are made ready together before they are written.
const READY_PAGES_MIN: usize = 16;

/// A live kernel's store, and the ways into its guest.
pub(crate) struct Live {
    pub(crate) store: Store<StoreData>,
    /// Finds exports whose results are not to be copied.
    pub(crate) instance: Instance,
    pub(crate) exports: border::Kernel,
    /// Permit to be awake; released after the store.
    pub(crate) _room: Room,
    /// Safepoint byte of the guest, by which it gives way, if it has safepoints.
    pub(crate) beat: Option<Arc<Beat>>,
}

impl Live {
    /// A part of memory, as it is now.
    async fn view(&mut self, offset: u64, length: u64) -> wasmtime::Result<&[u8]> {
        let store = &mut self.store;
        let read: TypedFunc<(u64, u64), (WasmList<u8>,)> = self.instance.get_typed_func(&mut *store, "memory-read")?;
        let (list,) = read.call_async(&mut *store, (offset, length)).await?;
        let view = list.as_le_slice(&*store);
        if view.len() as u64 != length {
            wasmtime::bail!("memory-read gave {} bytes instead of {length}", view.len());
        }
        Ok(view)
    }

    /// Returns the safepoint byte of a new guest, by which it gives way.
    pub(crate) async fn beat(&mut self, beats: &Arc<Beats>) -> wasmtime::Result<Beat> {
        let address = self.exports.call_safepoint(&mut self.store).await?;
        let byte = self.view(address, 1).await?.first();
        byte.map(|byte| beats.beat(byte)).ok_or_else(|| wasmtime::format_err!("a byte is missing"))
    }

    /// Hands every window of memory to `look`, with its offset. Returns the size of the memory.
    async fn windows(&mut self, mut look: impl FnMut(u64, &[u8])) -> wasmtime::Result<u64> {
        let size = self.exports.call_memory_size(&mut self.store).await?;
        let mut offset = 0;
        while offset < size {
            let length = WINDOW_BYTES.min(size.saturating_sub(offset));
            look(offset, self.view(offset, length).await?);
            offset = offset.saturating_add(length);
        }
        Ok(size)
    }

    /// The pages that may have been written since the kernel was instantiated, in rising order.
    pub(crate) async fn written(&mut self) -> wasmtime::Result<Vec<u32>> {
        let pagemap = File::open("/proc/self/pagemap").ok();
        let mut written = Vec::new();
        self.windows(|offset, window| {
            let map = pagemap.as_ref().and_then(|pagemap| PageMap::of(pagemap, window));
            let pages = (0..window.len() / PAGE_BYTES).filter(|page| map.as_ref().is_none_or(|map| map.written(*page)));
            written.extend(pages.map(|page| page_number(offset.saturating_add(address_of(page)))));
        })
        .await?;
        Ok(written)
    }

    /// Hands some pages to `look`, which are in rising order; one beyond the memory is empty. Returns the size of the
    /// memory.
    async fn pages(&mut self, pages: &[u32], mut look: impl FnMut(u32, &[u8])) -> wasmtime::Result<u64> {
        let mut left = pages;
        let size = self
            .windows(|offset, window| {
                while let Some((page, rest)) = left.split_first() {
                    let begin = address_of(*page as usize).saturating_sub(offset);
                    let begin = usize::try_from(begin).unwrap_or(usize::MAX);
                    let Some(bytes) = window.get(begin..begin.saturating_add(PAGE_BYTES)) else { break };
                    look(*page, bytes);
                    left = rest;
                }
            })
            .await?;
        left.iter().for_each(|page| look(*page, &[]));
        Ok(size)
    }

    /// Copies those of the pages that differ from the image, but for what is as it was `earlier`.
    pub(crate) async fn capture(
        &mut self,
        image: &Image,
        earlier: Option<&Pages>,
        pages: &[u32],
    ) -> wasmtime::Result<Pages> {
        let mut collector = Collector::new(image, earlier);
        let size = self.pages(pages, |page, bytes| collector.page(page, bytes)).await?;
        Ok(collector.finish(size))
    }

    /// Makes pages ready that are about to be written, where many lie side by side.
    async fn make_ready(&mut self, pages: &Pages) -> wasmtime::Result<()> {
        let runs = pages.places.chunk_by(|one, next| one.page.checked_add(1) == Some(next.page));
        let windows = runs.flat_map(|run| run.chunks(WINDOW_BYTES as usize / PAGE_BYTES));
        for window in windows.filter(|window| window.len() >= READY_PAGES_MIN) {
            let Some(first) = window.first() else { continue };
            let (offset, length) = (address_of(first.page as usize), address_of(window.len()));
            populate(self.view(offset, length).await?);
        }
        Ok(())
    }

    /// Makes the memory of a new kernel what was captured.
    pub(crate) async fn restore(&mut self, pages: &Pages, image: &Arc<Image>) -> wasmtime::Result<()> {
        let (store, exports) = (&mut self.store, &self.exports);
        if !exports.call_memory_grow(&mut *store, pages.memory_bytes).await? {
            wasmtime::bail!("memory cannot grow to {} bytes", pages.memory_bytes);
        }
        self.make_ready(pages).await?;
        let (store, exports) = (&mut self.store, &self.exports);
        let mut runs = pages.runs(image).map_err(damaged)?;
        while let Some((page, bytes)) = runs.next().map_err(damaged)? {
            exports.call_memory_target(&mut *store, address_of(page as usize)).await?;
            exports.call_memory_write(&mut *store, bytes).await?;
        }
        Ok(())
    }
}

/// Has the operating system make pages ready that are about to be written, all at once. Where it does not, it makes each ready when it
/// is written.
#[expect(unsafe_code, reason = "advice on memory is unsafe where it may change what it holds; see the SAFETY note")]
fn populate(window: &[u8]) {
    // SAFETY: the range is that of a slice, so it is mapped, and this advice changes none of its bytes.
    let _ = unsafe { madvise(window.as_ptr().cast_mut().cast(), window.len(), Advice::LinuxPopulateWrite) };
}

fn damaged(reason: String) -> wasmtime::Error {
    wasmtime::format_err!("the snapshot is damaged: {reason}")
}

/// Returns the offset of a page, in bytes.
fn address_of(page: usize) -> u64 {
    page.saturating_mul(PAGE_BYTES) as u64
}

/// A guest of 4 GiB has a million pages.
fn page_number(offset: u64) -> u32 {
    u32::try_from(offset.checked_div(PAGE_BYTES as u64).unwrap_or_default()).unwrap_or(u32::MAX)
}

/// Entries of `/proc/self/pagemap` for the pages of a window. They may report more pages written than were, never fewer.
struct PageMap(Vec<u8>);

impl PageMap {
    /// Bytes that `/proc/self/pagemap` has about a page.
    const ENTRY_BYTES: usize = 8;
    /// The page is in memory.
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    /// The page is that of the mapped file, not a private copy.
    const FILE: u64 = 1 << 61;

    /// Reads the entries; `None` if that is not possible, and then every page is compared.
    fn of(pagemap: &File, window: &[u8]) -> Option<PageMap> {
        let address = window.as_ptr() as usize;
        if rustix::param::page_size() != PAGE_BYTES || !address.is_multiple_of(PAGE_BYTES) {
            return None;
        }
        let mut entries = vec![0; (window.len() / PAGE_BYTES).saturating_mul(Self::ENTRY_BYTES)];
        let offset = (address / PAGE_BYTES).saturating_mul(Self::ENTRY_BYTES) as u64;
        pagemap.read_exact_at(&mut entries, offset).ok()?;
        Some(PageMap(entries))
    }

    fn written(&self, page: usize) -> bool {
        let entry = self.0.as_chunks().0.get(page).map_or(u64::MAX, |entry| u64::from_ne_bytes(*entry));
        entry & Self::SWAPPED != 0 || (entry & Self::PRESENT != 0 && entry & Self::FILE == 0)
    }
}
