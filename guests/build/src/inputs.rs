//! Inputs of a product. The digest of all of them is the product's key in the cache: when any input changes, the
//! product is made again, and only then.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// Named digests (or short texts, such as versions) of everything that goes into a product.
#[derive(Debug, Default, Clone)]
pub(crate) struct Inputs {
    entries: BTreeMap<String, String>,
}

impl Inputs {
    /// Records a value that is short enough to stand for itself: a version, a flag list, a checksum.
    pub(crate) fn value(&mut self, label: &str, value: impl Into<String>) -> &mut Self {
        self.entries.insert(label.to_owned(), value.into());
        self
    }

    /// Records a text by its digest.
    pub(crate) fn text(&mut self, label: &str, text: &str) -> &mut Self {
        self.value(label, sha256_hex(text.as_bytes()))
    }

    /// Records a file, or every file below a folder, by name and content.
    pub(crate) fn tree(&mut self, label: &str, path: &Path) -> Result<&mut Self> {
        let mut hasher = Sha256::new();
        for file in files_below(path)? {
            let name = file.strip_prefix(path).unwrap_or(&file);
            let content = fs::read(&file).with_context(|| format!("could not read `{}`", file.display()))?;
            hasher.update(format!("{}\0{}\0", name.display(), content.len()));
            hasher.update(&content);
        }
        Ok(self.value(label, hex(&hasher.finalize())))
    }

    /// The key of a product made from these inputs.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        for (label, value) in &self.entries {
            hasher.update(format!("{}\0{label}\0{}\0{value}\0", label.len(), value.len()));
        }
        hex(&hasher.finalize())
    }

    /// The inputs by name, for the manifest.
    pub(crate) fn entries(&self) -> &BTreeMap<String, String> {
        &self.entries
    }
}

/// SHA-256 of `bytes`, in lower-case hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `path` itself when it is a file, else all regular files below it, in a fixed order.
pub(crate) fn files_below(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("could not list `{}`", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_depends_on_what_is_recorded_and_not_on_the_order() {
        let digest = |pairs: &[(&str, &str)]| {
            let mut inputs = Inputs::default();
            for (label, value) in pairs {
                inputs.value(label, *value);
            }
            inputs.digest()
        };
        assert_eq!(digest(&[("a", "1"), ("b", "2")]), digest(&[("b", "2"), ("a", "1")]));
        assert_ne!(digest(&[("a", "1")]), digest(&[("a", "2")]));
        assert_ne!(digest(&[("ab", "c")]), digest(&[("a", "bc")]));
    }

    #[test]
    fn a_tree_is_told_from_one_with_a_file_renamed() {
        let digest = |name: &str| {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("sub")).unwrap();
            fs::write(folder.path().join("sub").join(name), "content").unwrap();
            let mut inputs = Inputs::default();
            inputs.tree("tree", folder.path()).unwrap();
            inputs.digest()
        };
        assert_eq!(digest("one"), digest("one"));
        assert_ne!(digest("one"), digest("two"));
    }
}
