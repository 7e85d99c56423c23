//! State that all recipes share: the checkout they build from and the cache they build into.

use std::path::PathBuf;

use anyhow::Result;

use crate::cache::Cache;
use crate::times;

/// Handed to every recipe.
#[derive(Debug)]
pub(crate) struct Workshop {
    /// Top of the checkout.
    pub(crate) root: PathBuf,
    pub(crate) cache: Cache,
}

impl Workshop {
    /// Opens the checkout this builder was compiled from, and the cache.
    pub(crate) fn open() -> Result<Self> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let cache = Cache::open()?;
        times::keep_in(cache.root());
        Ok(Self { root, cache })
    }
}
