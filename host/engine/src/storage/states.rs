//! The states of a session that are kept: a tree, each state with the memory of all kernels and the files of one instant.
//!
//! ```text
//! <states>/index     the tree, as JSON: written beside, synced, renamed, and the folder synced
//!         /going     number of the state that the files are being taken back to
//!         /<number>  one state: its snapshot without the chunks of memory, and its files without their contents
//!         /contents/ chunks and contents of files, each once, by their hashes
//! ```
//!
//! A state is there when the index has it, and the index has it when all else is on the disk. What was written for a state that
//! the index has not is removed when the states are opened.

pub(crate) mod files;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use cellar_core::{
    cell::{Language, RunId},
    files::{Durability, PRIVATE, replace_with},
};
use serde::{Deserialize, Serialize};

use crate::{
    contract::{config::HistoryOptions, error::Error},
    formats::{
        header::FileKind,
        snapshot::{Snapshot, SnapshotError, fingerprint},
        stranger::bounded,
    },
    storage::workspace::OwnFolder,
};
use files::{Files, Hash, Scan};

const STATE: FileKind = FileKind { name: "state of a session", letter: b'n', version: 1 };
const INDEX: &str = "index";
const GOING: &str = "going";
const CONTENTS: &str = "contents";
const INDEX_VERSION: u32 = 1;
/// States of a session, whatever is pinned.
const STATES_MAX: usize = 10_000;
/// Chunks of a snapshot: the largest memory of every language, and some.
const CHUNKS_MAX: usize = 64 << 10;
/// Longest name of a state, in characters.
const NAME_CHARACTERS_MAX: usize = 100;
const CHECKSUM_BYTES: usize = 16;

/// A state of a session that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateInfo {
    /// Its number: the first state has 1, and no two have the same.
    pub number: u64,
    /// The state that it came from, or the nearest one before that is still kept; `None` for one that has none.
    pub parent: Option<u64>,
    /// Nanoseconds since the Unix epoch.
    taken_at: u64,
    /// Run of the cell that ended with it.
    pub run: Option<String>,
    /// Number of that cell.
    pub cell: Option<u32>,
    #[serde(with = "codes")]
    languages: Vec<Language>,
    #[serde(with = "code")]
    language: Option<Language>,
    /// Bytes of its memory and its files, as they are kept.
    pub bytes: u64,
    /// Bytes of it that no state before it had.
    pub added_bytes: u64,
    /// Its name, if it was given one.
    pub name: Option<String>,
    /// True if it is kept until it is unpinned or forgotten.
    pub is_pinned: bool,
}

impl StateInfo {
    /// Time when it was taken.
    pub fn taken_at(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_nanos(self.taken_at)).unwrap_or(UNIX_EPOCH)
    }

    /// Language of the cell that ended with it.
    pub fn language(&self) -> Option<Language> {
        self.language
    }

    /// The languages that have a kernel in it.
    pub fn languages(&self) -> &[Language] {
        &self.languages
    }

    fn stays(&self) -> bool {
        self.is_pinned || self.name.is_some()
    }
}

mod code {
    use super::{Deserialize as _, Language};

    pub(super) fn serialize<S: serde::Serializer>(language: &Option<Language>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(language.map_or("", Language::code))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Language>, D::Error> {
        Ok(Language::from_code(&String::deserialize(from)?))
    }
}

mod codes {
    use super::{Deserialize as _, Language};

    pub(super) fn serialize<S: serde::Serializer>(languages: &[Language], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(languages.iter().map(|language| language.code()))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Language>, D::Error> {
        let codes = Vec::<String>::deserialize(from)?;
        Ok(codes.iter().filter_map(|code| Language::from_code(code)).collect())
    }
}

/// The states of a session that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateList {
    /// Oldest first.
    pub states: Vec<StateInfo>,
    /// The state that the session is at, or was at before the cell that runs: the parent of the next one.
    pub current: Option<u64>,
    /// Guest paths of the writable folders of the host that the session was granted. States do not hold their files, and going
    /// back does not change them.
    pub outside: Vec<String>,
    /// Bytes of all states, what they share counted once.
    pub bytes: u64,
}

/// Change to a state that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateChange {
    /// Its new name; `Some(None)` takes the name away.
    pub name: Option<Option<String>>,
    /// True to keep it whatever comes after.
    pub is_pinned: Option<bool>,
}

/// Difference between two states in one of their parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Only the second has it.
    Added,
    /// Only the first has it.
    Removed,
    /// It differs.
    Changed,
}

impl Change {
    /// Compares two lists by key. Returns the keys that differ, in order.
    pub(crate) fn between<K: Ord + std::hash::Hash + Clone, V: PartialEq>(
        before: &HashMap<K, V>,
        after: &HashMap<K, V>,
    ) -> BTreeMap<K, Change> {
        let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Change::Removed));
        let other = after.iter().filter_map(|(key, value)| match before.get(key) {
            None => Some((key.clone(), Change::Added)),
            Some(earlier) if earlier != value => Some((key.clone(), Change::Changed)),
            Some(_) => None,
        });
        gone.chain(other).collect()
    }

    /// Stable word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Change::Added => "added",
            Change::Removed => "removed",
            Change::Changed => "changed",
        }
    }
}

/// Cell whose end is a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Producer {
    pub(crate) run: RunId,
    pub(crate) cell: u32,
    pub(crate) language: Language,
}

/// A state to keep.
#[derive(Debug)]
pub(crate) struct NewState {
    pub(crate) snapshot: Snapshot,
    pub(crate) scan: Scan,
    pub(crate) producer: Producer,
    /// As [`StateList::outside`].
    pub(crate) outside: Vec<String>,
    /// True if it came from none of the states that are kept.
    pub(crate) is_elsewhere: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Index {
    version: u32,
    next: u64,
    current: Option<u64>,
    outside: Vec<String>,
    bytes: u64,
    states: Vec<StateInfo>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    /// The snapshot before its chunks, and its checksum.
    snapshot: Vec<u8>,
    checksum: [u8; CHECKSUM_BYTES],
    #[serde(deserialize_with = "bounded::<_, _, CHUNKS_MAX>")]
    chunks: Vec<Hash>,
    files: Files,
}

/// The states of one session, in a folder that nobody else writes to.
#[derive(Debug)]
pub(crate) struct States {
    folder: PathBuf,
    durability: Durability,
    index: Index,
    /// Contents of each state.
    used: HashMap<u64, HashSet<Hash>>,
    /// All contents: their size, and the states that have them.
    all: HashMap<Hash, (u64, u32)>,
    /// Files that no state needs once the index is written.
    garbage: Vec<PathBuf>,
    /// Files of the state that was taken last.
    latest: Option<(u64, Files)>,
}

/// Reads the list of states in a folder, which a process may be writing to.
///
/// # Errors
/// `Store`, `Snapshot` when the index is damaged.
pub(crate) fn list(folder: &Path) -> Result<StateList, Error> {
    let Index { states, current, outside, bytes, .. } = read_index(folder)?;
    Ok(StateList { states, current, outside, bytes })
}

/// Returns true if a session in this folder was being taken back to a state when its process ended.
pub(crate) fn is_cut_short(folder: &Path) -> bool {
    folder.join(GOING).exists()
}

fn read_index(folder: &Path) -> Result<Index, Error> {
    let path = folder.join(INDEX);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Index::default()),
        Err(error) => return Err(failed(&path, "read")(error)),
    };
    let index: Index = serde_json::from_slice(&text).map_err(|error| corrupt(error.to_string()))?;
    match index.version == INDEX_VERSION {
        true => Ok(index),
        false => Err(corrupt(format!("its index has version {}", index.version))),
    }
}

impl States {
    /// Opens the states in a folder, which is made when it is missing. States of which something is missing are left out, and
    /// what belongs to none is removed.
    ///
    /// # Errors
    /// `Store`, `Snapshot` when the index is damaged.
    pub(crate) fn open(folder: PathBuf, durability: Durability) -> Result<States, Error> {
        let contents = folder.join(CONTENTS);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&contents);
        made.map_err(failed(&contents, "make"))?;
        let index = read_index(&folder)?;
        let (used, all, garbage) = (HashMap::new(), HashMap::new(), Vec::new());
        let mut states = States { folder, durability, index, used, all, garbage, latest: None };
        states.look().map_err(failed(&states.folder, "read"))?;
        Ok(states)
    }

    /// Finds out what is there, and removes the rest.
    fn look(&mut self) -> io::Result<()> {
        let mut there = HashMap::new();
        for entry in fs::read_dir(self.contents())? {
            let entry = entry?;
            match entry.file_name().to_str().and_then(files::hash_in) {
                Some(hash) => drop(there.insert(hash, entry.metadata()?.len())),
                None => fs::remove_file(entry.path())?,
            }
        }
        self.index.bytes = 0;
        let numbers: Vec<u64> = self.index.states.iter().map(|state| state.number).collect();
        for number in numbers {
            let head = self.read(number).ok();
            let used: Option<HashSet<Hash>> =
                head.as_ref().map(|head| head.chunks.iter().copied().chain(head.files.hashes()).collect());
            match used.filter(|used| used.iter().all(|hash| there.contains_key(hash))) {
                Some(used) => self.take_in(number, used, &there),
                None => self.take_out(number),
            }
        }
        let last = self.index.states.last().map(|state| state.number);
        self.latest = last.and_then(|number| Some((number, self.read(number).ok()?.files)));
        for hash in there.into_keys().filter(|hash| !self.all.contains_key(hash)) {
            fs::remove_file(self.contents().join(files::name(hash)))?;
        }
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if number.is_some_and(|number| !self.used.contains_key(&number)) {
                fs::remove_file(entry.path())?;
            }
        }
        self.garbage.clear();
        Ok(())
    }

    /// Counts the contents of a state.
    fn take_in(&mut self, number: u64, used: HashSet<Hash>, sizes: &HashMap<Hash, u64>) {
        for hash in &used {
            let (bytes, states) = self.all.entry(*hash).or_insert((sizes.get(hash).copied().unwrap_or(0), 0));
            if *states == 0 {
                self.index.bytes = self.index.bytes.saturating_add(*bytes);
            }
            *states = states.saturating_add(1);
        }
        self.used.insert(number, used);
    }

    /// Folder for contents.
    pub(crate) fn contents(&self) -> PathBuf {
        self.folder.join(CONTENTS)
    }

    /// Files of the state that was taken last, if it is still kept.
    pub(crate) fn latest(&self) -> Option<&Files> {
        self.latest.as_ref().map(|(_, files)| files)
    }

    /// The states and what is said of all of them.
    pub(crate) fn list(&self) -> StateList {
        let Index { states, current, outside, bytes, .. } = &self.index;
        StateList { states: states.clone(), current: *current, outside: outside.clone(), bytes: *bytes }
    }

    /// Number of a state that is named by its number, its name, or `~` and how many states it lies before the present one.
    ///
    /// # Errors
    /// `StateUnknown`.
    pub(crate) fn find(&self, state: &str) -> Result<u64, Error> {
        let unknown = || Error::StateUnknown(state.to_owned());
        let states = &self.index.states;
        if let Some(named) = states.iter().find(|each| each.name.as_deref() == Some(state)) {
            return Ok(named.number);
        }
        if let Some(steps) = state.strip_prefix('~') {
            let steps: usize = steps.parse().map_err(|_| unknown())?;
            let mut at = self.index.current.ok_or_else(unknown)?;
            for _ in 0..steps.min(STATES_MAX) {
                at = self.get(at).and_then(|state| state.parent).ok_or_else(unknown)?;
            }
            return Ok(at);
        }
        let number = state.parse().map_err(|_| unknown())?;
        self.get(number).map(|state| state.number).ok_or_else(unknown)
    }

    /// Information about one state.
    pub(crate) fn get(&self, number: u64) -> Option<&StateInfo> {
        let place = self.index.states.binary_search_by_key(&number, |state| state.number).ok()?;
        self.index.states.get(place)
    }

    /// Keeps a state. When this returns it is on the disk, if the states are to be. Returns its number.
    ///
    /// # Errors
    /// `Store`; then the states are as they were.
    pub(crate) fn keep(&mut self, new: NewState, options: &HistoryOptions) -> Result<u64, Error> {
        let NewState { snapshot, scan, producer, outside, is_elsewhere } = new;
        let number = self.index.next.max(1);
        let is_synced = self.durability == Durability::Synced;
        let folder = self.folder.clone();
        let store = |error| failed(&folder, "keep a state in")(error);
        let (files, found) = scan.finish(&self.contents(), is_synced).map_err(store)?;
        let mut sizes: HashMap<Hash, u64> = found.into_iter().collect();
        let bytes = snapshot.to_bytes();
        let chunks = Snapshot::chunks(&bytes).ok_or_else(|| corrupt("a snapshot cannot be taken apart"))?;
        let head_bytes = bytes.len().saturating_sub(chunks.iter().map(|chunk| chunk.len()).sum::<usize>());
        let (head, checksum) = split(&bytes, head_bytes).ok_or_else(|| corrupt("a snapshot has no end"))?;
        let mut hashes = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let hash = fingerprint(chunk);
            hashes.push(hash);
            if !self.all.contains_key(&hash) && sizes.insert(hash, chunk.len() as u64).is_none() {
                self.write(&self.contents().join(files::name(hash)), chunk).map_err(store)?;
            }
        }
        let used: HashSet<Hash> = hashes.iter().copied().chain(files.hashes()).collect();
        let memory_bytes = bytes.len() as u64;
        let head = Head { snapshot: head.to_vec(), checksum, chunks: hashes, files };
        let mut document = STATE.begin(&head);
        let end = fingerprint(&document);
        document.extend(end.to_le_bytes());
        self.write(&self.file(number), &document).map_err(store)?;
        if is_synced {
            File::open(self.contents()).and_then(|folder| folder.sync_all()).map_err(store)?;
        }
        let added = sizes.iter().filter(|(hash, _)| !self.all.contains_key(*hash)).map(|(_, bytes)| *bytes);
        let added_bytes = added.fold(document.len() as u64, u64::saturating_add);
        let info = StateInfo {
            number,
            parent: self.index.current.filter(|_| !is_elsewhere),
            taken_at: snapshot.taken_at_nanos,
            run: Some(producer.run.to_string()),
            cell: Some(producer.cell),
            languages: snapshot.languages(),
            language: Some(producer.language),
            bytes: memory_bytes.saturating_add(head.files.bytes()),
            added_bytes,
            name: None,
            is_pinned: false,
        };
        self.index.states.push(info);
        (self.index.next, self.index.current, self.index.outside) = (number.saturating_add(1), Some(number), outside);
        self.take_in(number, used, &sizes);
        self.latest = Some((number, head.files));
        self.thin_out(options);
        self.save()?;
        Ok(number)
    }

    /// Takes out what the rules do not keep.
    fn thin_out(&mut self, options: &HistoryOptions) {
        let last = options.last.max(1) as usize;
        let is_free = |state: &StateInfo, current| !state.stays() && Some(state.number) != current;
        let old = self.index.states.len().saturating_sub(last);
        let every = |number: u64| options.every.is_some_and(|every| number.is_multiple_of(u64::from(every.max(1))));
        let current = self.index.current;
        let old = self.index.states.iter().take(old).filter(|state| is_free(state, current) && !every(state.number));
        let old: Vec<u64> = old.map(|state| state.number).collect();
        old.into_iter().for_each(|number| self.take_out(number));
        while self.index.bytes > options.bytes_max || self.index.states.len() > STATES_MAX {
            let oldest = self.index.states.iter().find(|state| is_free(state, current)).map(|state| state.number);
            let Some(oldest) = oldest else { return };
            self.take_out(oldest);
        }
    }

    /// Takes a state out of the tree. Those that came from it come from its parent now.
    fn take_out(&mut self, number: u64) {
        let Ok(place) = self.index.states.binary_search_by_key(&number, |state| state.number) else { return };
        let parent = self.index.states.remove(place).parent;
        for child in self.index.states.iter_mut().filter(|state| state.parent == Some(number)) {
            child.parent = parent;
        }
        if self.index.current == Some(number) {
            self.index.current = parent;
        }
        self.latest.take_if(|(latest, _)| *latest == number);
        self.garbage.push(self.file(number));
        for hash in self.used.remove(&number).into_iter().flatten() {
            if let Some((bytes, states)) = self.all.get_mut(&hash) {
                *states = states.saturating_sub(1);
                if *states == 0 {
                    self.index.bytes = self.index.bytes.saturating_sub(*bytes);
                    self.all.remove(&hash);
                    self.garbage.push(self.contents().join(files::name(hash)));
                }
            }
        }
    }

    /// Writes the index, and then removes what no state needs any more.
    fn save(&mut self) -> Result<(), Error> {
        self.index.version = INDEX_VERSION;
        let garbage = std::mem::take(&mut self.garbage);
        let text = serde_json::to_vec(&self.index).unwrap_or_default();
        let path = self.folder.join(INDEX);
        replace_with(&path, &text, PRIVATE, self.durability).map_err(failed(&path, "write"))?;
        for path in garbage {
            // One that cannot be removed is found when the states are opened again.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    /// Names, pins or unpins a state.
    ///
    /// # Errors
    /// `StateUnknown`, `Request` for a name that another state has or that is none, `Store`.
    pub(crate) fn change(&mut self, state: &str, change: StateChange) -> Result<StateInfo, Error> {
        let number = self.find(state)?;
        let StateChange { name, is_pinned } = change;
        if let Some(Some(name)) = &name {
            check_name(name)?;
            if self.index.states.iter().any(|each| each.number != number && each.name.as_ref() == Some(name)) {
                return Err(Error::Request(format!("another state is named `{name}`")));
            }
        }
        let found = self.index.states.iter_mut().find(|each| each.number == number);
        let info = found.ok_or_else(|| Error::StateUnknown(state.to_owned()))?;
        info.name = name.unwrap_or(info.name.take());
        info.is_pinned = is_pinned.unwrap_or(info.is_pinned);
        let info = info.clone();
        self.save()?;
        Ok(info)
    }

    /// Forgets a state.
    ///
    /// # Errors
    /// `StateUnknown`, `Store`.
    pub(crate) fn forget(&mut self, state: &str) -> Result<(), Error> {
        let number = self.find(state)?;
        self.take_out(number);
        self.save()
    }

    /// Reads a state.
    ///
    /// # Errors
    /// `StateUnknown`, `Store`, `Snapshot` when it is damaged.
    pub(crate) fn load(&self, state: &str) -> Result<(StateInfo, Snapshot, Files), Error> {
        let number = self.find(state)?;
        let info = self.get(number).cloned().ok_or_else(|| Error::StateUnknown(state.to_owned()))?;
        let head = self.read(number)?;
        let mut bytes = head.snapshot;
        for hash in head.chunks {
            let path = self.contents().join(files::name(hash));
            bytes.extend(fs::read(&path).map_err(failed(&path, "read"))?);
        }
        bytes.extend(head.checksum);
        Ok((info, Snapshot::from_bytes(&bytes)?, head.files))
    }

    /// Takes folders back to the files of a state, and has the session be at that state. `settle` stores its memory between
    /// the two. Cut short at any point, whoever claims the session next finishes it: see [`States::going`].
    ///
    /// # Errors
    /// `StateUnknown`, `Store`, or what `settle` returns.
    pub(crate) fn go_back(
        &mut self,
        number: u64,
        files: &Files,
        folders: &[(OwnFolder, PathBuf)],
        settle: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let going = self.folder.join(GOING);
        let text = number.to_string();
        replace_with(&going, text.as_bytes(), PRIVATE, self.durability).map_err(failed(&going, "write"))?;
        files.restore(folders, &self.contents()).map_err(failed(&self.folder, "take files back to a state in"))?;
        settle()?;
        self.index.current = Some(number);
        self.save()?;
        fs::remove_file(&going).map_err(failed(&going, "remove"))
    }

    /// Number of the state that the files were being taken back to when the process ended.
    pub(crate) fn going(&self) -> Option<u64> {
        fs::read_to_string(self.folder.join(GOING)).ok()?.parse().ok()
    }

    /// Gives up going back to a state that is not there.
    pub(crate) fn give_up(&self) {
        let _ = fs::remove_file(self.folder.join(GOING));
    }

    fn file(&self, number: u64) -> PathBuf {
        self.folder.join(number.to_string())
    }

    fn read(&self, number: u64) -> Result<Head, Error> {
        let path = self.file(number);
        let bytes = fs::read(&path).map_err(failed(&path, "read"))?;
        let damaged = || corrupt("its file is damaged");
        let end = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or_else(damaged)?;
        let (document, checksum) = bytes.split_at(end);
        if fingerprint(document).to_le_bytes() != checksum {
            return Err(damaged());
        }
        let head_bytes = STATE.head_bytes(document).map_err(SnapshotError::from)?.ok_or_else(damaged)?;
        let (head, _) = crate::formats::header::split_head(document, head_bytes).ok_or_else(damaged)?;
        Ok(head)
    }

    /// Writes a file that nobody reads before the index has its state.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let folder = self.contents();
        let mut file = tempfile::Builder::new().prefix(files::UNFINISHED).tempfile_in(folder)?;
        file.write_all(bytes)?;
        if self.durability == Durability::Synced {
            file.as_file().sync_all()?;
        }
        file.persist(path)?;
        Ok(())
    }
}

/// The beginning of a snapshot, and its checksum, when what is between them has been taken out.
fn split(bytes: &[u8], outside: usize) -> Option<(&[u8], [u8; CHECKSUM_BYTES])> {
    let head = bytes.get(..outside.checked_sub(CHECKSUM_BYTES)?)?;
    let checksum = bytes.get(bytes.len().checked_sub(CHECKSUM_BYTES)?..)?;
    Some((head, checksum.try_into().ok()?))
}

/// Checks that a state can be named so.
fn check_name(name: &str) -> Result<(), Error> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    let is_number = name.chars().all(|c| c.is_ascii_digit());
    match !is_number && name.chars().count() <= NAME_CHARACTERS_MAX && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(Error::Request(format!(
            "`{name}` cannot name a state: a name has 1 to {NAME_CHARACTERS_MAX} letters, digits, spaces, `.`, `-` and `_`, and is no number"
        ))),
    }
}

fn corrupt(why: impl Into<String>) -> Error {
    Error::Snapshot(STATE.corrupt(why).into())
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Store { doing, path, source }
}
