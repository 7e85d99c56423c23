//! CPython's sources: the original archive inside Debian's source package.
//!
//! The archive is the one that python.org published; Debian mirrors carry it unchanged. Which mirror is asked is up to
//! the machine: the address comes from its own apt sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process::run;
use crate::workshop::Workshop;

/// CPython 3.13.5.
pub(super) const VERSION: &str = "3.13.5";
pub(super) const SHA256: &str = "93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640";

const ARCHIVE: &str = "python3.13_3.13.5.orig.tar.xz";
const PACKAGE: &str = "python3.13";
/// The release whose source package has this version.
const SUITE: &str = "trixie";
/// Where a file that was fetched by other means is named.
const OVERRIDE: &str = "CELLAR_PYTHON_SOURCE";

/// The archive, fetched unless the cache has it.
pub(super) fn archive(workshop: &Workshop) -> Result<PathBuf> {
    workshop.file_source(ARCHIVE, SHA256, |target| {
        if let Some(path) = std::env::var_os(OVERRIDE).filter(|value| !value.is_empty()) {
            fs::copy(&path, target).with_context(|| format!("could not copy {OVERRIDE}={}", path.display()))?;
            return Ok(());
        }
        fetch(target).with_context(|| {
            format!(
                "CPython {VERSION} could not be fetched as Debian's source package `{PACKAGE}` of suite `{SUITE}`. \
                 Fetch `Python-{VERSION}.tar.xz` (or `{ARCHIVE}`) yourself, SHA-256 {SHA256}, and set {OVERRIDE} to its path"
            )
        })
    })
}

/// Unpacks the archive into `folder`, without the folder at its top.
pub(super) fn unpack(workshop: &Workshop, folder: &Path, log: &Path) -> Result<()> {
    let archive = archive(workshop)?;
    fs::create_dir_all(folder)?;
    run(Command::new("tar").arg("xf").arg(&archive).args(["--strip-components=1", "-C"]).arg(folder), log)
}

/// Lets apt fetch the source package with a configuration of its own, which leaves the machine's as it is.
fn fetch(target: &Path) -> Result<()> {
    let folder = target.parent().context("the target needs a folder")?.join("apt");
    let mirrors = mirrors(Path::new("/etc/apt"))?;
    ensure!(!mirrors.is_empty(), "/etc/apt names no Debian mirror");
    let mut failures = Vec::new();
    for mirror in &mirrors {
        match fetch_from(mirror, &folder, target) {
            Ok(()) => return Ok(()),
            Err(error) => failures.push(format!("{}: {error:#}", mirror.address)),
        }
    }
    bail!("tried {} mirror(s) of /etc/apt:\n{}", mirrors.len(), failures.join("\n"))
}

fn fetch_from(mirror: &Mirror, folder: &Path, target: &Path) -> Result<()> {
    for part in ["parts", "lists/partial", "cache/archives/partial", "download"] {
        fs::create_dir_all(folder.join(part))?;
    }
    fs::write(folder.join("parts/source.sources"), mirror.stanza())?;
    let root = folder.to_str().context("the cache's path must be UTF-8")?;
    let configuration = folder.join("apt.conf");
    fs::write(
        &configuration,
        // The sandbox user of apt may not be able to enter our folders.
        format!(
            "Dir::Etc::SourceList \"/dev/null\";\nDir::Etc::SourceParts \"{root}/parts\";\n\
             Dir::State::Lists \"{root}/lists\";\nDir::Cache \"{root}/cache\";\nAPT::Sandbox::User \"\";\n"
        ),
    )?;
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", &configuration).current_dir(folder.join("download"));
        command
    };
    run(apt().arg("update"), &folder.join("update.log"))?;
    let wanted = format!("{PACKAGE}/{SUITE}");
    run(apt().args(["source", "--download-only", &wanted]), &folder.join("source.log"))?;
    fs::copy(folder.join("download").join(ARCHIVE), target)
        .with_context(|| format!("the source package holds no `{ARCHIVE}`: the suite has moved on"))?;
    Ok(())
}

/// One Debian mirror of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    address: String,
    signed_by: Option<String>,
}

impl Mirror {
    /// The same mirror's sources of [`SUITE`].
    fn stanza(&self) -> String {
        let signed_by = self.signed_by.as_ref().map(|keyring| format!("Signed-By: {keyring}\n")).unwrap_or_default();
        format!("Types: deb-src\nURIs: {}\nSuites: {SUITE}\nComponents: main\n{signed_by}", self.address)
    }
}

/// The mirrors of Debian proper that a machine's apt sources name.
fn mirrors(folder: &Path) -> Result<Vec<Mirror>> {
    let mut files = vec![folder.join("sources.list")];
    if let Ok(entries) = fs::read_dir(folder.join("sources.list.d")) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let mirrors = if file.extension().is_some_and(|end| end == "sources") { stanzas(&text) } else { lines(&text) };
        for mirror in mirrors {
            if is_debian(&mirror.address) && !found.contains(&mirror) {
                found.push(mirror);
            }
        }
    }
    Ok(found)
}

/// Debian's archive proper, by the folder that every mirror of it has.
fn is_debian(address: &str) -> bool {
    address.trim_end_matches('/').ends_with("/debian")
}

/// Reads the one-line format: `deb [options] address suite components`.
fn lines(text: &str) -> Vec<Mirror> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| line.starts_with("deb")) {
        let (options, rest) = match (line.find('['), line.find(']')) {
            (Some(open), Some(close)) if open < close => (&line[open + 1..close], &line[close + 1..]),
            _ => ("", line.split_once(char::is_whitespace).map_or("", |(_, rest)| rest)),
        };
        let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
        if let Some(address) = rest.split_whitespace().next() {
            found.push(Mirror { address: address.to_owned(), signed_by: signed_by.map(str::to_owned) });
        }
    }
    found
}

/// Reads the format of stanzas.
fn stanzas(text: &str) -> Vec<Mirror> {
    let mut found = Vec::new();
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            stanza
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(|value| value.trim().to_owned())
        };
        let signed_by = field("Signed-By").filter(|value| !value.is_empty());
        for address in field("URIs").unwrap_or_default().split_whitespace() {
            found.push(Mirror { address: address.to_owned(), signed_by: signed_by.clone() });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Mirror, is_debian, lines, stanzas};

    #[test]
    fn both_formats_name_their_mirrors() {
        let mirror = Mirror { address: "http://mirror.test/debian".to_owned(), signed_by: Some("/k.gpg".to_owned()) };
        assert_eq!(
            lines("# no\ndeb [arch=amd64 signed-by=/k.gpg] http://mirror.test/debian stable main\n"),
            std::slice::from_ref(&mirror)
        );
        assert_eq!(
            stanzas(
                "Types: deb\n# note\nURIs: http://mirror.test/debian\nSuites: x\nSigned-By: /k.gpg\n\nTypes: deb\n"
            ),
            [mirror]
        );
        assert_eq!(lines("deb http://mirror.test/debian stable main")[0].signed_by, None);
    }

    #[test]
    fn only_debian_proper_has_the_source() {
        assert!(is_debian("http://mirror.test/debian/"));
        assert!(!is_debian("http://mirror.test/debian-security"));
        assert!(!is_debian("http://packages.test/apt"));
    }
}
