//! Tests of remote stores: uploads, restores, and remotes that fail, return wrong data or belong to somebody else.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use tempfile::TempDir;

use super::{
    super::{
        ArtifactKeys, ArtifactQuota, Collection, Description, SessionArtifacts,
        datasets::{DatasetVersion, Publication},
    },
    *,
};

const OUTPUT: Description<'_> = Description { mime_type: "text/plain", title: Some("output") };
/// Timeout of waiting for uploads in tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A remote that is a folder, and may be out of reach.
struct Folder {
    folder: TempDir,
    is_down: AtomicBool,
}

impl Folder {
    fn new() -> Arc<Folder> {
        Arc::new(Folder { folder: TempDir::new().expect("a folder"), is_down: AtomicBool::new(false) })
    }

    fn path(&self, key: &str) -> io::Result<PathBuf> {
        match self.is_down.load(Ordering::Relaxed) {
            true => Err(io::Error::other("it cannot be reached")),
            false => Ok(self.folder.path().join(key)),
        }
    }

    fn turn(&self, is_up: bool) {
        self.is_down.store(!is_up, Ordering::Relaxed);
    }

    fn has(&self, key: &str) -> bool {
        self.folder.path().join(key).exists()
    }

    fn write(&self, key: &str, bytes: &[u8]) {
        let path = self.folder.path().join(key);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, bytes).expect("written");
    }
}

impl RemoteStore for Folder {
    fn upload(&self, key: &str, file: &Path) -> io::Result<()> {
        let path = self.path(key)?;
        fs::create_dir_all(path.parent().expect("a parent"))?;
        fs::copy(file, path).map(drop)
    }

    fn download(&self, key: &str, file: &Path, bytes_max: u64) -> io::Result<bool> {
        match fs::read(self.path(key)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Ok(bytes) if bytes.len() as u64 > bytes_max => Err(io::ErrorKind::FileTooLarge.into()),
            bytes => fs::write(file, bytes?).map(|()| true),
        }
    }

    fn list(&self, prefix: &str) -> io::Result<Option<Vec<String>>> {
        let (mut keys, mut folders) = (Vec::new(), vec![self.path(prefix)?]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => keys.push(path.strip_prefix(self.folder.path()).expect("inside").display().to_string()),
                }
            }
        }
        Ok(Some(keys))
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        match fs::remove_file(self.path(key)?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A store with this remote, and the folder that it is in.
fn store(remote: &Arc<Folder>) -> (TempDir, ArtifactStore) {
    let folder = TempDir::new().expect("a folder");
    let store = again(&folder, remote);
    (folder, store)
}

/// The store as another process opens it, which has verified nothing.
fn again(folder: &TempDir, remote: &Arc<Folder>) -> ArtifactStore {
    ArtifactStore::open_with(folder.path(), ArtifactQuota::default(), remote.clone()).expect("a store")
}

fn settle(store: &ArtifactStore) {
    assert_eq!(store.settle(PATIENCE).expect("a queue"), 0, "it was not sent");
}

fn text(file: Result<File, ArtifactError>) -> String {
    let mut text = String::new();
    file.expect("a file").read_to_string(&mut text).expect("text");
    text
}

/// Damages an object as a crash of the machine or a bad disk would.
fn damage(folder: &TempDir, id: &str, bytes: &[u8]) {
    fs::write(folder.path().join("objects").join(id), bytes).expect("written");
}

fn publish(store: &ArtifactStore, name: &str, number: i64) -> DatasetVersion {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from(vec![number]))]).expect("a batch");
    let mut bytes = Vec::new();
    cellar_tables::Batches::new(schema, vec![batch]).write_parquet(&mut bytes).expect("a file");
    let mut writer = store.datasets().writer(name).expect("a writer");
    writer.write(&bytes).expect("written");
    writer.publish(Publication { publisher: format!("p{number}"), ..Publication::default() }).expect("published")
}

#[test]
fn what_is_lost_or_damaged_comes_back() {
    let remote = Folder::new();
    let (folder, store) = store(&remote);
    let artifact = store.put("s", b"abc", OUTPUT).expect("stored");
    settle(&store);
    fs::remove_file(&artifact.path).expect("lost");
    assert_eq!(text(store.read(&artifact.id)), "abc");
    let found = store.get(&artifact.id).expect("its note");
    assert_eq!((found.title.as_deref(), found.sessions), (Some("output"), vec!["s".to_owned()]));
    // Of the same size, which only the digest tells from the right one.
    damage(&folder, &artifact.id, b"abd");
    assert_eq!(text(again(&folder, &remote).read(&artifact.id)), "abc");
    // Even all that was known of it.
    fs::remove_dir_all(folder.path().join("notes")).expect("lost");
    fs::remove_file(&artifact.path).expect("lost");
    assert_eq!(text(again(&folder, &remote).read(&artifact.id)), "abc");
    assert_eq!(store.get(&artifact.id).expect("its note").title.as_deref(), Some("output"));
}

#[test]
fn what_is_no_file_in_the_place_of_an_object_is_put_aside_and_the_object_comes_back() {
    let remote = Folder::new();
    let (folder, store) = store(&remote);
    let artifact = store.put("s", b"abc", OUTPUT).expect("stored");
    settle(&store);
    let strangers: [fn(&Path); 4] = [
        |path| fs::create_dir(path).expect("a folder"),
        |path| fs::create_dir_all(path.join("inner")).expect("folders"),
        |path| std::os::unix::fs::symlink("/etc/hostname", path).expect("a link"),
        |path| std::os::unix::fs::symlink("nowhere", path).expect("a link"),
    ];
    for stranger in strangers {
        fs::remove_file(&artifact.path).expect("lost");
        stranger(&artifact.path);
        assert_eq!(text(again(&folder, &remote).read(&artifact.id)), "abc");
        assert!(fs::symlink_metadata(&artifact.path).expect("it is there").is_file());
    }
    // What was in a folder is not lost.
    let aside = fs::read_dir(folder.path().join("quarantine")).expect("a folder").flatten();
    assert_eq!(aside.filter(|each| each.path().join("inner").exists()).count(), 1);
    fs::remove_file(&artifact.path).expect("lost");
    fs::create_dir(&artifact.path).expect("a folder");
    assert_eq!(again(&folder, &remote).verify(&[], false).expect("verified").healed, [artifact.id]);
}

#[test]
fn what_has_no_good_copy_is_put_aside_and_not_given_away() {
    let remote = Folder::new();
    let (folder, first) = store(&remote);
    let artifact = first.put("s", b"abc", OUTPUT).expect("stored");
    settle(&first);
    damage(&folder, &artifact.id, b"abd");
    remote.write(&object_key(&artifact.id), b"abe");
    let store = again(&folder, &remote);
    assert_eq!(store.read(&artifact.id).expect_err("damaged").code(), "artifact-damaged");
    assert!(!artifact.path.exists() && folder.path().join("quarantine").join(&artifact.id).exists());
    // The remote is not asked each time, and again when it is told to.
    remote.write(&object_key(&artifact.id), b"abc");
    assert_eq!(store.read(&artifact.id).expect_err("damaged still").code(), "artifact-damaged");
    assert_eq!(store.pull(std::slice::from_ref(&artifact.id), false).expect("pulled").artifacts, 1);
    assert_eq!(text(store.read(&artifact.id)), "abc");
    assert_eq!(fs::read_dir(folder.path().join("quarantine")).expect("a folder").count(), 0);
    // Whoever has the right bytes mends it, too.
    damage(&folder, &artifact.id, b"abd");
    remote.write(&object_key(&artifact.id), b"abe");
    let store = again(&folder, &remote);
    store.read(&artifact.id).expect_err("damaged");
    store.put("s", b"abc", OUTPUT).expect("stored again");
    settle(&store);
    assert_eq!(text(store.read(&artifact.id)), "abc");
    assert_eq!(fs::read(remote.folder.path().join(object_key(&artifact.id))).expect("sent again"), b"abc");
}

#[test]
fn a_store_without_a_remote_says_what_is_damaged() {
    let folder = TempDir::new().expect("a folder");
    let open = || ArtifactStore::open(folder.path(), ArtifactQuota::default()).expect("a store");
    let artifact = open().put("s", b"abc", OUTPUT).expect("stored");
    damage(&folder, &artifact.id, b"abd");
    let store = open();
    assert_eq!(store.read(&artifact.id).expect_err("damaged").code(), "artifact-damaged");
    let verified = store.verify(&[], false).expect("verified");
    assert_eq!((verified.sound, verified.lost), (0, vec![artifact.id.clone()]));
    assert_eq!(store.push(&[]).expect_err("no remote").code(), "artifact-no-remote");
    store.put("s", b"abc", OUTPUT).expect("stored again");
    assert_eq!(text(store.read(&artifact.id)), "abc");
}

#[test]
fn what_a_process_leaves_is_sent_by_the_next_one() {
    let remote = Folder::new();
    remote.turn(false);
    let (folder, first) = store(&remote);
    let artifact = first.put("s", b"abc", OUTPUT).expect("stored");
    publish(&first, "prices", 1);
    assert!(first.queued().expect("a queue") >= 3, "an artifact, the rows and the version");
    drop(first);
    remote.turn(true);
    let store = again(&folder, &remote);
    settle(&store);
    assert!(remote.has(&object_key(&artifact.id)) && remote.has(&note_key(&artifact.id)));
    assert_eq!(remote.list("datasets/prices").expect("listed").expect("keys").len(), 1);
}

#[test]
fn a_remote_that_is_out_of_reach_holds_up_nobody_and_is_told_of() {
    let remote = Folder::new();
    let (_folder, store) = store(&remote);
    let artifact = store.put("s", b"abc", OUTPUT).expect("stored");
    settle(&store);
    remote.turn(false);
    let began = Instant::now();
    assert_eq!(text(store.read(&artifact.id)), "abc");
    let other = store.put("s", b"other", OUTPUT).expect("stored");
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(store.push(&[]).expect_err("out of reach").code(), "artifact-remote");
    fs::remove_file(&other.path).expect("lost");
    // It may well be there: that it is not is not known.
    assert_eq!(store.read(&other.id).expect_err("out of reach").code(), "artifact-remote");
}

#[test]
fn what_its_owner_removes_goes_from_the_remote_and_stays_away() {
    let remote = Folder::new();
    let (_folder, store) = store(&remote);
    let artifact = store.put("s", b"abc", OUTPUT).expect("stored");
    let version = publish(&store, "prices", 1);
    settle(&store);
    remote.turn(false);
    store.delete(&artifact.id).expect("removed");
    remote.turn(true);
    store.read(&artifact.id).map(drop).expect_err("it is not fetched back, though the remote may have it still");
    store.datasets().remove("prices").expect("removed");
    store.datasets().open("prices", None).map(drop).expect_err("nor is the dataset");
    settle(&store);
    assert!(!remote.has(&object_key(&artifact.id)) && !remote.has(&note_key(&artifact.id)));
    assert!(!remote.has(&object_key(&version.artifact)));
    assert_eq!(remote.list("").expect("listed").expect("keys"), Vec::<String>::new());
    let old = store.put("s", b"abc", OUTPUT).expect("stored");
    settle(&store);
    store.collect(&Collection { total_bytes: Some(0), ..Collection::default() }).expect("collected");
    settle(&store);
    assert!(!remote.has(&object_key(&old.id)));
}

#[test]
fn a_session_that_moves_to_another_machine_finds_what_it_kept() {
    let remote = Folder::new();
    let (_here, here) = store(&remote);
    let (_there, there) = store(&remote);
    let keys: Arc<ArtifactKeys> = Arc::default();
    let artifact = here.for_session("s", keys.clone()).put(b"abc", OUTPUT).expect("stored");
    settle(&here);
    let moved: SessionArtifacts = there.for_session("s", keys.clone());
    assert_eq!(text(moved.read(&artifact.id)), "abc");
    let later = Arc::new(keys.inherited(wall_nanos()));
    assert_eq!(text(there.for_session("t", later).read(&artifact.id)), "abc");
    // A session that went on from it before that was kept, and one that has nothing to do with it.
    let (_third, third) = store(&remote);
    let before = Arc::new(keys.inherited(1));
    for keys in [before, Arc::default()] {
        third.for_session("s", keys).read(&artifact.id).map(drop).expect_err("not its own");
    }
}

#[test]
fn who_writes_into_the_remote_makes_no_artifact_of_a_session_and_no_file_elsewhere() {
    let remote = Folder::new();
    let (_folder, store) = store(&remote);
    let keys: Arc<ArtifactKeys> = Arc::default();
    let session = store.for_session("s", keys.clone());
    let mut artifact = session.put(b"abc", OUTPUT).expect("stored");
    settle(&store);
    let forged = Note {
        session: "s".to_owned(),
        mime_type: "text/plain".to_owned(),
        title: None,
        kept_at: 0,
        is_dataset: false,
        digest: Some(digest_of(&mut &b"forged"[..]).expect("a digest")),
    };
    let mut forge = |holder: String| {
        let note = RemoteNote { holder, note: forged.clone() };
        remote.write(&note_key(&artifact.id), &serde_json::to_vec(&note).expect("JSON"));
        remote.write(&object_key(&artifact.id), b"forged");
        artifact.path.clone_from(&store.objects().join(&artifact.id));
        let _ = fs::remove_file(&artifact.path);
        let _ = fs::remove_dir_all(store.notes());
        session.read(&artifact.id).map(drop)
    };
    forge(keys.own().holder()).expect_err("no id of its key");
    forge("../../elsewhere".to_owned()).expect_err("no holder");
    assert!(!store.folder().join("../elsewhere").exists());
}

#[test]
fn datasets_are_found_where_they_were_not_published() {
    let remote = Folder::new();
    let (_here, here) = store(&remote);
    let (_there, there) = store(&remote);
    let first = publish(&here, "prices", 1);
    settle(&here);
    let (found, file) = there.datasets().open("prices", None).expect("fetched");
    assert_eq!((found.clone(), digest_of(&mut &file).ok()), (first.clone(), first.digest.clone()));
    assert_eq!(there.delete(&first.artifact).expect_err("held here as well").code(), "artifact-held");
    // Both publish a second one: each has its number where it was published, and none is lost.
    let (mine, theirs) = (publish(&here, "prices", 2), publish(&there, "prices", 3));
    assert_eq!((mine.version, theirs.version), (2, 2));
    settle(&here);
    settle(&there);
    assert_eq!(here.pull(&[], false).expect("pulled").versions, 1);
    let publishers = |store: &ArtifactStore| -> Vec<(u64, String)> {
        let versions = store.datasets().versions("prices").expect("versions");
        versions.into_iter().map(|version| (version.version, version.publisher)).collect()
    };
    let named = |number, name: &str| (number, name.to_owned());
    assert_eq!(publishers(&here), [named(1, "p1"), named(2, "p2"), named(3, "p3")]);
    assert_eq!(there.datasets().get("prices", Some(3)).expect("asked for").publisher, "p2");
    assert_eq!(publishers(&there), [named(1, "p1"), named(2, "p3"), named(3, "p2")]);
    assert_eq!(here.pull(&[], true).expect("pulled").versions, 0, "once is enough");
}

#[test]
fn pushing_pulling_and_verifying_say_what_they_did() {
    let folder = TempDir::new().expect("a folder");
    let without = ArtifactStore::open(folder.path(), ArtifactQuota::default()).expect("a store");
    let ids: Vec<String> =
        ["a", "b", "c"].map(|text| without.put("s", text.as_bytes(), OUTPUT).expect("stored").id).into();
    publish(&without, "prices", 1);
    drop(without);
    let remote = Folder::new();
    let store = again(&folder, &remote);
    let pushed = store.push(&[]).expect("pushed");
    assert_eq!((pushed.sent, pushed.queued), (5, 0), "three artifacts, rows and a version");
    assert_eq!(store.push(&[]).expect("pushed").sent, 0);
    assert_eq!(store.verify(&[], true).expect("verified").sound, 4);
    // A copy here and another one there.
    damage(&folder, &ids[0], b"x");
    remote.write(&object_key(&ids[1]), b"x");
    fs::remove_file(remote.folder.path().join(object_key(&ids[2]))).expect("lost");
    let verified = store.verify(&[], true).expect("verified");
    let mut sent = verified.sent.clone();
    sent.sort_unstable();
    let mut wanted = vec![ids[1].clone(), ids[2].clone()];
    wanted.sort_unstable();
    assert_eq!((verified.sound, verified.healed, sent, verified.lost), (3, vec![ids[0].clone()], wanted, vec![]));
    assert_eq!(store.verify(&[], true).expect("verified").sound, 4);
    // All of it on another machine.
    let (_there, there) = self::store(&remote);
    let pulled = there.pull(&[], false).expect("pulled");
    assert_eq!((pulled.versions, pulled.artifacts), (1, 1));
    assert_eq!(there.pull(&[], true).expect("pulled").artifacts, 3);
    assert_eq!(there.verify(&[], false).expect("verified").sound, 4);
}
