//! Descriptors made again for a restored kernel.

use super::*;

#[test]
fn open_files_are_opened_again_under_their_numbers() {
    let mut bed = Bed::new();
    let files = &mut bed.files;
    files.create_directory(ROOT, "/workspace/d").unwrap();
    let kept = files.open(ROOT, "/workspace/d/../kept", OpenHow { truncate: true, ..FRESH }).unwrap();
    let closed = files.open(ROOT, "/usr", READ).unwrap();
    let moved = files.open(ROOT, "/workspace/d/moved", WRITE).unwrap();
    let dir = files.open(ROOT, "/workspace/d", READ).unwrap();
    let gone = files.open(ROOT, "/workspace/gone", WRITE).unwrap();
    let replaced = files.open(ROOT, "/workspace/replaced", WRITE).unwrap();
    let library = files.open(ROOT, "/usr/lib", READ).unwrap();
    files.write(kept, 0, b"kept").unwrap();
    files.close(closed).unwrap();
    files.rename(ROOT, "/workspace/d", ROOT, "/workspace/e").unwrap();
    files.remove_file(ROOT, "/workspace/gone").unwrap();
    files.put_file("/workspace/other", b"other").unwrap();
    files.rename(ROOT, "/workspace/other", ROOT, "/workspace/replaced").unwrap();

    let table = files.table();
    let told: Vec<_> = table.iter().map(|open| (open.descriptor, open.path.as_str(), open.stale)).collect();
    assert_eq!(
        told,
        [
            (kept, "/workspace/kept", false),
            (moved, "/workspace/e/moved", false),
            (dir, "/workspace/e", false),
            (gone, "/workspace/gone", true),
            (replaced, "/workspace/replaced", true),
            (library, "/usr/lib", false),
        ]
    );
    assert!(table.iter().all(|open| !open.how.create && !open.how.truncate && !open.how.exclusive));

    let mounts = vec![
        mount(&bed.granted(""), "/workspace", Access::ReadWrite),
        mount(&bed.host.path().join("library"), "/usr/lib/words", Access::ReadOnly),
    ];
    let mut restored = Files::new(mounts, Arc::clone(&bed.quota));
    let failed = restored.reopen(&table);
    assert_eq!(failed, [(gone, FileError::NotFound), (replaced, FileError::NotFound)]);
    assert_eq!(restored.read(kept, 0, 10).unwrap(), b"kept");
    restored.write(moved, 0, b"moved").unwrap();
    assert_eq!(restored.get_at(dir, "moved").unwrap(), "moved");
    assert_eq!(restored.read(gone, 0, 10), Err(FileError::NotFound));
    assert_eq!(restored.get_at(library, "words/words.txt").unwrap(), "words");
    // Lost ones keep their numbers until they are closed, also over another restore.
    assert_eq!(restored.open(ROOT, "/", READ), Ok(closed));
    assert_eq!(restored.open(ROOT, "/", READ), Ok(library + 1));
    assert_eq!(restored.table().iter().filter(|open| open.stale).count(), 2);
    restored.close(gone).unwrap();
    assert_eq!(restored.open(ROOT, "/", READ), Ok(gone));
}

#[test]
fn a_table_that_makes_no_sense_is_reported() {
    let mut bed = Bed::new();
    let open = |descriptor| OpenFile { descriptor, path: "/workspace".to_owned(), how: READ, stale: false };
    let table = [open(0), open(3), open(4), open(4), open(5000), open(u32::MAX)];
    let failed = bed.files.reopen(&table);
    let bad: Vec<_> = failed.iter().map(|(descriptor, _)| *descriptor).collect();
    assert_eq!(bad, [0, 3, 4, 5000, u32::MAX]);
    let mut outside = open(6);
    outside.path = "/etc".to_owned();
    assert_eq!(bed.files.reopen(&[outside]), [(6, FileError::NotCapable)]);
    assert_eq!(bed.files.stat(4), Err(FileError::BadDescriptor));
    assert_eq!(bed.files.stat(6), Err(FileError::NotCapable));
}
