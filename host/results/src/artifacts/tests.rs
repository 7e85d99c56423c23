//! Tests of what a store retains and what it evicts.

use std::{io::Read, sync::Arc, thread, time::Duration};

use cellar_core::time::wall_nanos;
use tempfile::TempDir;

use super::*;

fn store(quota: ArtifactQuota) -> (TempDir, ArtifactStore) {
    let folder = TempDir::new().expect("a folder");
    let store = ArtifactStore::open(folder.path().join("store"), quota).expect("a store");
    (folder, store)
}

/// Description of every artifact in these tests.
const OUTPUT: Description<'_> = Description { mime_type: "text/plain", title: Some("output") };

/// The store as a new session sees it.
fn session(store: &ArtifactStore, name: &str) -> SessionArtifacts {
    store.for_session(name, Arc::default())
}

fn text_of(session: &SessionArtifacts, id: &str) -> String {
    let mut text = String::new();
    session.read(id).expect(id).read_to_string(&mut text).expect("text");
    text
}

fn text(store: &ArtifactStore, id: &str) -> String {
    let mut text = String::new();
    store.read(id).expect(id).read_to_string(&mut text).expect("text");
    text
}

/// Sets the last use of an artifact to so many seconds ago.
fn age(artifact: &Artifact, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    File::open(&artifact.path).expect("there").set_modified(then).expect("set");
}

fn ids(store: &ArtifactStore) -> Vec<String> {
    store.list().expect("a list").into_iter().map(|artifact| artifact.id).collect()
}

#[test]
fn the_owner_finds_an_artifact_by_its_id_by_its_uri_and_by_a_start_of_it() {
    let (_folder, store) = store(ArtifactQuota::default());
    let artifact = store.put("s", b"abc", OUTPUT).expect("stored");
    for name in [artifact.id.as_str(), &artifact.uri(), &artifact.id[..6], &artifact.id.to_uppercase()] {
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
fn ids_tell_nothing_of_contents_and_the_same_content_has_another_one_in_each_session_and_store() {
    let (_folder, here) = store(ArtifactQuota::default());
    let (_other, there) = store(ArtifactQuota::default());
    let (a, b) = (session(&here, "a"), session(&here, "a"));
    let mut ids = vec![
        a.put(b"abc", OUTPUT).expect("stored").id,
        b.put(b"abc", OUTPUT).expect("stored").id,
        here.put("a", b"abc", OUTPUT).expect("stored").id,
        here.put("b", b"abc", OUTPUT).expect("stored").id,
        there.put("a", b"abc", OUTPUT).expect("stored").id,
        "ba7816bf8f01cfea414140de5dae2223".to_owned(),
    ];
    assert_eq!(a.put(b"abc", OUTPUT).expect("stored").id, ids[0], "what is kept twice is kept once");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 6, "one each, and none is the start of what sha256sum says");
}

#[test]
fn a_session_reaches_what_it_keeps_and_what_it_was_handed_and_is_told_nothing_of_others() {
    let (_folder, store) = store(ArtifactQuota::default());
    let keys = Arc::new(ArtifactKeys::default());
    let victim = store.for_session("same name", Arc::clone(&keys));
    let attacker = session(&store, "same name");
    let own = victim.put(b"secret", OUTPUT).expect("stored");
    victim.put_agent("plan", "secret plan").expect("stored");
    assert_eq!(text_of(&victim, &own.uri()), "secret");
    assert_eq!(text_of(&store.for_session("another", keys), &own.id), "secret", "keys count, and no name");
    let answer = |name: &str| attacker.get(name).map(drop).expect_err(name).to_string();
    let absent = "0".repeat(32);
    assert_eq!(answer(&own.id).replace(&own.id, &absent), answer(&absent));
    assert_eq!(answer(&own.id[..31]), format!("`{}` is no artifact: an id has 32 hexadecimal digits", &own.id[..31]));
    assert_eq!(victim.get(&own.id[..31]).map(drop).expect_err("short").code(), "artifact-id");
    assert!(attacker.read(&own.id).is_err() && attacker.agent("plan").is_err() && attacker.agent(&own.id).is_err());
    let handed = store.put("same name", b"for you", OUTPUT).expect("stored");
    assert_eq!([text_of(&attacker, &handed.id), text_of(&victim, &handed.id)], ["for you", "for you"]);
    assert!(session(&store, "third").read(&handed.id).is_err());
}

#[test]
fn whoever_goes_on_from_a_session_reaches_what_it_kept_until_then() {
    let (_folder, store) = store(ArtifactQuota::default());
    let keys = ArtifactKeys::default();
    let parent = store.for_session("parent", Arc::new(keys.clone()));
    let before = parent.put(b"before", OUTPUT).expect("stored");
    parent.put_agent("plan", "first plan").expect("stored");
    let fork = store.for_session("fork", Arc::new(keys.inherited(wall_nanos())));
    let after = parent.put(b"after", OUTPUT).expect("stored");
    parent.put_agent("other", "other plan").expect("stored");
    assert_eq!(text_of(&fork, &before.id), "before");
    assert_eq!(fork.agent("plan").expect("there").size_bytes, 10);
    assert!(fork.read(&after.id).is_err() && fork.agent("other").is_err(), "what comes later is the parent's own");
    let own = fork.put(b"own", OUTPUT).expect("stored");
    assert!(parent.read(&own.id).is_err());
    parent.put(b"before", OUTPUT).expect("stored");
    assert_eq!(text_of(&fork, &before.id), "before", "it does not matter that it was kept again");
}

/// A store as versions wrote it whose ids were starts of digests and whose holders were digests of names.
#[test]
fn an_old_store_is_read_by_its_owner_and_by_sessions_of_the_same_names() {
    let (_folder, store) = store(ArtifactQuota::default());
    let id = "ba7816bf8f01cfea414140de5dae2223";
    let (notes, agents) = (store.notes().join(key("work")), store.agents().join(key("work")));
    for folder in [&notes, &agents] {
        fs::create_dir_all(folder).expect("made");
    }
    fs::write(store.objects().join(id), "abc").expect("written");
    fs::write(notes.join(id), r#"{"session":"work","mime_type":"text/plain","title":null}"#).expect("written");
    fs::write(agents.join(key("plan")), format!(r#"{{"label":"plan","id":"{id}"}}"#)).expect("written");
    let listed = store.list().expect("a list");
    assert_eq!((&listed[0].sessions[..], &listed[0].labels[..]), (&["work".to_owned()][..], &["plan".to_owned()][..]));
    assert_eq!([text(&store, "ba7816"), text(&store, &store.agent("work", "plan").expect("there").id)], ["abc", "abc"]);
    assert_eq!(text_of(&session(&store, "work"), id), "abc");
    assert!(session(&store, "other").read(id).is_err(), "nor can a session confirm what it guesses");
}

#[test]
fn the_same_bytes_of_two_sessions_are_two_artifacts() {
    let (_folder, store) = store(ArtifactQuota::default());
    let first = store.put("a", b"same", OUTPUT).expect("stored");
    let second = store.put("b", b"same", OUTPUT).expect("stored");
    assert_ne!(first.id, second.id);
    store.forget_session("a").expect("forgotten");
    let unreferenced = Collection { unreferenced: true, ..Collection::default() };
    assert_eq!(store.collect(&unreferenced).expect("collected"), Collected { count: 1, size_bytes: 4 });
    assert!(matches!(store.get(&first.id), Err(ArtifactError::Unknown(_))));
    assert_eq!(text(&store, &second.id), "same");
}

#[test]
fn what_a_crash_cut_short_is_stored_again() {
    let (_folder, store) = store(ArtifactQuota::default());
    let artifact = store.put("s", b"abc", OUTPUT).expect("stored");
    fs::write(&artifact.path, b"").expect("cut");
    store.put("s", b"abc", OUTPUT).expect("stored");
    assert_eq!(text(&store, &artifact.id), "abc");
}

#[test]
fn what_was_used_longest_ago_makes_room_in_its_session_first_and_then_in_all() {
    let quota = ArtifactQuota { session_count: 2, total_count: 3, ..ArtifactQuota::default() };
    let (_folder, store) = store(quota);
    let old = store.put("a", b"old", OUTPUT).expect("stored");
    let used = store.put("a", b"used", OUTPUT).expect("stored");
    age(&old, 100);
    age(&used, 200);
    text(&store, &used.id);
    let third = store.put("a", b"third", OUTPUT).expect("stored");
    let mut left = ids(&store);
    left.sort_unstable();
    let mut expected = vec![used.id.clone(), third.id];
    expected.sort_unstable();
    assert_eq!(left, expected, "the session's own oldest went");
    age(&used, 300);
    store.put("b", b"fourth", OUTPUT).expect("stored");
    store.put("b", b"fifth", OUTPUT).expect("stored");
    assert_eq!(ids(&store).len(), 3);
    assert!(matches!(store.get(&used.id), Err(ArtifactError::Unknown(_))), "the oldest of all went");
}

#[test]
fn bytes_are_bounded_for_one_for_a_session_and_for_all() {
    let quota = ArtifactQuota { artifact_bytes: 80, session_bytes: 100, total_bytes: 150, ..ArtifactQuota::default() };
    let (folder, store) = store(quota);
    let error = store.put("a", &[b'x'; 81], OUTPUT).expect_err("too large");
    assert_eq!(error.to_string(), "an artifact has at most 80 bytes, this one has more");
    for number in 0..20_u8 {
        store.put(if number < 10 { "a" } else { "b" }, &[number; 60], OUTPUT).expect("stored");
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
    let (old, young) =
        (store.put("a", b"old", OUTPUT).expect("stored"), store.put("b", b"young", OUTPUT).expect("stored"));
    age(&old, 200);
    age(&young, 50);
    // What was counted says that all is new.
    store.forget_totals().expect("forgotten");
    store.put("b", b"young", OUTPUT).expect("stored");
    assert_eq!(ids(&store), std::slice::from_ref(&young.id), "whosever it is");
    age(&young, 200);
    store.forget_totals().expect("forgotten");
    store.put("b", b"young", OUTPUT).expect("stored");
    assert_eq!(ids(&store), [young.id], "what is stored again is used");
}

#[test]
fn collection_goes_by_age_and_by_size() {
    let (_folder, store) = store(ArtifactQuota::default());
    for (number, seconds) in [(0_u8, 500), (1, 50), (2, 40), (3, 0)] {
        age(&store.put("a", &[number; 10], OUTPUT).expect("stored"), seconds);
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
    let mut writer = store.writer("s").expect("a writer");
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
    let own = session(&store, "s");
    let name = |output: &str| own.put_agent("re/view", output).expect("stored");
    assert_eq!([name("one"), name("two"), name("two")], ["re/view", "re/view-2", "re/view-3"]);
    let unnamed = own.put_agent("", "three").expect("stored");
    let read = |name: &str| text_of(&own, &own.agent(name).expect(name).id);
    assert_eq!(read("re/view-3"), "two");
    assert_eq!([read("re/view"), read("agent://re/view-2"), read(&unnamed)], ["one", "two", "three"]);
    assert!(matches!(session(&store, "s").agent("re/view"), Err(ArtifactError::Unknown(_))));
    assert!(matches!(store.agent("other", "re/view"), Err(ArtifactError::Unknown(_))));
    let one = store.delete(&store.agent("s", "re/view").expect("there").id).expect("deleted");
    assert_eq!(one.labels, ["re/view"]);
    assert!(own.agent("re/view").is_err());
}

#[test]
fn names_of_agents_outputs_are_bounded() {
    let (_folder, store) = store(ArtifactQuota { session_count: 5, ..ArtifactQuota::default() });
    let own = session(&store, "s");
    for number in 0..5 {
        assert_eq!(own.put_agent(&format!("l{number}"), "same").expect("stored"), format!("l{number}"));
    }
    let sixth = own.put_agent("l5", "same").expect("stored");
    assert_eq!(sixth, own.get(&sixth).expect("an id").id, "without a name");
}

/// Checks that totals are cached, and recounted only after a crash or changes by other programs.
#[test]
fn totals_are_kept_and_counted_again_after_a_crash_or_an_older_program() {
    let (_folder, store) = store(ArtifactQuota { session_count: 100, ..ArtifactQuota::default() });
    let own = session(&store, "s");
    let totals = || {
        let _lock = store.lock().expect("locked");
        let all = store.take_all().expect("counted");
        store.keep_all(all.clone());
        (all.count, all.bytes)
    };
    own.put(b"one", OUTPUT).expect("stored");
    own.put(b"four", OUTPUT).expect("stored");
    assert_eq!(totals(), (2, 7));
    // What is kept is believed: here it lies, on purpose.
    let path = store.totals().join("all");
    let lie = fs::read_to_string(&path).expect("there").replace("\"bytes\":7", "\"bytes\":70");
    fs::write(&path, lie).expect("written");
    assert_eq!(totals(), (2, 70));
    own.put(b"four", OUTPUT).expect("stored");
    assert_eq!(totals(), (2, 70), "what is stored again adds nothing");
    fs::remove_file(&path).expect("a process was killed in between");
    assert_eq!(totals(), (2, 7));
    fs::write(store.objects().join("f".repeat(32)), "by an older program").expect("written");
    assert_eq!(totals(), (3, 26));
    fs::write(&path, "{").expect("damaged");
    assert_eq!(totals(), (3, 26));
}

#[test]
fn what_is_on_its_way_in_counts() {
    let mib = 1 << 20;
    let quota = ArtifactQuota { session_bytes: 10 * mib, total_bytes: 16 * mib, ..ArtifactQuota::default() };
    let (folder, store) = store(quota);
    let (own, other) = (session(&store, "s"), session(&store, "t"));
    let disk = || -> u64 {
        let inside = |name: &str| fs::read_dir(folder.path().join("store").join(name)).expect("there");
        let sizes = inside("objects").chain(inside("unfinished"));
        sizes.map(|entry| entry.expect("an entry").metadata().expect("a size").len()).sum()
    };
    let piece = vec![b'x'; mib as usize];
    let kept = own.put(&piece, OUTPUT).expect("stored");
    let mut writers: Vec<_> = (0..3).map(|_| own.writer().expect("a writer")).collect();
    let mut foreign = other.writer().expect("a writer");
    let mut written = 0;
    for turn in 0..60 {
        let writer = if turn % 4 == 3 { &mut foreign } else { &mut writers[turn % 4] };
        match writer.write(&piece) {
            Ok(()) => written += 1,
            Err(ArtifactError::TooLarge { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(disk() <= 16 * mib, "{} bytes after {turn}", disk());
    }
    assert!(written >= 13, "{written} MiB found room");
    assert!(own.get(&kept.id).is_err(), "what was kept made room for what comes");
    assert!(writers.iter().all(|writer| writer.room() < mib));
    writers.truncate(1);
    assert!(writers[0].room() >= mib, "what is given up makes room");
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
                    let artifact = store.put(&format!("s{worker}"), bytes.as_bytes(), OUTPUT).expect("stored");
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
