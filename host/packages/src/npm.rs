//! npm packages: npm resolves them and fetches their archives. Scripts of packages are never run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::Sha512;

use crate::{
    LOCKED_MAX, PackageError, PackageStore,
    archive::Unpacking,
    client::{Client, ONLY_OF_REGISTRY},
    lock::{Lock, Npm, NpmEntry, is_place, is_version},
    names::{Registry, Wanted, is_npm_name},
    tree,
};

/// Packages that are fetched by one call of npm.
const AT_ONCE: usize = 100;

/// Result of npm: all packages, wanted ones and those of the store.
#[derive(Debug)]
pub(crate) struct Unpacked {
    npm: Npm,
    /// Hashes of archives, with the folders in which they were unpacked.
    new: BTreeMap<String, PathBuf>,
}

/// npm's lock file, as far as it is looked at.
#[derive(Deserialize)]
struct LockFile {
    packages: BTreeMap<String, Place>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Place {
    name: Option<String>,
    version: Option<String>,
    integrity: Option<String>,
    optional: bool,
    dev: bool,
    /// The processors that it runs on.
    cpu: Option<Value>,
    dependencies: BTreeMap<String, String>,
    peer_dependencies: BTreeMap<String, String>,
    optional_dependencies: BTreeMap<String, String>,
}

/// Resolves the wanted packages with npm together with those of the store, fetches new ones, and unpacks them in `place`.
pub(crate) async fn fetch(
    store: &PackageStore,
    lock: &Lock,
    place: &Path,
    wanted: &[Wanted],
) -> Result<Unpacked, PackageError> {
    let project = place.join("project");
    let prepare = || {
        fs::create_dir(&project)?;
        let package = json!({ "name": "packages", "private": true, "dependencies": lock.npm.asked });
        fs::write(project.join("package.json"), package.to_string())?;
        match lock.npm.lockfile.is_null() {
            true => Ok(()),
            false => fs::write(project.join("package-lock.json"), lock.npm.lockfile.to_string()),
        }
    };
    prepare().map_err(PackageError::store(&project))?;
    let client = Client::npm();
    let named = wanted.iter().map(|wanted| wanted.text.as_str()).collect::<Vec<_>>().join(", ");
    let unresolved = |said| PackageError::Unresolved { client: "npm", asked: named.clone(), said };
    // Without a version, npm would keep the one that is there.
    let asked: Vec<String> = wanted
        .iter()
        .map(|wanted| if wanted.has_version() { wanted.text.clone() } else { format!("{}@latest", wanted.name) })
        .collect();
    let mut arguments =
        vec!["install", ONLY_OF_REGISTRY, "--package-lock-only", "--save-exact", "--omit=dev", "--omit=optional"];
    arguments.extend(asked.iter().map(String::as_str));
    let said = client.run(&project, &arguments).await?;
    if !said.succeeded {
        return Err(unresolved(said.end()));
    }
    let read = |name: &str| fs::read(project.join(name)).map_err(PackageError::store(project.join(name)));
    let lockfile: Value =
        serde_json::from_slice(&read("package-lock.json")?).map_err(|error| unresolved(error.to_string()))?;
    let package: Map<String, Value> =
        serde_json::from_slice(&read("package.json")?).map_err(|error| unresolved(error.to_string()))?;
    let resolved: LockFile = serde_json::from_value(lockfile.clone()).map_err(|error| unresolved(error.to_string()))?;
    let of_package = package.get("dependencies").cloned().unwrap_or_default();
    let npm = Npm {
        asked: serde_json::from_value(of_package).map_err(|error| unresolved(error.to_string()))?,
        places: places(resolved)?,
        lockfile,
    };
    let new = fetch_archives(store, lock, place, &npm).await?;
    Ok(Unpacked { npm, new })
}

/// Fetches the locked packages that the store does not have, each by its hash.
pub(crate) async fn fetch_locked(store: &PackageStore, lock: &Lock, place: &Path) -> Result<Unpacked, PackageError> {
    let new = fetch_archives(store, lock, place, &lock.npm).await?;
    Ok(Unpacked { npm: lock.npm.clone(), new })
}

fn own_name(path: &str) -> String {
    path.rsplit("node_modules/").next().unwrap_or(path).to_owned()
}

/// Returns the packages of npm's lock file, except those that are not needed.
fn places(file: LockFile) -> Result<BTreeMap<String, NpmEntry>, PackageError> {
    let mut places = BTreeMap::new();
    // What has a package for each kind of processor does its work there.
    let of_processors: BTreeSet<String> =
        file.packages.iter().filter(|(_, place)| place.cpu.is_some()).map(|(path, _)| own_name(path)).collect();
    for (path, place) in file.packages {
        if path.is_empty() || place.optional || place.dev {
            continue;
        }
        let own = place.name.unwrap_or_else(|| own_name(&path));
        if let Some(found) = place.optional_dependencies.keys().find(|name| of_processors.contains(*name)) {
            return Err(PackageError::Native { name: format!("npm:{own}"), found: found.clone() });
        }
        let refused = |why: &str| PackageError::Archive { name: own.clone(), why: why.to_owned() };
        let version = place.version.unwrap_or_default();
        if !is_place(&path) || !is_npm_name(&own) || !is_version(&version) || places.len() >= LOCKED_MAX {
            return Err(refused("npm puts it where no package can be"));
        }
        let integrity = place.integrity.as_deref().unwrap_or_default();
        let hash = integrity.split_whitespace().find_map(|each| each.strip_prefix("sha512-"));
        let hash = hash.and_then(|text| BASE64_STANDARD.decode(text).ok()).filter(|bytes| bytes.len() == 64);
        let hash = hash.ok_or_else(|| refused("the registry names no SHA-512 of it"))?;
        let requires = place.dependencies.into_keys().chain(place.peer_dependencies.into_keys());
        let optional = place.optional_dependencies;
        let requires: BTreeSet<String> = requires.filter(|name| !optional.contains_key(name)).collect();
        let entry = NpmEntry { name: own, version, sha512: tree::hex(&hash), files: String::new(), requires };
        places.insert(path, entry);
    }
    Ok(places)
}

/// Fetches and unpacks the archives that the store has not.
async fn fetch_archives(
    store: &PackageStore,
    lock: &Lock,
    place: &Path,
    npm: &Npm,
) -> Result<BTreeMap<String, PathBuf>, PackageError> {
    let files = files_by_hash(lock);
    let is_new = |entry: &&NpmEntry| {
        !files.get(entry.sha512.as_str()).is_some_and(|files| store.is_whole(Registry::Npm, &entry.sha512, files))
    };
    let entries = npm.places.values().filter(is_new);
    let new: BTreeMap<&str, &NpmEntry> = entries.map(|entry| (entry.sha512.as_str(), entry)).collect();
    let archives = place.join("archives");
    fs::create_dir(&archives).map_err(PackageError::store(&archives))?;
    let specs: Vec<String> = new.values().map(|entry| format!("{}@{}", entry.name, entry.version)).collect();
    for some in specs.chunks(AT_ONCE) {
        let to = archives.to_string_lossy();
        let mut arguments = vec!["pack", "--silent", "--pack-destination", &to];
        arguments.extend(some.iter().map(String::as_str));
        let said = Client::npm().run(&archives, &arguments).await?;
        if !said.succeeded {
            return Err(PackageError::Unresolved { client: "npm", asked: some.join(", "), said: said.end() });
        }
    }
    let mut folders = BTreeMap::new();
    let listed = fs::read_dir(&archives).map_err(PackageError::store(&archives))?;
    for (number, listed) in listed.enumerate() {
        let path = listed.map_err(PackageError::store(&archives))?.path();
        let hash = tree::hex(&tree::hash_of::<Sha512>(&path).map_err(PackageError::store(&path))?);
        let Some(entry) = new.get(hash.as_str()) else { continue };
        let target = place.join(format!("npm-{number}"));
        fs::create_dir(&target).map_err(PackageError::store(&target))?;
        Unpacking::new(&format!("npm:{}", entry.name), &target).tarball(&path)?;
        folders.insert(hash, target);
    }
    match new.iter().find(|(hash, _)| !folders.contains_key(**hash)) {
        Some((_, entry)) => {
            let why = "what was fetched is not what its registry names the hash of".to_owned();
            Err(PackageError::Archive { name: entry.name.clone(), why })
        }
        None => Ok(folders),
    }
}

/// Returns the hashes of the files of packages by the hashes of their archives.
fn files_by_hash(lock: &Lock) -> BTreeMap<&str, &str> {
    lock.npm.places.values().map(|entry| (entry.sha512.as_str(), entry.files.as_str())).collect()
}

/// Moves the fetched packages into the store, and updates the lock.
pub(crate) fn keep(store: &PackageStore, lock: &mut Lock, unpacked: Unpacked) -> Result<(), PackageError> {
    let Unpacked { mut npm, new } = unpacked;
    let mut files: BTreeMap<String, String> =
        files_by_hash(lock).into_iter().map(|(hash, files)| (hash.to_owned(), files.to_owned())).collect();
    for (hash, folder) in new {
        let found = store.put(Registry::Npm, &hash, &folder)?;
        files.insert(hash, found);
    }
    for entry in npm.places.values_mut() {
        entry.files = files.get(&entry.sha512).cloned().unwrap_or_default();
    }
    lock.npm = npm;
    Ok(())
}
