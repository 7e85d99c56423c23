//! Folders that clients watch, by polling: a file that appears and disappears between two polls is not reported.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum_core::body::Body;
use bytes::Bytes;
use cellar_core::sync::lock;
use cellar_engine::Session;
use cellar_files::{FileKind, Files, ROOT};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{
    Call, connect, dead,
    files::Place,
    filesystem::{entry, names},
    sandboxes::Sandbox,
    told,
};
use crate::{
    access::characters,
    http::check_values,
    problem::{Answer, Problem},
    tenant::on_a_thread,
};

/// Names under a folder that is watched.
const ENTRIES_MAX: usize = 10_000;
/// Bytes of their paths.
const NAMES_BYTES_MAX: usize = 2 << 20;
/// Watchers of a tenant, streams among them.
const WATCHERS_MAX: usize = 64;
/// Time for which a watcher is kept that no client asks about.
const KEPT: Duration = Duration::from_secs(3_600);
/// Interval of polls for a stream, at least.
const LOOK: Duration = Duration::from_millis(250);
/// Pause between polls, as a multiple of the time that a poll takes.
const REST_PER_LOOK: u32 = 10;
/// Interval of heartbeats of a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Folder that a client watches, with its options.
#[derive(Clone, Debug)]
struct Watched {
    place: Place,
    is_recursive: bool,
    with_entries: bool,
}

/// State of each name, as found without reading files: kind, size, time of the last change, inode.
type Look = BTreeMap<String, (FileKind, u64, u64, u64)>;

#[derive(Debug)]
struct Watcher {
    sandbox: String,
    watched: Watched,
    seen: Look,
    used: Instant,
}

/// The watchers of a tenant.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    by_id: Mutex<HashMap<String, Watcher>>,
    streams: Arc<Mutex<usize>>,
}

/// Permit for one more stream.
struct Streaming(Arc<Mutex<usize>>);

impl Drop for Streaming {
    fn drop(&mut self) {
        let mut count = lock(&self.0);
        *count = count.saturating_sub(1);
    }
}

fn full() -> Problem {
    let detail = format!("{WATCHERS_MAX} folders are watched already");
    Problem::limit("watchers", detail, Duration::from_secs(10))
}

impl Watchers {
    /// Removes the watchers of a sandbox.
    pub(crate) fn forget(&self, sandbox: &str) {
        lock(&self.by_id).retain(|_, watcher| watcher.sandbox != sandbox);
    }

    /// Adds a watcher. Fails if others have taken the last place since the check.
    fn add(&self, id: String, watcher: Watcher) -> Result<(), Problem> {
        let mut by_id = lock(&self.by_id);
        if by_id.len().saturating_add(*lock(&self.streams)) >= WATCHERS_MAX {
            return Err(full());
        }
        by_id.insert(id, watcher);
        Ok(())
    }

    /// Takes a permit for a stream.
    fn begin_stream(&self) -> Result<Streaming, Problem> {
        let by_id = lock(&self.by_id);
        let mut streams = lock(&self.streams);
        if by_id.len().saturating_add(*streams) >= WATCHERS_MAX {
            return Err(full());
        }
        *streams = streams.saturating_add(1);
        Ok(Streaming(self.streams.clone()))
    }

    fn check_room(&self) -> Result<(), Problem> {
        let mut by_id = lock(&self.by_id);
        by_id.retain(|_, watcher| watcher.used.elapsed() < KEPT);
        if by_id.len().saturating_add(*lock(&self.streams)) < WATCHERS_MAX { Ok(()) } else { Err(full()) }
    }
}

fn watched(object: &Map<String, Value>) -> Result<Watched, Problem> {
    let path = match object.get("path") {
        None | Some(Value::Null) => "",
        Some(path) => path.as_str().ok_or_else(|| Problem::bad("`path` is a text"))?,
    };
    let is = |name: &str| object.get(name).and_then(Value::as_bool).unwrap_or_default();
    Ok(Watched { place: Place::of(path)?, is_recursive: is("recursive"), with_entries: is("includeEntry") })
}

/// Reads the names in a folder and their states.
fn look(files: &mut Files, watched: &Watched) -> Result<Look, Problem> {
    let mut look = Look::new();
    let mut left = NAMES_BYTES_MAX;
    let mut unseen = vec![(watched.place.clone(), String::new())];
    while let Some((folder, prefix)) = unseen.pop() {
        let names = match names(files, &folder) {
            Ok(names) => names,
            Err(problem) if prefix.is_empty() => return Err(problem),
            // It went meanwhile.
            Err(_) => continue,
        };
        for name in names {
            let place = folder.under(&name);
            let Ok(found) = files.stat_at(ROOT, &place.guest, false) else { continue };
            if look.len() >= ENTRIES_MAX {
                let detail = format!("there are more than {ENTRIES_MAX} names to watch");
                return Err(Problem::new(StatusCode::PRECONDITION_FAILED, "limit", detail));
            }
            // THREAT: T13
            let path = format!("{prefix}{name}");
            left = name_bytes_left(left, &path)?;
            // The time of a folder changes with what is in it, which is told of by itself.
            let is_folder = found.kind == FileKind::Directory;
            let (size, modified) = if is_folder { (0, 0) } else { (found.size, found.modified) };
            look.insert(path.clone(), (found.kind, size, modified, found.inode));
            if is_folder && watched.is_recursive {
                unseen.push((place, format!("{path}/")));
            }
        }
    }
    Ok(look)
}

/// Returns the bytes of names that are left after this one.
fn name_bytes_left(left: usize, path: &str) -> Result<usize, Problem> {
    left.checked_sub(path.len()).ok_or_else(|| {
        let detail = format!("the names to watch have more than {NAMES_BYTES_MAX} bytes");
        Problem::new(StatusCode::PRECONDITION_FAILED, "limit", detail)
    })
}

/// Returns the events between two polls: each name, with the type of its event.
fn changes(before: &Look, after: &Look) -> Vec<(String, &'static str)> {
    let inodes_only_in = |these: &Look, those: &Look| -> HashSet<u64> {
        these.iter().filter(|(name, _)| !those.contains_key(*name)).map(|(_, look)| look.3).collect()
    };
    let (gone, new_ones) = (inodes_only_in(before, after), inodes_only_in(after, before));
    let mut changes = Vec::new();
    for (name, old) in before {
        match after.get(name) {
            None => {
                let is_moved = new_ones.contains(&old.3);
                changes.push((name.clone(), if is_moved { "EVENT_TYPE_RENAME" } else { "EVENT_TYPE_REMOVE" }));
            }
            Some(new) if new != old => changes.push((name.clone(), "EVENT_TYPE_WRITE")),
            Some(_) => {}
        }
    }
    for (name, new) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
        changes.push((name.clone(), "EVENT_TYPE_CREATE"));
        if new.1 > 0 && !gone.contains(&new.3) {
            changes.push((name.clone(), "EVENT_TYPE_WRITE"));
        }
    }
    changes
}

/// Polls once, and returns the events since the last poll. Blocks.
fn news(session: &Session, watched: &Watched, seen: &mut Look) -> Result<Vec<Value>, Problem> {
    let mut files = session.files();
    let now = look(&mut files, watched)?;
    let changes = changes(seen, &now);
    *seen = now;
    let event = |(name, kind): (String, &str)| {
        let mut event = json!({ "name": name, "type": kind });
        if watched.with_entries
            && let Ok(entry) = entry(&mut files, &watched.place.under(&name))
        {
            event["entry"] = entry;
        }
        event
    };
    Ok(changes.into_iter().map(event).collect())
}

/// Creates a watcher, which its client will ask for events.
pub(super) async fn create(mut call: Call, sandbox: Sandbox) -> Answer {
    let watched = watched(&call.object().await?)?;
    call.account.watchers.check_room()?;
    let session = call.account.tenant.session(&sandbox.id).await?.session;
    let (asked, seen) = on_a_thread(move || {
        let seen = look(&mut session.files(), &watched)?;
        Ok::<_, Problem>((watched, seen))
    })
    .await??;
    let id = characters(22);
    let watcher = Watcher { sandbox: sandbox.id, watched: asked, seen, used: Instant::now() };
    call.account.watchers.add(id.clone(), watcher)?;
    Ok(told(StatusCode::OK, &json!({ "watcherId": id })))
}

fn unknown() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "unknown", "there is no such watcher")
}

fn watcher_id(object: &Map<String, Value>) -> Result<&str, Problem> {
    object.get("watcherId").and_then(Value::as_str).ok_or_else(unknown)
}

/// Returns the events since the client asked last.
pub(super) async fn events(mut call: Call, sandbox: Sandbox) -> Answer {
    let object = call.object().await?;
    let id = watcher_id(&object)?.to_owned();
    let session = call.account.tenant.session(&sandbox.id).await?.session;
    // Whoever asks twice at once is told of a watcher that is not there.
    let taken = {
        let mut by_id = lock(&call.account.watchers.by_id);
        by_id.get(&id).filter(|watcher| watcher.sandbox == sandbox.id).ok_or_else(unknown)?;
        by_id.remove(&id)
    };
    let mut watcher = taken.ok_or_else(unknown)?;
    let (watcher, news) = on_a_thread(move || {
        let news = news(&session, &watcher.watched, &mut watcher.seen);
        watcher.used = Instant::now();
        (watcher, news)
    })
    .await?;
    if call.account.sandboxes.get(&sandbox.id).is_some() {
        lock(&call.account.watchers.by_id).insert(id, watcher);
    }
    Ok(told(StatusCode::OK, &json!({ "events": news? })))
}

/// Removes a watcher.
pub(super) async fn remove(mut call: Call, sandbox: Sandbox) -> Answer {
    let object = call.object().await?;
    let id = watcher_id(&object)?;
    let mut by_id = lock(&call.account.watchers.by_id);
    by_id.get(id).filter(|watcher| watcher.sandbox == sandbox.id).ok_or_else(unknown)?;
    by_id.remove(id);
    Ok(told(StatusCode::OK, &json!({})))
}

/// Streams events to a client.
pub(super) async fn stream(mut call: Call, sandbox: Sandbox) -> Answer {
    let refused = |problem: &Problem| Ok(connect::stream(Body::from(connect::end(Some(problem)))));
    let begun = async {
        let body = call.body().await?;
        let message = connect::opened(&body)?;
        check_values(message)?;
        let object = serde_json::from_slice(message);
        let object: Map<String, Value> = object.map_err(|_| Problem::bad("the message is a JSON object"))?;
        let watched = watched(&object)?;
        call.account.watchers.check_room()?;
        let streaming = call.account.watchers.begin_stream()?;
        let session = call.account.tenant.session(&sandbox.id).await?.session;
        let (asked, of) = (watched.clone(), session.clone());
        let seen = on_a_thread(move || look(&mut of.files(), &asked)).await??;
        Ok::<_, Problem>((watched, session, seen, streaming))
    };
    let (watched, session, seen, streaming) = match begun.await {
        Ok(begun) => begun,
        Err(problem) => return refused(&problem),
    };
    let account = call.account;
    let body = async_stream::stream! {
        let _streaming = streaming;
        let mut seen = seen;
        let (mut rest, mut told_at) = (LOOK, Instant::now());
        yield Ok::<Bytes, std::io::Error>(connect::envelope(0, &json!({ "start": {} })));
        loop {
            tokio::time::sleep(rest).await;
            if account.sandboxes.get(&sandbox.id).is_none_or(|sandbox| sandbox.is_paused) {
                yield Ok(connect::end(Some(&dead(Some(&sandbox.id)))));
                return;
            }
            let (of, asked, before) = (session.clone(), watched.clone(), std::mem::take(&mut seen));
            let began = Instant::now();
            let looked = on_a_thread(move || {
                let mut seen = before;
                let news = news(&of, &asked, &mut seen);
                (seen, news)
            });
            let news = match looked.await {
                Ok((now, news)) => {
                    seen = now;
                    news
                }
                Err(problem) => Err(problem),
            };
            rest = LOOK.max(began.elapsed().saturating_mul(REST_PER_LOOK));
            match news {
                Ok(events) => for event in events {
                    told_at = Instant::now();
                    yield Ok(connect::envelope(0, &json!({ "filesystem": event })));
                },
                Err(problem) => {
                    yield Ok(connect::end(Some(&problem)));
                    return;
                }
            }
            if told_at.elapsed() >= HEARTBEAT {
                told_at = Instant::now();
                yield Ok(connect::envelope(0, &json!({ "keepalive": {} })));
            }
        }
    };
    Ok(connect::stream(Body::from_stream(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_once_each() {
        let file = |size: u64, inode: u64| (FileKind::RegularFile, size, 0, inode);
        fn of<T: Copy, const N: usize>(names: &[(&str, T); N]) -> BTreeMap<String, T> {
            names.iter().map(|(name, look)| ((*name).to_owned(), *look)).collect()
        }
        let before = of(&[("gone", file(1, 1)), ("kept", file(1, 2)), ("moved", file(1, 3)), ("written", file(1, 4))]);
        let after = of(&[("kept", file(1, 2)), ("new", file(1, 5)), ("there", file(1, 3)), ("written", file(2, 4))]);
        let told = changes(&before, &after);
        let told: Vec<(&str, &str)> =
            told.iter().map(|(name, kind)| (name.as_str(), &kind["EVENT_TYPE_".len()..])).collect();
        let expected = [
            ("gone", "REMOVE"),
            ("moved", "RENAME"),
            ("written", "WRITE"),
            ("new", "CREATE"),
            ("new", "WRITE"),
            ("there", "CREATE"),
        ];
        assert_eq!(told, expected);
        assert!(changes(&after, &after).is_empty());
    }

    #[test]
    fn names_that_are_watched_have_bounded_bytes() {
        let path = "a/".repeat(1_800);
        let mut left = NAMES_BYTES_MAX;
        let seen =
            (0..ENTRIES_MAX).take_while(|_| name_bytes_left(left, &path).map(|less| left = less).is_ok()).count();
        assert!(seen > 500 && seen * path.len() <= NAMES_BYTES_MAX, "{seen}");
    }
}
