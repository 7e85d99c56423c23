//! Python packages: pip resolves and fetches wheels for every machine, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use sha2::Sha256;

use crate::{
    LOCKED_MAX, PackageError, PackageStore,
    archive::Unpacking,
    built_in::{self, BuiltIn},
    client::{Client, Said},
    lock::{Lock, PythonEntry, is_version},
    metadata::Metadata,
    names::{Registry, Wanted, is_python_name, normal},
    tree,
};

/// Wheels for every machine, as CPython 3.13 takes them; nothing is built.
const ONLY_PURE: [&str; 11] = [
    "--only-binary",
    ":all:",
    "--platform",
    "any",
    "--python-version",
    "3.13",
    "--implementation",
    "py",
    "--abi",
    "none",
    "--no-input",
];
/// Suffix of the names of wheels for every machine.
const PURE: &str = "-none-any.whl";
/// Maximum number of packages that are probed for native code.
const PROBES_MAX: usize = 20;
/// Folder of unpacked packages, below the folder of all fetched packages.
pub(crate) const UNPACKED: &str = "python";

/// A package as it will be locked.
#[derive(Debug)]
pub(crate) struct Unpacked {
    name: String,
    /// Folder with the unpacked files; absent if the store already has the package.
    folder: Option<PathBuf>,
    entry: PythonEntry,
}

impl Unpacked {
    pub(crate) fn is_new(&self) -> bool {
        self.folder.is_some()
    }
}

/// A place in which pip works.
struct Work<'a> {
    store: &'a PackageStore,
    lock: &'a Lock,
    pip: Client,
    /// Working directory of pip. It is empty, so that no name can refer to a file in it.
    empty: PathBuf,
    wheels: PathBuf,
    unpacked: PathBuf,
}

/// Resolves the wanted packages with pip together with those that were requested before, fetches them, and unpacks those
/// that the store does not have. Packages that are `built_in` count as there; returns those that are needed besides.
pub(crate) async fn fetch(
    store: &PackageStore,
    lock: &Lock,
    place: &Path,
    wanted: &[Wanted],
    built_in: &[BuiltIn],
) -> Result<(Vec<Unpacked>, Vec<BuiltIn>), PackageError> {
    let work = Work::new(store, lock, place).await?;
    let there = place.join("built-in");
    built_in::write_wheels(&there, built_in, wanted)?;
    let others = lock.python.iter().filter(|(name, _)| !wanted.iter().any(|wanted| wanted.name == **name));
    let (mut requirements, mut constraints) = (Vec::new(), String::new());
    for (name, PythonEntry { version, asked, .. }) in others {
        match asked {
            Some(extras) if extras.is_empty() => requirements.push(format!("{name}=={version}")),
            Some(extras) => {
                let extras = extras.iter().map(String::as_str).collect::<Vec<_>>().join(",");
                requirements.push(format!("{name}[{extras}]=={version}"));
            }
            None => constraints.push_str(&format!("{name}=={version}\n")),
        }
    }
    requirements.extend(wanted.iter().map(|wanted| wanted.text.clone()));
    let held = place.join("constraints.txt");
    fs::write(&held, &constraints).map_err(PackageError::store(&held))?;
    let (held, there_) = (held.to_string_lossy(), there.to_string_lossy());
    let found = ["--find-links", &there_];
    let mut said = work.download(&[&found[..], &["--constraint", &held]].concat(), &requirements).await?;
    if !said.succeeded && !constraints.is_empty() {
        // What nobody asked for by its name may be brought up to date with what needs it.
        said = work.download(&found, &requirements).await?;
    }
    if !said.succeeded {
        return Err(why(&work, wanted, &said).await);
    }
    let needed = built_in::take_away(&there, &work.wheels, built_in)?;
    let unpacked = work.unpack(|name| {
        let before = lock.python.get(name).and_then(|entry| entry.asked.clone());
        let mut asked = wanted.iter().filter(|wanted| wanted.name == name).peekable();
        match (asked.peek().is_some(), before) {
            (false, before) => before,
            (true, before) => {
                let extras = asked.flat_map(|wanted| wanted.extras.iter().cloned());
                Some(before.into_iter().flatten().chain(extras).collect())
            }
        }
    })?;
    if unpacked.len() > LOCKED_MAX {
        let said = format!("that makes {} packages, at most {LOCKED_MAX} are kept", unpacked.len());
        return Err(PackageError::Unresolved { client: "pip", asked: asked(wanted), said });
    }
    check_newest(&work, wanted, &unpacked).await?;
    Ok((unpacked, needed))
}

/// Refuses a version of a wanted package that is not the newest, unless the caller said which version is wanted: resolvers go
/// back years until they find one that needs nothing that is not there.
async fn check_newest(work: &Work<'_>, wanted: &[Wanted], unpacked: &[Unpacked]) -> Result<(), PackageError> {
    let open: Vec<&Wanted> = wanted.iter().filter(|wanted| !wanted.has_version()).collect();
    if open.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = open.iter().map(|wanted| wanted.name.as_str()).collect();
    // Without a target, older versions of pip do not look for another Python. Nothing is installed there.
    let nowhere = work.empty.join("nowhere");
    let nowhere = nowhere.to_string_lossy();
    let found =
        work.newest(&["--no-deps", "--python-version", "3.13", "--target", &nowhere], &names).await.unwrap_or_default();
    for Install { metadata, .. } in found {
        let name = normal(&metadata.name);
        let Some(own) = unpacked.iter().find(|own| own.name == name) else { continue };
        if is_version(&metadata.version) && own.entry.version != metadata.version.replace('-', "_") {
            let (version, newest) = (own.entry.version.clone(), metadata.version);
            return Err(PackageError::Outdated { name, version, newest });
        }
    }
    Ok(())
}

/// Fetches the locked packages that the store does not have, each by its hash.
pub(crate) async fn fetch_locked(
    store: &PackageStore,
    lock: &Lock,
    place: &Path,
) -> Result<Vec<Unpacked>, PackageError> {
    let is_missing = |entry: &PythonEntry| !store.is_whole(Registry::Python, &entry.sha256, &entry.files);
    let missing: Vec<_> = lock.python.iter().filter(|(_, entry)| is_missing(entry)).collect();
    let mut unpacked = Vec::new();
    if !missing.is_empty() {
        let work = Work::new(store, lock, place).await?;
        let list = place.join("locked.txt");
        let lines =
            missing.iter().map(|(name, entry)| format!("{name}=={} --hash=sha256:{}\n", entry.version, entry.sha256));
        fs::write(&list, lines.collect::<String>()).map_err(PackageError::store(&list))?;
        let list = list.to_string_lossy();
        let said = work.download(&["--no-deps", "--require-hashes", "--requirement", &list], &[]).await?;
        if !said.succeeded {
            let asked = missing.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(PackageError::Unresolved { client: "pip", asked, said: said.end() });
        }
        unpacked = work.unpack(|name| lock.python.get(name).and_then(|entry| entry.asked.clone()))?;
    }
    let is_there = |name: &str| unpacked.iter().any(|each| each.name == name);
    let others = lock.python.iter().filter(|(name, _)| !is_there(name));
    let others: Vec<_> =
        others.map(|(name, entry)| Unpacked { name: name.clone(), folder: None, entry: entry.clone() }).collect();
    unpacked.extend(others);
    Ok(unpacked)
}

impl<'a> Work<'a> {
    async fn new(store: &'a PackageStore, lock: &'a Lock, place: &Path) -> Result<Work<'a>, PackageError> {
        let [empty, wheels, unpacked] = ["empty", "wheels", UNPACKED].map(|name| place.join(name));
        for folder in [&empty, &wheels, &unpacked] {
            fs::create_dir(folder).map_err(PackageError::store(folder))?;
        }
        let pip = Client::pip(store.folder(), &empty).await?;
        Ok(Work { store, lock, pip, empty, wheels, unpacked })
    }

    async fn download(&self, options: &[&str], requirements: &[String]) -> Result<Said, PackageError> {
        let to = self.wheels.to_string_lossy();
        let mut arguments = vec!["download", "--quiet", "--dest", &to];
        arguments.extend(ONLY_PURE);
        arguments.extend(options);
        arguments.extend(requirements.iter().map(String::as_str));
        self.pip.run(&self.empty, &arguments).await
    }

    /// Returns what pip would install on this machine, with native code too; `None` if it says nothing of use.
    async fn newest(&self, options: &[&str], names: &[&str]) -> Option<Vec<Install>> {
        let mut probe = vec!["install", "--dry-run", "--ignore-installed", "--no-input", "--only-binary", ":all:"];
        probe.extend(["--report", "-", "--quiet"]);
        probe.extend(options);
        probe.extend(names);
        let report = self.pip.run(&self.empty, &probe).await.ok().filter(|report| report.succeeded)?;
        serde_json::from_str::<Report>(&report.out).ok().map(|report| report.install)
    }

    /// Unpacks the wheels that were fetched; `asked` says with which extras a package is asked for, if it is.
    fn unpack(&self, asked: impl Fn(&str) -> Option<BTreeSet<String>>) -> Result<Vec<Unpacked>, PackageError> {
        let read = || fs::read_dir(&self.wheels)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
        let mut paths = read().map_err(PackageError::store(&self.wheels))?;
        paths.sort_unstable();
        let one = |path: &PathBuf| {
            let mut unpacked = self.unpack_one(path)?;
            unpacked.entry.asked = asked(&unpacked.name);
            Ok(unpacked)
        };
        paths.iter().map(one).collect()
    }

    fn unpack_one(&self, wheel: &Path) -> Result<Unpacked, PackageError> {
        let file = wheel.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut parts = file.split('-');
        let (name, version) = (normal(parts.next().unwrap_or_default()), parts.next().unwrap_or_default().to_owned());
        let refused = |why: &str| PackageError::Archive { name: name.clone(), why: why.to_owned() };
        if !is_python_name(&name) || !is_version(&version) {
            return Err(refused("its file is not named as wheels are"));
        }
        if !file.ends_with(PURE) {
            return Err(PackageError::Native { name, found: file.to_owned() });
        }
        let sha256 = tree::hex(&tree::hash_of::<Sha256>(wheel).map_err(PackageError::store(wheel))?);
        if let Some(locked) = self.lock.python.get(&name) {
            if locked.sha256 == sha256 && self.store.is_whole(Registry::Python, &sha256, &locked.files) {
                return Ok(Unpacked { name, folder: None, entry: locked.clone() });
            }
            if locked.version == version && locked.sha256 != sha256 {
                let why = format!(
                    "version {version} was locked with another hash; if it may be another one now, remove the package and add it again"
                );
                return Err(refused(&why));
            }
        }
        let folder = self.unpacked.join(&name);
        // Of two wheels of one package the later one would win, or the other.
        fs::create_dir(&folder).map_err(|_| refused("it came twice"))?;
        Unpacking::new(&name, &folder).wheel(wheel)?;
        let metadata = Metadata::of(&folder).ok_or_else(|| refused("it has no metadata that can be read"))?;
        if metadata.name != name || metadata.version.replace('-', "_") != version {
            return Err(refused("its metadata is of another package, or of another version"));
        }
        let Metadata { requires, extras, .. } = metadata;
        let entry = PythonEntry { version, sha256, files: String::new(), requires, extras, asked: None };
        Ok(Unpacked { name, folder: Some(folder), entry })
    }
}

/// Moves the fetched packages into the store, and updates the lock.
pub(crate) fn keep(store: &PackageStore, lock: &mut Lock, unpacked: Vec<Unpacked>) -> Result<(), PackageError> {
    let mut python = BTreeMap::new();
    for Unpacked { name, folder, mut entry } in unpacked {
        if let Some(folder) = folder {
            entry.files = store.put(Registry::Python, &entry.sha256, &folder)?;
        }
        python.insert(name, entry);
    }
    let known: BTreeSet<String> = python.keys().cloned().collect();
    for entry in python.values_mut() {
        entry.requires.retain(|need| known.contains(&need.name));
        for needs in entry.extras.values_mut() {
            needs.retain(|need| known.contains(&need.name));
        }
        entry.extras.retain(|_, needs| !needs.is_empty());
    }
    lock.python = python;
    Ok(())
}

fn asked(wanted: &[Wanted]) -> String {
    wanted.iter().map(|wanted| wanted.text.as_str()).collect::<Vec<_>>().join(", ")
}

/// Explains why pip found no matching package: it tests whether packages with native code exist.
async fn why(work: &Work<'_>, wanted: &[Wanted], said: &Said) -> PackageError {
    let names: Vec<&str> = wanted.iter().map(|wanted| wanted.text.as_str()).collect();
    let found = work.newest(&[], &names).await.unwrap_or_default();
    let urls = found.into_iter().map(|each| each.download_info.url);
    let files = urls.filter_map(|url| Some(url.split(['#', '?']).next()?.rsplit('/').next()?.to_owned()));
    for file in files.filter(|file| !file.ends_with(PURE)).take(PROBES_MAX) {
        let mut parts = file.split('-');
        let (name, version) = (normal(parts.next().unwrap_or_default()), parts.next().unwrap_or_default());
        // It may have a wheel for every machine besides.
        let same = format!("{name}=={version}");
        let is_native = is_python_name(&name)
            && is_version(version)
            && work.download(&["--no-deps"], &[same]).await.is_ok_and(|said| !said.succeeded);
        if is_native {
            return PackageError::Native { name, found: file.chars().take(200).collect() };
        }
    }
    PackageError::Unresolved { client: "pip", asked: asked(wanted), said: said.end() }
}

/// Report of pip on the packages that it would install.
#[derive(Deserialize)]
struct Report {
    install: Vec<Install>,
}

#[derive(Deserialize)]
struct Install {
    download_info: DownloadInfo,
    metadata: Named,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct DownloadInfo {
    url: String,
}
