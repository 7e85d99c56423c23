//! The remote procedures by which clients look after files.

use cellar_engine::Session;
use cellar_files::{FileError, FileKind, Files, OpenHow, ROOT, Stat};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{Call, files::Place, sandboxes::Sandbox, told, watch};
use crate::{
    problem::{Answer, Problem},
    tenant::on_a_thread,
};

/// Entries of a list.
const ENTRIES_MAX: usize = 10_000;
/// Folders within folders of a list.
const DEPTH_MAX: u64 = 64;

/// Operation on the files of a session.
type Work = Box<dyn FnOnce(&Session) -> Result<Value, Problem> + Send>;

/// Answers a call.
pub(super) async fn answer(mut call: Call, sandbox: Sandbox, procedure: &str) -> Answer {
    match procedure {
        "WatchDir" => return watch::stream(call, sandbox).await,
        "CreateWatcher" => return watch::create(call, sandbox).await,
        "GetWatcherEvents" => return watch::events(call, sandbox).await,
        "RemoveWatcher" => return watch::remove(call, sandbox).await,
        _ => {}
    }
    let object = call.object().await?;
    let place = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Place::of(""),
        Some(Value::String(path)) => Place::of(path),
        Some(_) => Err(Problem::bad(format!("`{name}` is a text"))),
    };
    let work: Work = match procedure {
        "Stat" => {
            let place = place("path")?;
            Box::new(move |session| Ok(json!({ "entry": entry(&mut session.files(), &place)? })))
        }
        "ListDir" => {
            let (place, depth) = (place("path")?, depth(&object)?);
            Box::new(move |session| Ok(json!({ "entries": list(&mut session.files(), place, depth)? })))
        }
        "MakeDir" => {
            let place = place("path")?;
            Box::new(move |session| make_folder(&mut session.files(), &place))
        }
        "Move" => {
            let (from, to) = (place("source")?, place("destination")?);
            Box::new(move |session| rename(&mut session.files(), &from, &to))
        }
        "Remove" => {
            let place = place("path")?;
            Box::new(move |session| remove(&mut session.files(), &place).map(|()| json!({})))
        }
        _ => return Err(Problem::new(StatusCode::NOT_FOUND, "unknown", "there is no such procedure")),
    };
    let session = call.account.tenant.session(&sandbox.id).await?.session;
    let value = on_a_thread(move || work(&session)).await??;
    Ok(told(StatusCode::OK, &value))
}

fn depth(object: &Map<String, Value>) -> Result<u64, Problem> {
    match object.get("depth") {
        None | Some(Value::Null) => Ok(1),
        Some(depth) => {
            let depth = depth.as_u64().filter(|depth| *depth <= u64::from(u32::MAX));
            let bad = || Problem::bad("`depth` is a whole number from 0 on");
            // Without one, it is 0.
            Ok(depth.ok_or_else(bad)?.clamp(1, DEPTH_MAX))
        }
    }
}

/// Returns the description of a file or folder for clients.
pub(super) fn entry(files: &mut Files, place: &Place) -> Result<Value, Problem> {
    let found = files.stat_at(ROOT, &place.guest, false).map_err(|error| place.fault(error))?;
    Ok(entry_json(files, place, &found))
}

fn entry_json(files: &mut Files, place: &Place, found: &Stat) -> Value {
    let is_link = found.kind == FileKind::SymbolicLink;
    let behind = if is_link { files.stat_at(ROOT, &place.guest, true).ok() } else { None };
    let kind = match behind.as_ref().unwrap_or(found).kind {
        FileKind::Directory => "FILE_TYPE_DIRECTORY",
        FileKind::SymbolicLink => "FILE_TYPE_SYMLINK",
        _ => "FILE_TYPE_FILE",
    };
    let (mode, permissions) = match found.kind {
        FileKind::Directory => (0o755, "drwxr-xr-x"),
        FileKind::SymbolicLink => (0o777, "Lrwxrwxrwx"),
        _ => (0o644, "-rw-r--r--"),
    };
    let modified = i64::try_from(found.modified).unwrap_or_default();
    let modified = chrono::DateTime::from_timestamp_nanos(modified);
    let mut entry = json!({
        "name": place.name(),
        "type": kind,
        "path": place.shown,
        // Numbers of 64 bits are texts in the JSON of this protocol.
        "size": found.size.to_string(),
        "mode": mode,
        "permissions": permissions,
        "owner": "user",
        "group": "user",
        "modifiedTime": modified.to_rfc3339_opts(chrono::SecondsFormat::Nanos, true),
    });
    if is_link {
        entry["isSymlink"] = true.into();
        if let Ok(target) = files.read_link(ROOT, &place.guest) {
            entry["symlinkTarget"] = target.into();
        }
    }
    entry
}

/// Returns the names in a folder.
pub(super) fn names(files: &mut Files, place: &Place) -> Result<Vec<String>, Problem> {
    let how = OpenHow { read: true, directory: true, follow_symlinks: true, ..OpenHow::default() };
    let folder = files.open(ROOT, &place.guest, how).map_err(|error| place.fault(error))?;
    let mut names = Vec::new();
    let read = loop {
        match files.read_directory(folder, names.len() as u64) {
            Ok(piece) if piece.is_empty() => break Ok(()),
            Ok(piece) => names.extend(piece.into_iter().map(|entry| entry.name)),
            Err(error) => break Err(error),
        }
    };
    read.and(files.close(folder)).map_err(|error| place.fault(error))?;
    names.retain(|name| name != "." && name != "..");
    names.sort_unstable();
    Ok(names)
}

/// Lists a folder, and the folders in it down to a depth.
fn list(files: &mut Files, place: Place, depth: u64) -> Result<Vec<Value>, Problem> {
    let mut entries = Vec::new();
    // Each folder is followed by what is in it.
    let mut unseen: Vec<(Place, u64)> = vec![(place, 0)];
    while let Some((place, level)) = unseen.pop() {
        let mut is_folder = true;
        if level > 0 {
            // What goes meanwhile is left out.
            let Ok(found) = files.stat_at(ROOT, &place.guest, false) else { continue };
            is_folder = found.kind == FileKind::Directory;
            if entries.len() >= ENTRIES_MAX {
                let detail = format!("there are more than {ENTRIES_MAX} entries; list folders one by one");
                return Err(Problem::new(StatusCode::PRECONDITION_FAILED, "limit", detail));
            }
            entries.push(entry_json(files, &place, &found));
        }
        if is_folder && level < depth {
            match names(files, &place) {
                Ok(names) => unseen.extend(names.iter().rev().map(|name| (place.under(name), level.saturating_add(1)))),
                Err(problem) if level == 0 => return Err(problem),
                Err(_) => {}
            }
        }
    }
    Ok(entries)
}

fn make_folder(files: &mut Files, place: &Place) -> Result<Value, Problem> {
    match files.stat_at(ROOT, &place.guest, true) {
        Ok(found) if found.kind == FileKind::Directory => {
            let detail = format!("{}: the folder is there already", place.shown);
            return Err(Problem::new(StatusCode::CONFLICT, "exists", detail));
        }
        Ok(_) => return Err(place.fault(FileError::NotDirectory)),
        Err(_) => files.make_folders(&place.guest).map_err(|error| place.fault(error))?,
    }
    Ok(json!({ "entry": entry(files, place)? }))
}

fn rename(files: &mut Files, from: &Place, to: &Place) -> Result<Value, Problem> {
    if from.is_root() || to.is_root() {
        return Err(Problem::bad("the home folder and the root keep their names"));
    }
    files.stat_at(ROOT, &from.guest, false).map_err(|error| from.fault(error))?;
    files.make_folders(to.parent()).map_err(|error| to.fault(error))?;
    files.rename(ROOT, &from.guest, ROOT, &to.guest).map_err(|error| to.fault(error))?;
    Ok(json!({ "entry": entry(files, to)? }))
}

/// Removes a file, or a folder with all that is in it. What is not there is gone already.
fn remove(files: &mut Files, place: &Place) -> Result<(), Problem> {
    if place.is_root() {
        return Err(Problem::bad("the home folder and the root are not removed"));
    }
    // A folder is removed when it is met again, behind what was in it.
    let mut unseen = vec![(place.clone(), false)];
    while let Some((place, is_emptied)) = unseen.pop() {
        let removed = if is_emptied {
            files.remove_directory(ROOT, &place.guest)
        } else {
            match files.stat_at(ROOT, &place.guest, false) {
                Ok(found) if found.kind == FileKind::Directory => {
                    let names = names(files, &place)?;
                    unseen.push((place.clone(), true));
                    unseen.extend(names.iter().map(|name| (place.under(name), false)));
                    continue;
                }
                Ok(_) => files.remove_file(ROOT, &place.guest),
                Err(error) => Err(error),
            }
        };
        match removed {
            Ok(()) | Err(FileError::NotFound) => {}
            Err(error) => return Err(place.fault(error)),
        }
    }
    Ok(())
}
