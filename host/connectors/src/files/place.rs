//! Location of files: a folder or an object store.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use bytes::Bytes;
use cap_std::{ambient_authority, fs::Dir};
use cellar_tables::reading::ReadAt;
use futures::TryStreamExt;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, path::Path as Key};
use tokio::runtime::Handle;

use crate::{
    Objects,
    error::{FetchError, FetchFault},
    objects::what,
};

/// Maximum number of files of one fetch.
const FILES_MAX: usize = 10_000;
/// Maximum number of files and folders that a search visits.
const ENTRIES_MAX: usize = 100_000;
/// Maximum depth of folders that a search descends into.
const DEPTH_MAX: usize = 16;
/// Size of the blocks in which an object is read.
const BLOCK_BYTES: u64 = 2 << 20;
/// Maximum number of blocks of an open object that are cached.
const BLOCKS_MAX: usize = 32;

/// Location of the files of a connector.
#[derive(Clone)]
pub(super) enum Place {
    Folder(Arc<Path>),
    Objects(Objects),
}

/// An open location, while a thread that may block searches and reads files.
pub(super) enum Opened {
    Folder(Dir),
    Objects {
        store: Arc<dyn ObjectStore>,
        runtime: Handle,
        deadline: Instant,
        /// Objects that were found.
        found: BTreeMap<String, ObjectMeta>,
        /// Last error of the store.
        fault: Arc<Mutex<Option<String>>>,
    },
}

impl Place {
    /// Opens the location. Requests to object stores run on `runtime`, until `deadline`.
    pub(super) fn open(&self, runtime: &Handle, deadline: Instant) -> Result<Opened, FetchError> {
        match self {
            Place::Folder(folder) => match Dir::open_ambient_dir(folder, ambient_authority()) {
                Ok(dir) => Ok(Opened::Folder(dir)),
                Err(_) => Err(FetchError::failed("the folder of the connector cannot be opened")),
            },
            Place::Objects(objects) => Ok(Opened::Objects {
                store: Arc::clone(objects.store()),
                runtime: runtime.clone(),
                deadline,
                found: BTreeMap::new(),
                fault: Arc::default(),
            }),
        }
    }
}

impl Opened {
    /// The files that a pattern names, in order.
    pub(super) fn find(&mut self, pattern: &str) -> Result<Vec<String>, FetchError> {
        // A pattern was checked when the connector was made.
        let matcher = glob::Pattern::new(pattern).map_err(|_| FetchError::failed("`path` is no pattern"))?;
        let options = glob::MatchOptions {
            require_literal_separator: true,
            require_literal_leading_dot: true,
            ..glob::MatchOptions::new()
        };
        let is_named = |path: &str| matcher.matches_with(path, options);
        let mut paths = match self {
            Opened::Folder(dir) => paths_in(dir, is_named)?,
            Opened::Objects { store, runtime, deadline, found, .. } => {
                let listed = listed(Arc::clone(store), pattern);
                let listed = runtime.block_on(tokio::time::timeout_at((*deadline).into(), listed));
                let listed = listed.unwrap_or_else(|_| Err(FetchError::failed("the store does not answer in time")))?;
                let named = listed.into_iter().map(|meta| (meta.location.to_string(), meta));
                *found = named.filter(|(path, _)| is_named(path)).collect();
                found.keys().cloned().collect()
            }
        };
        if paths.len() > FILES_MAX {
            return Err(FetchError::new(
                FetchFault::Limit,
                format!("{} files are more than the {FILES_MAX} of a fetch", paths.len()),
            ));
        }
        paths.sort();
        Ok(paths)
    }

    /// Opens a file that was found.
    pub(super) fn file(&self, path: &str) -> Result<FileOf, FetchError> {
        let cannot = || FetchError::failed(format!("`{path}` cannot be opened"));
        match self {
            Opened::Folder(dir) => Ok(FileOf::File(Arc::new(dir.open(path).map_err(|_| cannot())?.into_std()))),
            Opened::Objects { store, runtime, deadline, found, fault } => Ok(FileOf::Object(Arc::new(ObjectFile {
                store: Arc::clone(store),
                meta: found.get(path).ok_or_else(cannot)?.clone(),
                runtime: runtime.clone(),
                deadline: *deadline,
                blocks: Mutex::default(),
                fault: Arc::clone(fault),
            }))),
        }
    }

    /// Takes the last error of the store, which is the reason why a file could not be read.
    pub(super) fn fault(&self) -> Option<String> {
        match self {
            Opened::Folder(_) => None,
            Opened::Objects { fault, .. } => fault.lock().unwrap_or_else(PoisonError::into_inner).take(),
        }
    }
}

fn paths_in(dir: &Dir, is_named: impl Fn(&str) -> bool) -> Result<Vec<String>, FetchError> {
    let (mut found, mut folders, mut looked) = (Vec::new(), vec![(String::new(), 0_usize)], 0_usize);
    while let Some((folder, depth)) = folders.pop() {
        let inner = if folder.is_empty() { ".".to_owned() } else { folder.clone() };
        let Ok(entries) = dir.read_dir(&inner) else { continue };
        for entry in entries.flatten() {
            looked = looked.saturating_add(1);
            if looked > ENTRIES_MAX {
                return Err(too_many());
            }
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            // Links are followed as far as they lead to within the folder; `Dir` refuses others.
            let Ok(metadata) = dir.metadata(&path) else { continue };
            if metadata.is_dir() && depth < DEPTH_MAX {
                folders.push((path, depth.saturating_add(1)));
            } else if metadata.is_file() && is_named(&path) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// The objects below the part of a pattern that is no pattern.
async fn listed(store: Arc<dyn ObjectStore>, pattern: &str) -> Result<Vec<ObjectMeta>, FetchError> {
    let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
    let folder = literal.rsplit_once('/').map(|(folder, _)| Key::from(folder));
    let mut listed = store.list(folder.as_ref());
    let mut found = Vec::new();
    while let Some(meta) = listed.try_next().await.map_err(|error| FetchError::failed(failed(&what(&error))))? {
        if found.len() >= ENTRIES_MAX {
            return Err(too_many());
        }
        found.push(meta);
    }
    Ok(found)
}

fn too_many() -> FetchError {
    FetchError::new(FetchFault::Limit, format!("there are more than {ENTRIES_MAX} files to look at"))
}

fn failed(what: &str) -> String {
    format!("the object store fails: {what}")
}

/// A file that is read. Cheap to clone.
#[derive(Clone)]
pub(super) enum FileOf {
    File(Arc<File>),
    Object(Arc<ObjectFile>),
}

/// An object that is read in blocks, of which the most recently used are cached.
pub(super) struct ObjectFile {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    runtime: Handle,
    deadline: Instant,
    blocks: Mutex<VecDeque<(u64, Bytes)>>,
    fault: Arc<Mutex<Option<String>>>,
}

impl ObjectFile {
    fn block(&self, number: u64) -> io::Result<Bytes> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = blocks.iter().position(|(known, _)| *known == number)
            && let Some(block) = blocks.remove(place)
        {
            blocks.push_back(block.clone());
            return Ok(block.1);
        }
        let start = number.saturating_mul(BLOCK_BYTES);
        let end = start.saturating_add(BLOCK_BYTES).min(self.meta.size);
        let options = GetOptions {
            range: Some(GetRange::Bounded(start..end)),
            // Parts of two versions are no file.
            if_match: self.meta.e_tag.clone(),
            ..GetOptions::default()
        };
        let asked = async { self.store.get_opts(&self.meta.location, options).await?.bytes().await };
        let answer = self.runtime.block_on(tokio::time::timeout_at(self.deadline.into(), asked));
        let fault = match answer {
            Ok(Ok(bytes)) if Some(bytes.len() as u64) == end.checked_sub(start) => {
                if blocks.len() >= BLOCKS_MAX {
                    blocks.pop_front();
                }
                blocks.push_back((number, bytes.clone()));
                return Ok(bytes);
            }
            Ok(Ok(_)) => "it gives less than there is".to_owned(),
            Ok(Err(object_store::Error::Precondition { .. })) => "the object was changed while it was read".to_owned(),
            Ok(Err(error)) => what(&error),
            Err(_) => "it does not answer in time".to_owned(),
        };
        let fault = failed(&fault);
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault.clone());
        Err(io::Error::other(fault))
    }
}

impl ReadAt for FileOf {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            FileOf::File(file) => file.read_at(buffer, at),
            FileOf::Object(object) if at >= object.meta.size => Ok(0),
            FileOf::Object(object) => {
                let block = object.block(at / BLOCK_BYTES)?;
                let inner = usize::try_from(at % BLOCK_BYTES).unwrap_or(usize::MAX);
                let rest = block.get(inner..).unwrap_or_default();
                let length = rest.len().min(buffer.len());
                buffer[..length].copy_from_slice(&rest[..length]);
                Ok(length)
            }
        }
    }

    fn size(&self) -> u64 {
        match self {
            FileOf::File(file) => file.size(),
            FileOf::Object(object) => object.meta.size,
        }
    }
}
