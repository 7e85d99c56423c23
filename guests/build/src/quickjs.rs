//! QuickJS's own sources as the guest has them: `guests/javascript/patches` changes what no embedding interface offers.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::patches;

/// Copies the C files and headers of QuickJS into `target`, and applies the patches of the folder `series`.
pub(crate) fn copy_patched(upstream: &Path, series: &Path, target: &Path, work: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(upstream)? {
        let path = entry?.path();
        if let Some(name) = path.file_name()
            && path.extension().is_some_and(|end| end == "c" || end == "h")
        {
            fs::copy(&path, target.join(name)).with_context(|| format!("could not copy `{}`", path.display()))?;
        }
    }
    patches::apply(series, target, work)
}
