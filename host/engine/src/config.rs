//! What an embedder decides before it opens a host.

use std::path::PathBuf;

/// Where the workspace appears to guests; their working directory and home.
pub const WORKSPACE: &str = "/workspace";

/// Where granted folders with packages appear: `/packages/1`, `/packages/2` and so on.
pub const PACKAGES: &str = "/packages";

/// Where a host finds its guests, and how much it may hold at once.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Folder with one folder per guest, as `make guests` leaves it.
    pub guests: PathBuf,
    /// Folder for baked and compiled artifacts. Must be writable by this user alone: it holds machine code.
    pub cache: PathBuf,
    /// Live kernels per flavour, warm spares included. Each reserves 4 GiB of address space and no memory.
    pub kernels_max: u32,
    /// Warm spares per flavour, of each guest that starts more slowly than a spare is handed over: all but JavaScript.
    pub spares: usize,
}

impl HostConfig {
    /// A host for thousands of sessions.
    pub fn new(guests: PathBuf, cache: PathBuf) -> HostConfig {
        HostConfig { guests, cache, kernels_max: 2_048, spares: 4 }
    }
}
