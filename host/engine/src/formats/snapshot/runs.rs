//! Captured pages on their way back into a memory: unpacked chunk by chunk, in buffers that are used again, on a few
//! threads when there are many.

use std::{
    cell::Cell,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use cellar_core::sync::cores;
use zstd::bulk::Decompressor;

use super::{
    image::{Image, toggle},
    pages::{CHUNK_PAGES, Chunk, PAGE_BYTES, Pages, Place},
};

/// Threads that unpack besides the one that writes.
const HELPERS_MAX: usize = 3;
/// Packed chunks from which on a helper is worth its start.
const CHUNKS_MIN: usize = 3;
/// Chunks that a helper unpacks before they are asked for.
const AHEAD: usize = 2;
/// As many zeros as are written at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Decompressor and buffer, which are used again.
struct Tools {
    context: Decompressor<'static>,
    buffer: Vec<u8>,
}

thread_local! {
    /// Kept for the next time: filling fresh memory costs as much as unpacking into it.
    static TOOLS: Cell<Option<Tools>> = const { Cell::new(None) };
}

impl Tools {
    fn new() -> Result<Tools, String> {
        let context = Decompressor::new().map_err(|error| error.to_string())?;
        Ok(Tools { context, buffer: Vec::new() })
    }

    /// Makes the buffer the pages of a chunk, which lie at these places.
    fn load(&mut self, chunk: &Chunk, places: &[Place], image: &Image) -> Result<(), String> {
        let wanted = chunk.pages().saturating_mul(PAGE_BYTES);
        self.buffer.clear();
        match chunk {
            Chunk::Raw(bytes) | Chunk::Dense(bytes) => self.buffer.extend_from_slice(bytes),
            Chunk::Packed { bytes, .. } => {
                self.buffer.reserve_exact(wanted.min(CHUNK_PAGES * PAGE_BYTES));
                let unpacked = self.context.decompress_to_buffer(bytes, &mut self.buffer);
                unpacked.map_err(|error| error.to_string())?;
            }
        }
        if self.buffer.len() != wanted {
            return Err(format!("{} bytes unpacked, {wanted} were expected", self.buffer.len()));
        }
        for place in places {
            let page = place.at.and_then(|(_, slot)| {
                let begin = (slot as usize).checked_mul(PAGE_BYTES)?;
                self.buffer.get_mut(begin..begin.checked_add(PAGE_BYTES)?)
            });
            let page = page.ok_or("a page is missing")?;
            if let Some(image) = image.page(place.page) {
                toggle(page, &image);
            }
        }
        Ok(())
    }
}

/// The tools of this thread, which get them back.
struct Lent(Option<Tools>);

impl Lent {
    fn get(&mut self) -> Result<&mut Tools, String> {
        self.0.as_mut().ok_or_else(|| "there is nothing to unpack with".to_owned())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A thread that ends keeps nothing.
        let _ = TOOLS.try_with(|kept| kept.set(self.0.take()));
    }
}

/// The places, chunk by chunk.
fn of_one_chunk(places: &[Place]) -> impl Iterator<Item = &[Place]> {
    places.chunk_by(|a, b| a.at.map(|(chunk, _)| chunk) == b.at.map(|(chunk, _)| chunk))
}

/// A thread that unpacks some of the chunks.
struct Helper {
    loaded: Receiver<Result<Vec<u8>, String>>,
    /// Buffers it may use again.
    used: SyncSender<Vec<u8>>,
}

impl Helper {
    /// Starts a thread; `None` if that fails.
    fn start(work: Vec<(Arc<Chunk>, Vec<Place>)>, image: Arc<Image>) -> Option<Helper> {
        let (loaded_sender, loaded) = sync_channel(AHEAD);
        let (used, used_receiver) = sync_channel::<Vec<u8>>(AHEAD);
        let unpack = move || {
            let mut tools = Tools::new();
            for (chunk, places) in work {
                let result = tools.as_mut().map_err(|error| error.clone()).and_then(|tools| {
                    tools.buffer = used_receiver.try_recv().unwrap_or_default();
                    tools.load(&chunk, &places, &image).map(|()| std::mem::take(&mut tools.buffer))
                });
                // Nobody waits for them any more.
                if loaded_sender.send(result).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("cellar-unpack".to_owned()).spawn(unpack).ok()?;
        Some(Helper { loaded, used })
    }
}

/// A chunk that is being given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// Its pages are in the buffer.
    Loaded(u32),
    /// They are given out where they lie, because the image has nothing to do with them.
    AsItIs(u32),
}

/// The pages of a snapshot as pieces to write, each of pages side by side.
pub(crate) struct Runs<'a> {
    pages: &'a Pages,
    image: &'a Image,
    /// Places by chunk, those of zeros first.
    places: Vec<Place>,
    /// Number of places that were given out.
    done: usize,
    /// Number of chunks that were opened.
    chunks: usize,
    /// The chunk that is being given out.
    open: Option<Open>,
    tools: Lent,
    helpers: Vec<Helper>,
}

impl Pages {
    /// Returns the pages to write into the memory of a kernel made of this image.
    ///
    /// # Errors
    /// When there is no memory to unpack in.
    pub(crate) fn runs<'a>(&'a self, image: &'a Arc<Image>) -> Result<Runs<'a>, String> {
        let mut places = self.places.clone();
        places.sort_unstable_by_key(|place| (place.at, place.page));
        let tools = TOOLS.take().map_or_else(Tools::new, Ok)?;
        let helpers = self.helpers(&places, image);
        Ok(Runs { pages: self, image, places, done: 0, chunks: 0, open: None, tools: Lent(Some(tools)), helpers })
    }

    fn helpers(&self, places: &[Place], image: &Arc<Image>) -> Vec<Helper> {
        let packed = self.chunks.iter().filter(|chunk| matches!(***chunk, Chunk::Packed { .. })).count();
        let count = cores().saturating_sub(1).min(HELPERS_MAX).min(packed / CHUNKS_MIN);
        let chunk_of = |places: &[Place]| self.chunks.get(places.first()?.at?.0 as usize).cloned();
        let work = |helper: usize| {
            let parts = of_one_chunk(places).filter(|places| places.first().is_some_and(|place| place.at.is_some()));
            let own = parts.skip(helper.saturating_add(1)).step_by(count.saturating_add(1));
            own.filter_map(|places| Some((chunk_of(places)?, places.to_vec()))).collect()
        };
        let helpers: Option<Vec<Helper>> = (0..count).map(|each| Helper::start(work(each), image.clone())).collect();
        helpers.unwrap_or_default()
    }
}

impl Runs<'_> {
    /// The number of a page, and its bytes and those of the pages behind it; `None` is the end.
    ///
    /// # Errors
    /// When a chunk is not a zstd frame of exactly so many pages. No more than those are ever unpacked.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, &[u8])>, String> {
        let Some(first) = self.places.get(self.done).copied() else { return Ok(None) };
        let Some((chunk, slot)) = first.at else {
            let count = self.run_length(ZEROS.len() / PAGE_BYTES);
            self.done = self.done.saturating_add(count);
            return Ok(ZEROS.get(..count.saturating_mul(PAGE_BYTES)).map(|zeros| (first.page, zeros)));
        };
        if !matches!(self.open, Some(Open::Loaded(open) | Open::AsItIs(open)) if open == chunk) {
            self.open = Some(self.open(chunk)?);
        }
        let count = self.run_length(CHUNK_PAGES);
        self.done = self.done.saturating_add(count);
        let begin = (slot as usize).saturating_mul(PAGE_BYTES);
        let end = begin.saturating_add(count.saturating_mul(PAGE_BYTES));
        let pages = match self.open {
            Some(Open::AsItIs(chunk)) => self.pages.chunks.get(chunk as usize).ok_or("a chunk is missing")?.bytes(),
            _ => self.tools.get()?.buffer.as_slice(),
        };
        Ok(Some((first.page, pages.get(begin..end).ok_or("a page is missing")?)))
    }

    /// Returns how many places, from the next one on and `most` at most, are adjacent both in the memory and in their chunk.
    fn run_length(&self, most: usize) -> usize {
        let places = self.places[self.done..].iter().take(most);
        let Some(first) = self.places.get(self.done) else { return 0 };
        let follows = |(count, place): (u32, &Place)| {
            let at = first.at.map(|(chunk, slot)| (chunk, slot.saturating_add(count)));
            Some(place.page) == first.page.checked_add(count) && place.at == at
        };
        (0..).zip(places).take_while(|(count, place)| follows((*count, place))).count()
    }

    /// Makes the pages of a chunk ready to be given out.
    fn open(&mut self, chunk: u32) -> Result<Open, String> {
        let turn = self.chunks.checked_rem(self.helpers.len().saturating_add(1)).unwrap_or(0);
        self.chunks = self.chunks.wrapping_add(1);
        if let Some(helper) = turn.checked_sub(1).and_then(|helper| self.helpers.get(helper)) {
            let loaded = helper.loaded.recv().map_err(|_| "it could not be unpacked".to_owned())??;
            let used = std::mem::replace(&mut self.tools.get()?.buffer, loaded);
            // One too many is dropped.
            let _ = helper.used.try_send(used);
            return Ok(Open::Loaded(chunk));
        }
        let places = of_one_chunk(&self.places[self.done..]).next().unwrap_or_default();
        let held = self.pages.chunks.get(chunk as usize).ok_or("a chunk is missing")?;
        let is_packed = matches!(**held, Chunk::Packed { .. });
        if !is_packed && places.iter().all(|place| self.image.page(place.page).is_none()) {
            return Ok(Open::AsItIs(chunk));
        }
        self.tools.get()?.load(held, places, self.image)?;
        Ok(Open::Loaded(chunk))
    }
}
