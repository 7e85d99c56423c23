//! The lock file: which version of each package the store has, by the hashes of its archive and of its files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use cellar_core::files::replace;
use serde::{Deserialize, Serialize};

use crate::{
    LOCKED_MAX, PackageError,
    metadata::Need,
    names::{Registry, is_npm_name, is_python_name, normal},
};

/// The version of the format.
const VERSION: u32 = 1;
/// Maximum size of a lock file in bytes.
const BYTES_MAX: u64 = 64 << 20;
/// Prefix of npm's path of a top-level package.
const TOP: &str = "node_modules/";

/// A lock file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lock {
    version: u32,
    /// Python packages, by name.
    #[serde(default)]
    pub(crate) python: BTreeMap<String, PythonEntry>,
    #[serde(default)]
    pub(crate) npm: Npm,
}

/// A locked Python package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PythonEntry {
    pub(crate) version: String,
    /// Hash of the wheel, which identifies its files in the store.
    pub(crate) sha256: String,
    /// Hash of the unpacked files.
    pub(crate) files: String,
    /// Dependencies that are locked.
    pub(crate) requires: BTreeSet<Need>,
    /// Additional dependencies of its extras that are locked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) extras: BTreeMap<String, BTreeSet<Need>>,
    /// Requested extras; absent if the package is only a dependency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<BTreeSet<String>>,
}

/// Locked npm packages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Npm {
    /// Requested packages with their versions, as in a `package.json`.
    pub(crate) asked: BTreeMap<String, String>,
    /// Packages by path: `node_modules/a`, `node_modules/a/node_modules/b`.
    pub(crate) places: BTreeMap<String, NpmEntry>,
    /// npm's own lock file, with which npm continues.
    pub(crate) lockfile: serde_json::Value,
}

/// A locked npm package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NpmEntry {
    /// Its own name, which that of its place may be an alias of.
    pub(crate) name: String,
    pub(crate) version: String,
    /// Hash of the archive, which identifies its files in the store.
    pub(crate) sha512: String,
    /// Hash of the unpacked files.
    pub(crate) files: String,
    pub(crate) requires: BTreeSet<String>,
}

/// A package of the store, as it is listed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    /// Its name, as a configuration grants it.
    pub name: String,
    /// Its version.
    pub version: String,
    /// True if the package was requested; false if it is a dependency only.
    pub asked: bool,
    /// Hash of its archive: `sha256:…` of a wheel, `sha512:…` of an npm tarball.
    pub hash: String,
}

impl Lock {
    /// Reads the lock file; empty if there is none.
    ///
    /// # Errors
    /// `Lock`, `Store`.
    pub(crate) fn read(path: &Path) -> Result<Lock, PackageError> {
        let damaged = |why: String| PackageError::Lock { path: path.to_owned(), why };
        let size = match fs::metadata(path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Lock { version: VERSION, ..Lock::default() });
            }
            Err(error) => return Err(PackageError::store(path)(error)),
        };
        if size > BYTES_MAX {
            return Err(damaged(format!("it has {size} bytes")));
        }
        let text = fs::read_to_string(path).map_err(PackageError::store(path))?;
        let lock: Lock = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if lock.version != VERSION {
            return Err(damaged(format!("it is of version {}, this Cellar reads version {VERSION}", lock.version)));
        }
        lock.check().map_err(damaged)?;
        Ok(lock)
    }

    /// Checks all names, versions, paths and hashes, because they become parts of paths, and the number of packages.
    fn check(&self) -> Result<(), String> {
        let is_hash = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        for (name, entry) in &self.python {
            let extras = entry.asked.iter().flatten();
            let is_named =
                is_python_name(name) && normal(name) == *name && extras.clone().all(|extra| is_python_name(extra));
            if !is_named || !is_version(&entry.version) || !is_hash(&entry.sha256, 64) {
                return Err(format!("`{name}` has no valid name, version or hash"));
            }
        }
        for (place, entry) in &self.npm.places {
            let is_named = is_place(place) && is_npm_name(&entry.name) && is_version(&entry.version);
            if !is_named || !is_hash(&entry.sha512, 128) {
                return Err(format!("`{place}` has no valid place, name, version or hash"));
            }
        }
        match self.python.len().max(self.npm.places.len()) {
            count if count > LOCKED_MAX => Err(format!("it has {count} packages, at most {LOCKED_MAX} are read")),
            _ => Ok(()),
        }
    }

    /// Replaces the lock file.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn write(&self, path: &Path) -> Result<(), PackageError> {
        let write = || {
            let mut text = serde_json::to_vec_pretty(self)?;
            text.push(b'\n');
            replace(path, &text)
        };
        write().map_err(PackageError::store(path))
    }

    /// Returns the names of packages and all of their dependencies, including those of requested extras.
    pub(crate) fn python_closure<'a>(&'a self, names: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
        // Packages with their extras; without one, a package itself.
        let mut seen: BTreeSet<(&str, Option<&str>)> = BTreeSet::new();
        let mut next: Vec<(&str, Option<&str>)> = Vec::new();
        for name in names {
            let asked = self.python.get(name).and_then(|entry| entry.asked.as_ref());
            next.push((name, None));
            next.extend(asked.into_iter().flatten().map(|extra| (name, Some(extra.as_str()))));
        }
        while let Some((name, extra)) = next.pop() {
            let Some(entry) = self.python.get(name) else { continue };
            if !seen.insert((name, extra)) {
                continue;
            }
            let needs = extra.map_or(Some(&entry.requires), |extra| entry.extras.get(extra));
            for need in needs.into_iter().flatten() {
                next.push((&need.name, None));
                next.extend(need.extras.iter().map(|extra| (need.name.as_str(), Some(extra.as_str()))));
            }
        }
        seen.into_iter().map(|(name, _)| name).collect()
    }

    /// The places of an npm package and of all that it needs.
    pub(crate) fn npm_closure<'a>(&'a self, name: &str, into: &mut BTreeSet<&'a str>) {
        let mut next: Vec<&str> = self.npm_place("", name).into_iter().collect();
        while let Some(place) = next.pop() {
            if into.insert(place) {
                let requires = self.npm.places.get(place).into_iter().flat_map(|entry| &entry.requires);
                next.extend(requires.filter_map(|name| self.npm_place(place, name)));
            }
        }
    }

    /// Returns the path of package `name` as resolved from the package at `place`: within it, then within the packages that
    /// contain it.
    pub(crate) fn npm_place(&self, place: &str, name: &str) -> Option<&str> {
        let mut holder = place;
        loop {
            let inner = if holder.is_empty() { format!("{TOP}{name}") } else { format!("{holder}/{TOP}{name}") };
            if let Some((place, _)) = self.npm.places.get_key_value(&inner) {
                return Some(place);
            }
            if holder.is_empty() {
                return None;
            }
            holder = holder.rfind("/node_modules/").map_or("", |at| &holder[..at]);
        }
    }

    /// Removes packages that were not requested and that no requested package needs.
    pub(crate) fn forget_unneeded(&mut self) {
        let asked = self.python.iter().filter(|(_, entry)| entry.asked.is_some());
        let python = self.python_closure(asked.map(|(name, _)| name.as_str()));
        let mut npm = BTreeSet::new();
        for name in self.npm.asked.keys() {
            self.npm_closure(name, &mut npm);
        }
        let python: BTreeSet<String> = python.into_iter().map(str::to_owned).collect();
        let npm: BTreeSet<String> = npm.into_iter().map(str::to_owned).collect();
        self.python.retain(|name, _| python.contains(name));
        self.npm.places.retain(|place, _| npm.contains(place));
    }

    /// All packages, in order of their names.
    pub(crate) fn list(&self) -> Vec<Listed> {
        let python = self.python.iter().map(|(name, entry)| Listed {
            name: name.clone(),
            version: entry.version.clone(),
            asked: entry.asked.is_some(),
            hash: format!("sha256:{}", entry.sha256),
        });
        let npm = self.npm.places.iter().map(|(place, entry)| Listed {
            name: crate::names::written(Registry::Npm, &shown_place(place)),
            version: entry.version.clone(),
            asked: place.strip_prefix(TOP).is_some_and(|name| self.npm.asked.contains_key(name)),
            hash: format!("sha512:{}", entry.sha512),
        });
        python.chain(npm).collect()
    }
}

/// Returns the path for display: `a`, or `a/b` for a package within `a`.
pub(crate) fn shown_place(place: &str) -> String {
    place.strip_prefix(TOP).unwrap_or(place).replace("/node_modules/", "/")
}

/// Returns true if a text may be a version. It becomes an argument of a registry's client.
pub(crate) fn is_version(text: &str) -> bool {
    let allowed = |it: char| it.is_ascii_alphanumeric() || ".+-_!".contains(it);
    text.starts_with(|it: char| it.is_ascii_alphanumeric()) && text.len() <= 100 && text.chars().all(allowed)
}

/// Returns true if a text is the path of a package: names of packages, each after `node_modules`.
pub(crate) fn is_place(place: &str) -> bool {
    let Some(rest) = place.strip_prefix(TOP) else { return false };
    rest.split("/node_modules/").all(is_npm_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(requires: &[&str]) -> NpmEntry {
        let requires = requires.iter().map(|name| (*name).to_owned()).collect();
        NpmEntry {
            name: "a".to_owned(),
            version: "1".to_owned(),
            sha512: "a".repeat(128),
            files: String::new(),
            requires,
        }
    }

    #[test]
    fn the_version_that_is_nearest_is_the_one_that_is_needed() {
        let mut lock = Lock { version: VERSION, ..Lock::default() };
        for (place, requires) in [
            ("node_modules/a", &["b", "c"] as &[_]),
            ("node_modules/a/node_modules/b", &["c"]),
            ("node_modules/b", &[]),
            ("node_modules/c", &["a"]),
            ("node_modules/d", &[]),
        ] {
            lock.npm.places.insert(place.to_owned(), entry(requires));
        }
        let mut found = BTreeSet::new();
        lock.npm_closure("a", &mut found);
        assert_eq!(Vec::from_iter(found), ["node_modules/a", "node_modules/a/node_modules/b", "node_modules/c"]);
    }

    #[test]
    fn what_extras_need_comes_with_those_who_ask_for_them() {
        let text = |asked: &str| {
            format!(
                r#"{{"version": 1, "npm": {{"asked": {{}}, "places": {{}}, "lockfile": null}}, "python": {{
                "a": {{"version": "1", "sha256": "{hash}", "files": "", "requires": ["b[x]"], "asked": []}},
                "b": {{"version": "1", "sha256": "{hash}", "files": "", "requires": [], "extras": {{"x": ["c"], "y": ["d"]}}{asked}}},
                "c": {{"version": "1", "sha256": "{hash}", "files": "", "requires": ["a"]}},
                "d": {{"version": "1", "sha256": "{hash}", "files": "", "requires": []}}}}}}"#,
                hash = "a".repeat(64)
            )
        };
        let mut lock: Lock = serde_json::from_str(&text("")).expect("a lock file");
        lock.check().expect("valid");
        assert_eq!(Vec::from_iter(lock.python_closure(["a"])), ["a", "b", "c"]);
        assert_eq!(Vec::from_iter(lock.python_closure(["b"])), ["b"]);
        lock.forget_unneeded();
        assert_eq!(lock.python.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        let lock: Lock = serde_json::from_str(&text(r#", "asked": ["y"]"#)).expect("a lock file");
        assert_eq!(Vec::from_iter(lock.python_closure(["b"])), ["b", "d"]);
    }

    #[test]
    fn a_lock_file_that_leads_elsewhere_is_refused() {
        for place in ["node_modules/../x", "x", "node_modules/a/../../b", "node_modules//etc", "/node_modules/a"] {
            let mut lock = Lock { version: VERSION, ..Lock::default() };
            lock.npm.places.insert(place.to_owned(), entry(&[]));
            assert!(lock.check().is_err(), "{place}");
        }
        for version in ["", "-r", "1 --pre", "1/../2", "file:x"] {
            let mut lock = Lock { version: VERSION, ..Lock::default() };
            lock.npm.places.insert("node_modules/a".to_owned(), NpmEntry { version: version.to_owned(), ..entry(&[]) });
            assert!(lock.check().is_err(), "{version}");
        }
    }
}
