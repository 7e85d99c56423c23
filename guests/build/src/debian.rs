//! Original archives inside Debian's source packages.
//!
//! Debian mirrors carry what a project published unchanged. Which mirror is asked is up to the machine: the address comes
//! from its own apt sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process::run;
use crate::workshop::Workshop;

/// The archive of what a project published.
#[derive(Debug)]
pub(crate) struct Original {
    pub(crate) package: &'static str,
    /// The release whose source package has this version.
    pub(crate) suite: &'static str,
    /// The archive's file name in the source package.
    pub(crate) archive: &'static str,
    pub(crate) sha256: &'static str,
    /// Variable of the environment that names the file when it was fetched by other means.
    pub(crate) variable: &'static str,
}

impl Original {
    /// The archive, fetched unless the cache has it.
    pub(crate) fn fetch(&self, workshop: &Workshop) -> Result<PathBuf> {
        let Self { package, suite, archive, sha256, variable } = self;
        workshop.file_source(archive, sha256, |target| {
            if let Some(path) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
                fs::copy(&path, target).with_context(|| format!("could not copy {variable}={}", path.display()))?;
                return Ok(());
            }
            fetch(self, target).with_context(|| {
                format!(
                    "Debian's source package `{package}` of suite `{suite}` could not be fetched. Fetch its `{archive}` \
                     yourself, SHA-256 {sha256}, and set {variable} to its path"
                )
            })
        })
    }
}

/// A package as Debian has built it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Package {
    /// Folder below `pool` of the mirror.
    pub(crate) pool: &'static str,
    pub(crate) file: &'static str,
    pub(crate) sha256: &'static str,
    /// Variable of the environment that names the file when it was fetched by other means.
    pub(crate) variable: &'static str,
}

impl Package {
    /// The package's file, fetched unless the cache has it.
    pub(crate) fn fetch(&self, workshop: &Workshop) -> Result<PathBuf> {
        let Self { pool, file, sha256, variable } = self;
        workshop.file_source(file, sha256, |target| {
            if let Some(path) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
                fs::copy(&path, target).with_context(|| format!("could not copy {variable}={}", path.display()))?;
                return Ok(());
            }
            let mirrors = mirrors(Path::new("/etc/apt"))?;
            let log = target.with_extension("log");
            let fetched = mirrors.iter().any(|mirror| {
                let address = format!("{}/pool/{pool}/{file}", mirror.address.trim_end_matches('/'));
                run(Command::new("/usr/lib/apt/apt-helper").arg("download-file").arg(address).arg(target), &log).is_ok()
            });
            ensure!(
                fetched,
                "`{file}` could not be fetched from the {} mirror(s) of /etc/apt. Fetch it yourself, SHA-256 {sha256}, and set {variable} to its path",
                mirrors.len()
            );
            Ok(())
        })
    }
}

/// Lets apt fetch the source package with a configuration of its own, which leaves the machine's as it is.
fn fetch(original: &Original, target: &Path) -> Result<()> {
    let folder = target.parent().context("the target needs a folder")?.join("apt");
    let mirrors = mirrors(Path::new("/etc/apt"))?;
    ensure!(!mirrors.is_empty(), "/etc/apt names no Debian mirror");
    let mut failures = Vec::new();
    for mirror in &mirrors {
        match fetch_from(original, mirror, &folder, target) {
            Ok(()) => return Ok(()),
            Err(error) => failures.push(format!("{}: {error:#}", mirror.address)),
        }
    }
    bail!("tried {} mirror(s) of /etc/apt:\n{}", mirrors.len(), failures.join("\n"))
}

fn fetch_from(original: &Original, mirror: &Mirror, folder: &Path, target: &Path) -> Result<()> {
    for part in ["parts", "lists/partial", "cache/archives/partial", "download"] {
        fs::create_dir_all(folder.join(part))?;
    }
    fs::write(folder.join("parts/source.sources"), mirror.stanza(original.suite))?;
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
    let wanted = format!("{}/{}", original.package, original.suite);
    run(apt().args(["source", "--download-only", "--tar-only", &wanted]), &folder.join("source.log"))?;
    fs::copy(folder.join("download").join(original.archive), target)
        .with_context(|| format!("the source package holds no `{}`: the suite has moved on", original.archive))?;
    Ok(())
}

/// One Debian mirror of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    address: String,
    signed_by: Option<String>,
}

impl Mirror {
    /// The same mirror's sources of a release.
    fn stanza(&self, suite: &str) -> String {
        let signed_by = self.signed_by.as_ref().map(|keyring| format!("Signed-By: {keyring}\n")).unwrap_or_default();
        format!("Types: deb-src\nURIs: {}\nSuites: {suite}\nComponents: main\n{signed_by}", self.address)
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
