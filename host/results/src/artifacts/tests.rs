//! What a store keeps, and what it lets go.

use std::{io::Read, sync::Arc, thread, time::Duration};

use tempfile::TempDir;

use super::*;

fn store(quota: ArtifactQuota) -> (TempDir, ArtifactStore) {
    let folder = TempDir::new().expect("a folder");
    let store = ArtifactStore::open(folder.path().join("store"), quota).expect("a store");
    (folder, store)
}

fn of(session: &str) -> Description<'_> {
    Description { session, mime_type: "text/plain", title: Some("output") }
}

fn text(store: &ArtifactStore, id: &str) -> String {
    let mut text = String::new();
    store.read(id).expect(id).read_to_string(&mut text).expect("text");
    text
}

/// Pretends that an artifact was used so many seconds ago.
fn age(artifact: &Artifact, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    File::open(&artifact.path).expect("there").set_modified(then).expect("set");
}

fn ids(store: &ArtifactStore) -> Vec<String> {
    store.list().expect("a list").into_iter().map(|artifact| artifact.id).collect()
}

#[test]
fn what_is_put_is_found_by_its_digest_by_its_uri_and_by_a_start_of_it() {
    let (_folder, store) = store(ArtifactQuota::default());
    let artifact = store.put(b"abc", of("s")).expect("stored");
    assert_eq!(artifact.id, "ba7816bf8f01cfea414140de5dae2223", "the start of what sha256sum says");
    for name in [artifact.id.as_str(), &artifact.uri(), "ba7816", &artifact.id.to_uppercase()] {
        assert_eq!(store.get(name).expect(name).path, artifact.path);
        assert_eq!(text(&store, name), "abc");
    }
    assert_eq!((artifact.size_bytes, artifact.sessions), (3, vec!["s".to_owned()]));
    let error = |name: &str| store.get(name).expect_err(name).to_string();
    assert_eq!(error("000000"), "no artifact `000000` is stored; it may have made room for later ones");
    for name in ["", "ba78", "../../etc/passwd", "artifact://", "nothex"] {
        assert!(error(name).starts_with(&format!("`{name}` is no artifact")), "{name}");
    }
}

#[test]
fn the_same_bytes_are_stored_once_and_stay_while_somebody_refers_to_them() {
    let (_folder, store) = store(ArtifactQuota::default());
    let first = store.put(b"same", of("a")).expect("stored");
    let second = store.put(b"same", of("b")).expect("stored");
    assert_eq!((&first.id, second.sessions.len()), (&second.id, 2));
    store.forget_session("a").expect("forgotten");
    let unreferenced = Collection { unreferenced: true, ..Collection::default() };
    assert_eq!(store.collect(&unreferenced).expect("collected").count, 0);
    store.forget_session("b").expect("forgotten");
    assert_eq!(store.collect(&unreferenced).expect("collected"), Collected { count: 1, size_bytes: 4 });
    assert!(matches!(store.get(&first.id), Err(ArtifactError::Unknown(_))));
}

#[test]
fn what_a_crash_cut_short_is_stored_again() {
    let (_folder, store) = store(ArtifactQuota::default());
    let artifact = store.put(b"abc", of("s")).expect("stored");
    fs::write(&artifact.path, b"").expect("cut");
    store.put(b"abc", of("s")).expect("stored");
    assert_eq!(text(&store, &artifact.id), "abc");
}

#[test]
fn what_was_used_longest_ago_makes_room_in_its_session_first_and_then_in_all() {
    let quota = ArtifactQuota { session_count: 2, total_count: 3, ..ArtifactQuota::default() };
    let (_folder, store) = store(quota);
    let old = store.put(b"old", of("a")).expect("stored");
    let used = store.put(b"used", of("a")).expect("stored");
    age(&old, 100);
    age(&used, 200);
    text(&store, &used.id);
    let third = store.put(b"third", of("a")).expect("stored");
    let mut left = ids(&store);
    left.sort_unstable();
    let mut expected = vec![used.id.clone(), third.id];
    expected.sort_unstable();
    assert_eq!(left, expected, "the session's own oldest went");
    age(&used, 300);
    store.put(b"fourth", of("b")).expect("stored");
    store.put(b"fifth", of("b")).expect("stored");
    assert_eq!(ids(&store).len(), 3);
    assert!(matches!(store.get(&used.id), Err(ArtifactError::Unknown(_))), "the oldest of all went");
}

#[test]
fn bytes_are_bounded_for_one_for_a_session_and_for_all() {
    let quota = ArtifactQuota { artifact_bytes: 80, session_bytes: 100, total_bytes: 150, ..ArtifactQuota::default() };
    let (folder, store) = store(quota);
    let error = store.put(&[b'x'; 81], of("a")).expect_err("too large");
    assert_eq!(error.to_string(), "an artifact has at most 80 bytes, this one has more");
    for number in 0..20_u8 {
        store.put(&[number; 60], of(if number < 10 { "a" } else { "b" })).expect("stored");
        let sizes: u64 = store.list().expect("a list").iter().map(|artifact| artifact.size_bytes).sum();
        assert!(sizes <= 150, "{sizes} bytes after {number}");
    }
    assert_eq!(ids(&store).len(), 2, "one of each session");
    assert_eq!(fs::read_dir(folder.path().join("store/unfinished")).expect("there").count(), 0);
}

#[test]
fn what_is_older_than_the_quota_goes_when_another_is_stored() {
    let quota = ArtifactQuota { unused_for: Some(Duration::from_secs(100)), ..ArtifactQuota::default() };
    let (_folder, store) = store(quota);
    let (old, young) = (store.put(b"old", of("a")).expect("stored"), store.put(b"young", of("b")).expect("stored"));
    age(&old, 200);
    age(&young, 50);
    store.put(b"young", of("b")).expect("stored");
    assert_eq!(ids(&store), std::slice::from_ref(&young.id), "whosever it is");
    age(&young, 200);
    store.put(b"young", of("b")).expect("stored");
    assert_eq!(ids(&store), [young.id], "what is stored again is used");
}

#[test]
fn collection_goes_by_age_and_by_size() {
    let (_folder, store) = store(ArtifactQuota::default());
    for (number, seconds) in [(0_u8, 500), (1, 50), (2, 40), (3, 0)] {
        age(&store.put(&[number; 10], of("a")).expect("stored"), seconds);
    }
    let old = Collection { unused_for: Some(Duration::from_secs(100)), ..Collection::default() };
    assert_eq!(store.collect(&old).expect("collected").count, 1);
    let most = Collection { total_bytes: Some(15), ..Collection::default() };
    assert_eq!(store.collect(&most).expect("collected"), Collected { count: 2, size_bytes: 20 });
    assert_eq!(text(&store, &ids(&store)[0]), "\u{3}".repeat(10), "the newest is left");
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing_and_one_that_was_killed_is_swept() {
    let (folder, store) = store(ArtifactQuota::default());
    let unfinished = folder.path().join("store/unfinished");
    let count = || fs::read_dir(&unfinished).expect("there").count();
    let mut writer = store.writer().expect("a writer");
    writer.write(b"half").expect("written");
    fs::write(unfinished.join("left-behind"), "x").expect("written");
    store.collect(&Collection::default()).expect("collected");
    assert_eq!(count(), 1, "the one that is being written");
    drop(writer);
    assert_eq!((count(), ids(&store).len()), (0, 0));
}

#[test]
fn an_agents_output_is_found_by_its_label_in_its_session_alone() {
    let (_folder, store) = store(ArtifactQuota::default());
    let name = |output: &str| store.put_agent("s", Some("re/view"), output).expect("stored");
    assert_eq!([name("one"), name("two"), name("two")], ["re/view", "re/view-2", "re/view-3"]);
    let unnamed = store.put_agent("s", None, "three").expect("stored");
    let read = |name: &str| text(&store, &store.agent("s", name).expect(name).id);
    assert_eq!(read("re/view-3"), "two");
    assert_eq!([read("re/view"), read("agent://re/view-2"), read(&unnamed)], ["one", "two", "three"]);
    assert!(matches!(store.agent("other", "re/view"), Err(ArtifactError::Unknown(_))));
    let one = store.delete(&store.agent("s", "re/view").expect("there").id).expect("deleted");
    assert_eq!(one.labels, ["re/view"]);
    store.collect(&Collection::default()).expect("collected");
    assert!(store.agent("s", "re/view").is_err());
}

#[test]
fn many_writers_and_collectors_at_once_keep_the_store_whole() {
    let quota = ArtifactQuota { total_count: 20, session_count: 15, ..ArtifactQuota::default() };
    let (folder, shared) = store(quota);
    let shared = Arc::new(shared);
    let path = folder.path().join("store");
    thread::scope(|scope| {
        for worker in 0..4_usize {
            let path = &path;
            let shared = Arc::clone(&shared);
            scope.spawn(move || {
                // Handles of their own, as other processes have.
                let store =
                    if worker == 0 { (*shared).clone() } else { ArtifactStore::open(path, quota).expect("open") };
                for number in 0..40 {
                    let bytes = format!("{}", number % 25).repeat(1_000);
                    let artifact = store.put(bytes.as_bytes(), of(&format!("s{worker}"))).expect("stored");
                    if let Ok(mut file) = store.read(&artifact.id) {
                        let mut found = String::new();
                        file.read_to_string(&mut found).expect("read");
                        assert_eq!(found, bytes, "an object is whole");
                    }
                    if number % 10 == 0 {
                        store.collect(&Collection { unreferenced: true, ..Collection::default() }).expect("collected");
                    }
                }
            });
        }
    });
    let left = shared.list().expect("a list");
    assert!(left.len() <= 20, "{} are left", left.len());
    assert!(left.iter().all(|artifact| !artifact.sessions.is_empty()));
}
