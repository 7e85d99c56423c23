//! Our changes to other people's sources: patch files by topic, each with its reason on top, applied by GNU patch.
//!
//! The patches of a folder are a series: they are applied in the order of their names, and each may change what those
//! before it have made. A hunk must fit without fuzz. The sources are pinned by their digests, so that a patch that does
//! not fit means that the sources or the series has been changed without the other.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::inputs::files_below;
use crate::process::run;

/// Options of GNU patch: ask nothing, undo nothing, guess nothing, and leave no copies behind.
const OPTIONS: &[&str] = &["--batch", "--forward", "--fuzz=0", "--no-backup-if-mismatch", "--strip=1"];

/// Applies all patches of the folder `series` to the sources in `tree`. What GNU patch says goes to a file in `work`.
///
/// # Errors
/// When there are no patches, or one does not fit; the message names the patch and the file.
pub(crate) fn apply(series: &Path, tree: &Path, work: &Path) -> Result<()> {
    let patches = files_below(series)?;
    ensure!(!patches.is_empty(), "`{}` has no patches", series.display());
    for file in patches {
        let mut patch = Command::new("patch");
        patch.args(OPTIONS).arg("--directory").arg(tree).arg("--input").arg(&file);
        run(&mut patch, &work.join("patch.log")).with_context(|| {
            format!("`{}` does not fit the sources in `{}`: one of them has changed", file.display(), tree.display())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SOURCE: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";
    const FIRST: &str =
        "The third is a drei.\n\n--- a/n.txt\n+++ b/n.txt\n@@ -2,3 +2,3 @@\n two\n-three\n+drei\n four\n";
    const SECOND: &str = "So is the fourth.\n\n--- a/n.txt\n+++ b/n.txt\n@@ -3,3 +3,3 @@\n drei\n-four\n+vier\n five\n";

    fn applied(patches: &[(&str, &str)]) -> Result<String> {
        let folder = tempfile::tempdir()?;
        let (series, tree) = (folder.path().join("patches"), folder.path().join("tree"));
        fs::create_dir_all(&series)?;
        fs::create_dir_all(&tree)?;
        fs::write(tree.join("n.txt"), SOURCE)?;
        for (name, text) in patches {
            fs::write(series.join(name), text)?;
        }
        apply(&series, &tree, folder.path())?;
        Ok(fs::read_to_string(tree.join("n.txt"))?)
    }

    #[test]
    fn a_series_is_applied_in_the_order_of_its_names() {
        let text = applied(&[("2-vier.patch", SECOND), ("1-drei.patch", FIRST)]).unwrap();
        assert_eq!(text, SOURCE.replace("three\nfour", "drei\nvier"));
    }

    #[test]
    fn a_patch_that_does_not_fit_is_an_error_that_names_it_and_the_file() {
        let error = format!("{:#}", applied(&[("2-vier.patch", SECOND)]).unwrap_err());
        assert!(error.contains("2-vier.patch") && error.contains("n.txt"), "{error}");
    }

    #[test]
    fn no_patches_are_an_error() {
        applied(&[]).unwrap_err();
    }
}
