//! Former builds of guests: the states of stored sessions can be read by the build alone that has made them.
//!
//! ```text
//! <guests>/former/<any name>/<guest>/manifest.json …
//!                           /baked/<guest>-<identity>/baked.wasm
//!                                                    /baked.sha256
//! ```
//!
//! An installation puts the guests there that it replaces. Their code is compiled again, into the cache, by the wasmtime of now.

use std::{fs, path::Path};

use cellar_core::cell::GuestName;

use super::{
    image::{Artifacts, DIGEST_FILE},
    listed::Listed,
    manifest::Manifest,
};
use crate::contract::config::HostConfig;

/// The folder, in that of the guests.
const FOLDER: &str = "former";
/// Installations that are looked through, and images in each.
const FORMER_MAX: usize = 64;

/// Finds a build of a guest by the digest of its image. One of another world, or without its manifest, is not found.
pub(crate) fn former_build(config: &HostConfig, guest: GuestName, digest: &str) -> Option<Artifacts> {
    folders_in(&config.guests.join(FOLDER)).find_map(|former| {
        let has_digest = |image: &fs::DirEntry| {
            fs::read_to_string(image.path().join(DIGEST_FILE)).is_ok_and(|found| found == digest)
        };
        let image = folders_in(&former.path().join("baked")).find(has_digest)?;
        let manifest = Manifest::load(&former.path(), guest).ok()?;
        let folder = config.cache.join("baked").join(image.file_name());
        Some(Artifacts { manifest, folder, installed: image.path(), listed: Listed::of(config) })
    })
}

fn folders_in(folder: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().take(FORMER_MAX)
}
