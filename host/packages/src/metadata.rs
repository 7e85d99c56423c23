//! Metadata of a wheel: the header of its `METADATA`, which has the format of an email header.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::names::normal;

/// Maximum size of a package's metadata in bytes.
const BYTES_MAX: u64 = 4 << 20;
/// Maximum number of metadata lines that are read, and thereby of dependencies.
const NEEDS_MAX: usize = 5_000;

/// A package that another one needs, with the extras of it: `requests[socks]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub(crate) struct Need {
    pub(crate) name: String,
    pub(crate) extras: Vec<String>,
}

impl From<String> for Need {
    fn from(text: String) -> Need {
        let (name, rest) = text.split_once('[').unwrap_or((&text, ""));
        let extras = rest.trim_end_matches(']').split(',').filter(|extra| !extra.trim().is_empty());
        Need { name: normal(name.trim()), extras: extras.map(|extra| normal(extra.trim())).collect() }
    }
}

impl From<Need> for String {
    fn from(need: Need) -> String {
        match need.extras.is_empty() {
            true => need.name,
            false => format!("{}[{}]", need.name, need.extras.join(",")),
        }
    }
}

/// Relevant fields of the metadata.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Dependencies, and additional ones by extra, for all machines: markers other than extras are left to pip.
    pub(crate) requires: BTreeSet<Need>,
    pub(crate) extras: BTreeMap<String, BTreeSet<Need>>,
}

impl Metadata {
    /// Reads the metadata of the one package that was unpacked in a folder.
    pub(crate) fn of(folder: &Path) -> Option<Metadata> {
        let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
        let mut infos = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".dist-info"));
        let path = infos.next()?.path().join("METADATA");
        if infos.next().is_some() || fs::metadata(&path).ok()?.len() > BYTES_MAX {
            return None;
        }
        Some(Metadata::parse(&String::from_utf8_lossy(&fs::read(path).ok()?)))
    }

    fn parse(text: &str) -> Metadata {
        let mut found = Metadata::default();
        for line in text.lines().take_while(|line| !line.is_empty()).take(NEEDS_MAX) {
            let Some((field, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match field.to_ascii_lowercase().as_str() {
                "name" => found.name = normal(value),
                "version" => value.clone_into(&mut found.version),
                "requires-dist" => found.need(value),
                _ => {}
            }
        }
        found
    }

    fn need(&mut self, text: &str) {
        let (what, marker) = text.split_once(';').unwrap_or((text, ""));
        let is_named = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
        let what = what.trim();
        let end = what.find(|it| !is_named(it)).unwrap_or(what.len());
        let extras = what.get(end..).and_then(|rest| rest.trim_start().strip_prefix('[')?.split_once(']'));
        let need = Need::from(format!("{}[{}]", &what[..end], extras.map_or("", |(extras, _)| extras)));
        if need.name.is_empty() {
            return;
        }
        let mut extras = extras_of(marker).peekable();
        if extras.peek().is_none() {
            self.requires.insert(need);
        } else {
            for extra in extras {
                self.extras.entry(extra).or_default().insert(need.clone());
            }
        }
    }
}

/// The extras that a marker names: of `extra == 'socks' and python_version > "3"`, `socks`.
fn extras_of(marker: &str) -> impl Iterator<Item = String> {
    marker.split("extra").skip(1).filter_map(|rest| {
        let rest = rest.trim_start().strip_prefix("==")?.trim_start();
        let name = rest.strip_prefix(['"', '\''])?.split(['"', '\'']).next()?;
        Some(normal(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_read_of_the_metadata() {
        let found = Metadata::parse(
            "Metadata-Version: 2.1\nName: The_Name\nVersion: 1.0\nRequires-Dist: A.b (>=1)\nRequires-Dist: c[d, E]>=2 ; python_version < \"4\"\n\
             Requires-Dist: socks; extra == 'Socks' or extra == \"all\"\nRequires-Dist: [x]\n\nRequires-Dist: text",
        );
        let needs = |needs: &BTreeSet<Need>| needs.iter().cloned().map(String::from).collect::<Vec<_>>();
        assert_eq!((found.name.as_str(), found.version.as_str()), ("the-name", "1.0"));
        assert_eq!(needs(&found.requires), ["a-b", "c[d,e]"]);
        assert_eq!(found.extras.keys().collect::<Vec<_>>(), ["all", "socks"]);
        assert_eq!(needs(&found.extras["socks"]), ["socks"]);
    }
}
