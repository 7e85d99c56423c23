//! Random paths, and random operations on them, never lead out of the mounts.

use proptest::prelude::*;

use super::*;

/// Names of what is there, of what is not, and of what would lead out.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => Just("..".to_owned()),
        2 => Just(".".to_owned()),
        1 => Just(String::new()),
        8 => prop::sample::select(vec![
            "workspace", "usr", "lib", "words", "a", "b", "up", "out", "abs", "alias", "loop", "inner", "secret.txt", "private",
            "granted", "f", "etc", "passwd",
        ]).prop_map(str::to_owned),
        1 => "[a-z./\\\\%\\x00é]{0,6}",
    ]
}

/// Generates any path, though often one from an existing place: else hardly one path in a hundred would lead anywhere.
fn wild() -> impl Strategy<Value = String> {
    let start = [
        "",
        "",
        "/",
        "/workspace/",
        "/workspace/a/",
        "/workspace/inner/",
        "/usr/lib/words/",
        "a/b/",
        "a/up/",
        "alias/",
    ];
    (prop::sample::select(start.to_vec()), prop::collection::vec(name(), 1..6))
        .prop_map(|(start, names)| format!("{start}{}", names.join("/")))
}

/// One of a few places close together, so that operations meet what others have made.
fn near() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "a",
        "b",
        "f",
        "a/f",
        "a/b",
        "b/a",
        "a/b/f",
        "a/up",
        "../workspace/f",
        "a/../b",
        "b/../a/f",
    ])
    .prop_map(str::to_owned)
}

#[derive(Debug, Clone)]
enum Operation {
    Open(String, bool, bool),
    Rename(String, String),
    Link(String, String),
    Symlink(String, String),
    Folder(String),
    Remove(String),
}

fn operation<P: Strategy<Value = String>>(path: fn() -> P) -> impl Strategy<Value = Operation> {
    let any = prop::bool::ANY;
    prop_oneof![
        4 => (path(), any, any).prop_map(|(path, write, keep)| Operation::Open(path, write, keep)),
        2 => (path(), path()).prop_map(|(from, to)| Operation::Rename(from, to)),
        1 => (path(), path()).prop_map(|(from, to)| Operation::Link(from, to)),
        2 => (path(), path()).prop_map(|(target, at)| Operation::Symlink(target, at)),
        1 => path().prop_map(Operation::Folder),
        1 => path().prop_map(Operation::Remove),
    ]
}

/// Half of the places near, half wild.
fn mixed() -> impl Strategy<Value = String> {
    prop_oneof![near(), wild()]
}

fn bed() -> Bed {
    let bed = Bed::with(FileLimits::default(), &[("inner", "/workspace/inner", Access::ReadWrite)]);
    fs::create_dir_all(bed.granted("a/b")).unwrap();
    fs::create_dir_all(bed.granted("inner")).unwrap();
    fs::write(bed.granted("inner/f"), SECRET).unwrap();
    fs::write(bed.granted("a/f"), "f").unwrap();
    symlink("..", bed.granted("a/up")).unwrap();
    symlink("../..", bed.granted("out")).unwrap();
    symlink("../../../private", bed.host.path().join("library/out")).unwrap();
    symlink(bed.host.path(), bed.granted("abs")).unwrap();
    symlink("../a/b/../up/a/up/..", bed.granted("a/b/up")).unwrap();
    symlink("loop", bed.granted("loop")).unwrap();
    symlink("inner", bed.granted("alias")).unwrap();
    bed
}

/// Everything on the host that the guest may not change, and may not read.
fn check_outside(bed: &Bed) {
    for path in ["secret.txt", "private/secret.txt", "granted/inner/f"] {
        assert_eq!(fs::read_to_string(bed.host.path().join(path)).unwrap(), SECRET);
    }
    assert_eq!(fs::read_to_string(bed.host.path().join("library/words.txt")).unwrap(), "words");
    assert_eq!(fs::read_dir(bed.host.path().join("private")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(bed.host.path().join("library")).unwrap().count(), 2);
    assert_eq!(fs::read_dir(bed.host.path()).unwrap().count(), 5);
}

fn perform(files: &mut Files, dir: Descriptor, operation: &Operation) {
    let _ = match operation {
        Operation::Open(path, write, keep) => {
            let how = OpenHow { write: *write, create: *write, ..READ };
            let opened = files.open(dir, path, how);
            if let Ok(file) = opened {
                let data = files.read(file, 0, 1000).unwrap_or_default();
                assert!(!String::from_utf8_lossy(&data).contains(SECRET), "{path}");
                let _ = files.write(file, 0, b"guest");
                let _ = files.read_directory(file, 0);
                if !keep {
                    files.close(file).unwrap();
                }
            }
            opened.map(drop)
        }
        Operation::Rename(from, to) => files.rename(dir, from, dir, to),
        Operation::Link(from, to) => files.link(dir, from, dir, to),
        Operation::Symlink(target, at) => files.symlink(target, dir, at),
        Operation::Folder(at) => files.create_directory(dir, at),
        Operation::Remove(at) => files.remove_file(dir, at).or_else(|_| files.remove_directory(dir, at)),
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_operations_leaves_the_mounts(operations in prop::collection::vec(operation(mixed), 1..40)) {
        let mut bed = bed();
        let workspace = bed.files.open(ROOT, "/workspace", READ).unwrap();
        let deep = bed.files.open(ROOT, "/workspace/a/b", READ).unwrap();
        for (turn, operation) in operations.iter().enumerate() {
            perform(&mut bed.files, [ROOT, workspace, deep][turn % 3], operation);
        }
        check_outside(&bed);
        for open in bed.files.table() {
            bed.files.close(open.descriptor).unwrap();
        }
    }

    #[test]
    fn no_path_reads_the_secret(paths in prop::collection::vec(wild(), 50)) {
        let mut bed = bed();
        let deep = bed.files.open(ROOT, "/workspace/a/b", READ).unwrap();
        for path in &paths {
            for dir in [ROOT, deep] {
                if let Ok(data) = bed.files.get_at(dir, path) {
                    prop_assert!(!data.contains(SECRET), "{path}");
                }
                if let Ok(stat) = bed.files.stat_at(dir, path, true) {
                    prop_assert!(stat.size != SECRET.len() as u64, "{path}");
                }
                let _ = bed.files.read_link(dir, path);
            }
        }
    }

    #[test]
    fn accounts_stay_those_of_the_disk(operations in prop::collection::vec(operation(near), 1..60)) {
        let host = tempfile::tempdir().unwrap();
        let mounts = vec![mount(host.path(), "/workspace", Access::ReadWrite)];
        let mut files = Files::new(mounts, Quota::new(FileLimits::default()));
        let workspace = files.open(ROOT, "/workspace", READ).unwrap();
        for operation in &operations {
            perform(&mut files, workspace, operation);
        }
        for open in files.table() {
            files.close(open.descriptor).unwrap();
        }
        prop_assert_eq!(files.usage(), disk_usage(host.path()));
    }
}

/// Bytes of files, each once, and names.
fn disk_usage(folder: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    fn visit(folder: &Path, seen: &mut std::collections::HashMap<u64, u64>, names: &mut u64) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            *names += 1;
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                visit(&entry.path(), seen, names);
            } else if metadata.is_file() {
                seen.insert(metadata.ino(), metadata.len());
            }
        }
    }
    let (mut seen, mut names) = (std::collections::HashMap::new(), 0);
    visit(folder, &mut seen, &mut names);
    (seen.values().sum(), names)
}
