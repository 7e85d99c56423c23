//! Beats: which guests with safepoints run now, so that the ticker can have them give way.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use cellar_core::sync::lock;

/// The guests of a host that run now and have safepoints: where the byte of each is, by the number of its beat.
#[derive(Debug, Default)]
pub(crate) struct Beats {
    running: Mutex<HashMap<u64, Byte>>,
    count: AtomicU64,
}

impl Beats {
    /// Has every guest that runs give way at its next safepoint.
    pub(crate) fn tick(&self) {
        lock(&self.running).values().for_each(|byte| byte.set(1));
    }

    /// The beat of a new kernel, whose byte is this one of its memory. It must be left before that memory is given back.
    pub(crate) fn beat(self: &Arc<Beats>, byte: &u8) -> Beat {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        Beat { beats: self.clone(), number, byte: Byte(std::ptr::from_ref(byte).expose_provenance()) }
    }
}

/// The byte of one kernel.
#[derive(Debug)]
pub(crate) struct Beat {
    beats: Arc<Beats>,
    number: u64,
    byte: Byte,
}

impl Beat {
    /// Notes that the guest is about to run.
    pub(crate) fn enter(&self) {
        lock(&self.beats.running).insert(self.number, self.byte);
    }

    /// Notes that it has given way.
    pub(crate) fn given(&self) {
        if let Some(byte) = lock(&self.beats.running).get(&self.number) {
            byte.set(0);
        }
    }

    /// Notes that it does not run any more. Nothing is left in its memory of what the ticker wanted.
    pub(crate) fn leave(&self) {
        let mut running = lock(&self.beats.running);
        if let Some(byte) = running.remove(&self.number) {
            byte.set(0);
        }
    }
}

/// Address of a byte of a guest's memory.
#[derive(Clone, Copy, Debug)]
struct Byte(usize);

impl Byte {
    /// Stores a value. Called only while its beat is among those that run.
    #[expect(unsafe_code, reason = "another thread writes to a guest's memory while it runs; see the SAFETY note")]
    fn set(self, value: u8) {
        // SAFETY: the address is that of a byte within the linear memory of a live store, which never moves: every memory has
        // the reservation of its slot. A beat is among those that run from `Measured`'s beginning to its drop, which holds the
        // store for as long, and both this and the removal happen under one lock. Code of the guest reads the byte as if it
        // could change at any time. The host has a reference to it only where a guest says that something of its own lies
        // there, a list of bytes or a text; it may then see a 0 or a 1, and neither is part of a longer character.
        let byte = unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(self.0)) };
        byte.store(value, Ordering::Relaxed);
    }
}
