//! Names of packages.

use std::{fmt, path::PathBuf, str::FromStr};

use crate::PackageError;

/// Prefix of the names of npm packages, where packages of both registries are named.
const NPM: &str = "npm:";
/// Maximum length of a package's text in bytes.
const TEXT_MAX: usize = 214;

/// Registry of a package, which also determines the language that imports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Registry {
    /// The Python Package Index: wheels, for Python cells.
    Python,
    /// npm: for JavaScript cells.
    Npm,
}

/// A requested package, with its version constraint if there is one: `tabulate`, `requests[socks]>=2`, `npm:lodash@4`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// Registry of the package.
    pub registry: Registry,
    /// Its name, as its registry compares names.
    pub name: String,
    /// The name and the rest, as the client of the registry takes it.
    pub(crate) text: String,
    /// Its extras, of Python.
    pub(crate) extras: Vec<String>,
}

impl Wanted {
    /// Parses a requested package. Paths, addresses and options of clients are refused.
    ///
    /// # Errors
    /// `Name`.
    pub fn parse(text: &str) -> Result<Wanted, PackageError> {
        let wanted = match text.strip_prefix(NPM) {
            Some(rest) => npm(rest),
            None => python(text),
        };
        wanted.filter(|_| text.len() <= TEXT_MAX).ok_or_else(|| PackageError::Name { text: text.to_owned() })
    }

    /// Returns true if a version is requested in addition to the name.
    pub fn has_version(&self) -> bool {
        self.registry == Registry::Npm && self.text != self.name
            || self.registry == Registry::Python && self.text.contains(['<', '>', '=', '!', '~'])
    }
}

/// Source of packages that a session is granted: a package of the store by its name, or a folder, whose path contains a
/// slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder with Python packages.
    Folder(PathBuf),
    /// A package of the store, in the version that is locked.
    Named(Wanted),
}

impl FromStr for Source {
    type Err = PackageError;

    fn from_str(text: &str) -> Result<Source, PackageError> {
        if !text.starts_with(NPM) && (text.contains('/') || matches!(text, "." | "..")) {
            return Ok(Source::Folder(text.into()));
        }
        let wanted = Wanted::parse(text)?;
        match wanted.has_version() || !wanted.extras.is_empty() {
            true => Err(PackageError::Name { text: text.to_owned() }),
            false => Ok(Source::Named(wanted)),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Folder(folder) => folder.display().fmt(f),
            Source::Named(wanted) => wanted.fmt(f),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(self.registry, &self.name))
    }
}

/// The name of a package where both kinds are named.
pub(crate) fn written(registry: Registry, name: &str) -> String {
    match registry {
        Registry::Python => name.to_owned(),
        Registry::Npm => format!("{NPM}{name}"),
    }
}

/// Normalizes a Python name: runs of `-`, `_` and `.` become one `-`, and letters lower case.
pub(crate) fn normal(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '-' | '_' | '.' if normal.ends_with('-') => {}
            '-' | '_' | '.' => normal.push('-'),
            other => normal.push(other.to_ascii_lowercase()),
        }
    }
    normal
}

/// Returns true if a text is the name of a Python package, or of one of its extras.
pub(crate) fn is_python_name(name: &str) -> bool {
    let ends = |character: Option<char>| character.is_some_and(|it| it.is_ascii_alphanumeric());
    let inner = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    ends(name.chars().next()) && ends(name.chars().next_back()) && name.chars().all(inner)
}

fn python(text: &str) -> Option<Wanted> {
    let text: String = text.chars().filter(|character| *character != ' ').collect();
    let end = text.find(['[', '<', '>', '=', '!', '~']).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    let mut extras = Vec::new();
    if let Some(inner) = rest.strip_prefix('[') {
        let (named, after) = inner.split_once(']')?;
        extras = named.split(',').map(normal).collect();
        if !named.split(',').all(is_python_name) {
            return None;
        }
        rest = after;
    }
    let is_version = |it: char| it.is_ascii_alphanumeric() || "<>=!~.,*+-_".contains(it);
    let begins = rest.is_empty() || rest.starts_with(['<', '>', '=', '!', '~']);
    let is_archive = [".whl", ".zip", ".gz", ".bz2", ".xz", ".tar"].iter().any(|end| name.ends_with(end));
    let fits = is_python_name(name) && begins && rest.chars().all(is_version) && !is_archive;
    fits.then(|| Wanted { registry: Registry::Python, name: normal(name), text: text.clone(), extras })
}

fn is_npm_part(part: &str) -> bool {
    let allowed = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | '~');
    !part.is_empty() && !part.starts_with(['.', '-', '_']) && part.chars().all(allowed)
}

/// Returns true if a text is the name of an npm package, including its scope if it has one.
pub(crate) fn is_npm_name(name: &str) -> bool {
    match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| is_npm_part(scope) && is_npm_part(name)),
        None => is_npm_part(name),
    }
}

fn npm(text: &str) -> Option<Wanted> {
    let at = text.get(1..)?.find('@').map_or(text.len(), |at| at.saturating_add(1));
    let (name, rest) = text.split_at(at);
    let is_version = |it: char| it.is_ascii_alphanumeric() || "@^~<>=.*-+|".contains(it);
    let fits = is_npm_name(name) && rest.chars().all(is_version) && rest != "@";
    fits.then(|| Wanted { registry: Registry::Npm, name: name.to_owned(), text: text.to_owned(), extras: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_paths_addresses_and_options() {
        let check = |text: &str, name: &str| {
            assert_eq!(Wanted::parse(text).unwrap_or_else(|_| panic!("{text}")).to_string(), name);
        };
        check("tabulate", "tabulate");
        check("Ruamel.YAML__x>=1, <2", "ruamel-yaml-x");
        check("requests[socks,use-chardet]~=2.3", "requests");
        check("npm:lodash", "npm:lodash");
        check("npm:@scope/name@^1.2.3", "npm:@scope/name");
        for text in [
            "",
            "-r",
            "--index-url",
            "./site",
            "/etc",
            "a/b",
            "x.whl",
            "x.tar.gz",
            "a @ b",
            "a;b",
            "a[b",
            "a[/]",
            "a]",
            "a==1;os",
            "git+ssh",
            "npm:",
            "npm:@",
            "npm:../x",
            "npm:a/b",
            "npm:-g",
            "npm:lodash@file:x",
            "npm:a@b/c",
            "npm:a@",
            "npm:@a/.b",
            "tabulate\n--pre",
            "naïve",
        ] {
            assert!(Wanted::parse(text).is_err(), "{text}");
        }
    }
}
