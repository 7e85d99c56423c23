//! Tests of the session's quota, and of ways to cheat it.

use super::*;

const LIMITS: FileLimits = FileLimits { bytes_max: 1000, files_max: 5, descriptors_max: 16 };

#[test]
fn growth_counts_and_shrinking_gives_back() {
    let mut bed = Bed::with(LIMITS, &[]);
    let files = &mut bed.files;
    let file = files.open(ROOT, "/workspace/f", WRITE).unwrap();
    assert_eq!(files.usage(), (0, 1));
    files.write(file, 0, &[1; 600]).unwrap();
    files.write(file, 100, &[2; 600]).unwrap();
    assert_eq!(files.usage(), (700, 1));
    assert_eq!(files.write(file, 700, &[3; 301]), Err(FileError::Quota));
    assert_eq!(files.append(file, &[3; 301]), Err(FileError::Quota));
    assert_eq!(files.append(file, &[3; 300]), Ok((300, 1000)));
    files.write(file, 0, &[4; 1000]).unwrap();
    assert_eq!(files.write(file, 1000, &[5]), Err(FileError::Quota));
    files.set_size(file, 10).unwrap();
    assert_eq!(files.usage(), (10, 1));
    files.close(file).unwrap();
    files.put_file("/workspace/f", b"abc").unwrap();
    assert_eq!(files.usage(), (3, 1));
    files.remove_file(ROOT, "/workspace/f").unwrap();
    assert_eq!(files.usage(), (0, 0));
}

#[test]
fn holes_count_like_data() {
    let mut bed = Bed::with(LIMITS, &[]);
    let file = bed.files.open(ROOT, "/workspace/f", WRITE).unwrap();
    assert_eq!(bed.files.write(file, 1 << 40, b"x"), Err(FileError::Quota));
    assert_eq!(bed.files.set_size(file, 1001), Err(FileError::Quota));
    assert_eq!(bed.files.set_size(file, i64::MAX as u64), Err(FileError::Quota));
    bed.files.write(file, 500, b"x").unwrap();
    assert_eq!(bed.files.usage().0, 501);
    bed.files.set_size(file, 1000).unwrap();
    assert_eq!(bed.files.usage().0, 1000);
    assert_eq!(bed.files.stat(file).unwrap().size, 1000);
}

#[test]
fn removed_files_count_until_nobody_has_them_open() {
    let mut bed = Bed::with(LIMITS, &[]);
    let mut second = bed.second_kernel();
    let files = &mut bed.files;
    let file = files.open(ROOT, "/workspace/f", WRITE).unwrap();
    files.write(file, 0, &[1; 400]).unwrap();
    let again = second.open(ROOT, "/workspace/f", READ).unwrap();
    files.remove_file(ROOT, "/workspace/f").unwrap();
    assert_eq!(files.usage(), (400, 0));
    files.append(file, &[1; 500]).unwrap();
    files.close(file).unwrap();
    assert_eq!(files.usage(), (900, 0));
    assert_eq!(files.put_file("/workspace/g", &[1; 101]), Err(FileError::Quota));
    second.close(again).unwrap();
    assert_eq!(files.usage(), (0, 1));
    // A kernel that goes away gives back too.
    let file = second.open(ROOT, "/workspace/g", WRITE).unwrap();
    second.write(file, 0, &[1; 300]).unwrap();
    files.remove_file(ROOT, "/workspace/g").unwrap();
    assert_eq!(files.usage(), (300, 0));
    drop(second);
    assert_eq!(files.usage(), (0, 0));
}

#[test]
fn hard_links_count_once() {
    let mut bed = Bed::with(LIMITS, &[]);
    let files = &mut bed.files;
    files.put_file("/workspace/f", &[1; 800]).unwrap();
    files.link(ROOT, "/workspace/f", ROOT, "/workspace/g").unwrap();
    assert_eq!(files.usage(), (800, 2));
    files.rename(ROOT, "/workspace/f", ROOT, "/workspace/g").unwrap();
    assert_eq!(files.usage(), (800, 2));
    files.remove_file(ROOT, "/workspace/f").unwrap();
    assert_eq!(files.usage(), (800, 1));
    files.remove_file(ROOT, "/workspace/g").unwrap();
    assert_eq!(files.usage(), (0, 0));
}

#[test]
fn renaming_over_a_file_gives_it_back() {
    let mut bed = Bed::with(LIMITS, &[]);
    let files = &mut bed.files;
    for _ in 0..3 {
        files.put_file("/workspace/new", &[1; 400]).unwrap();
        files.rename(ROOT, "/workspace/new", ROOT, "/workspace/old").unwrap();
        assert_eq!(files.usage(), (400, 1));
    }
    let old = files.open(ROOT, "/workspace/old", READ).unwrap();
    files.put_file("/workspace/new", &[1; 400]).unwrap();
    files.rename(ROOT, "/workspace/new", ROOT, "/workspace/old").unwrap();
    assert_eq!(files.usage(), (800, 1));
    files.close(old).unwrap();
    assert_eq!(files.usage(), (400, 1));
    files.create_directory(ROOT, "/workspace/a").unwrap();
    files.create_directory(ROOT, "/workspace/b").unwrap();
    files.rename(ROOT, "/workspace/a", ROOT, "/workspace/b").unwrap();
    assert_eq!(files.usage(), (400, 2));
}

#[test]
fn what_was_there_before_is_not_counted() {
    let mut bed = Bed::with(LIMITS, &[]);
    fs::write(bed.granted("big"), vec![0; 5000]).unwrap();
    let big = bed.files.open(ROOT, "/workspace/big", WRITE).unwrap();
    bed.files.write(big, 0, &[1; 5000]).unwrap();
    assert_eq!(bed.files.usage(), (0, 0));
    assert_eq!(bed.files.append(big, &[1; 1001]), Err(FileError::Quota));
    bed.files.append(big, &[1; 900]).unwrap();
    bed.files.close(big).unwrap();
    bed.files.remove_file(ROOT, "/workspace/big").unwrap();
    // It made room, but never more than the whole quota.
    assert_eq!(bed.files.usage(), (0, 0));
    assert_eq!(bed.files.put_file("/workspace/f", &[1; 1001]), Err(FileError::Quota));
}

#[test]
fn names_are_counted_whatever_they_name() {
    let mut bed = Bed::with(LIMITS, &[]);
    let files = &mut bed.files;
    files.put_file("/workspace/f", b"").unwrap();
    files.create_directory(ROOT, "/workspace/d").unwrap();
    files.symlink("f", ROOT, "/workspace/s").unwrap();
    files.link(ROOT, "/workspace/f", ROOT, "/workspace/l").unwrap();
    files.open(ROOT, "/workspace/d/f", FRESH).unwrap();
    assert_eq!(files.usage(), (0, 5));
    for _ in 0..2 {
        assert_eq!(files.open(ROOT, "/workspace/x", WRITE), Err(FileError::Quota));
        assert_eq!(files.open(ROOT, "/workspace/x", FRESH), Err(FileError::Quota));
        assert_eq!(files.create_directory(ROOT, "/workspace/x"), Err(FileError::Quota));
        assert_eq!(files.symlink("f", ROOT, "/workspace/x"), Err(FileError::Quota));
        assert_eq!(files.link(ROOT, "/workspace/f", ROOT, "/workspace/x"), Err(FileError::Quota));
    }
    // What is there already says so.
    assert_eq!(files.open(ROOT, "/workspace/f", FRESH), Err(FileError::Exists));
    assert_eq!(files.create_directory(ROOT, "/workspace/d"), Err(FileError::Exists));
    files.put_file("/workspace/f", b"x").unwrap();
    files.rename(ROOT, "/workspace/f", ROOT, "/workspace/x").unwrap();
    files.remove_file(ROOT, "/workspace/d/f").unwrap();
    files.remove_directory(ROOT, "/workspace/d").unwrap();
    assert_eq!(files.usage().1, 3);
    assert_eq!(files.remove_directory(ROOT, "/workspace/d"), Err(FileError::NotFound));
    files.put_file("/workspace/y", b"x").unwrap();
}

#[test]
fn kernels_of_a_session_share_it() {
    let mut bed = Bed::with(FileLimits { bytes_max: 1 << 20, ..LIMITS }, &[]);
    let mut second = bed.second_kernel();
    bed.files.put_file("/workspace/f", b"").unwrap();
    std::thread::scope(|scope| {
        for files in [&mut bed.files, &mut second] {
            scope.spawn(move || {
                let file = files.open(ROOT, "/workspace/f", WRITE).unwrap();
                for _ in 0..1000 {
                    files.append(file, &[1; 100]).unwrap();
                }
            });
        }
    });
    assert_eq!(bed.quota.usage(), (200_000, 1));
    assert_eq!(second.stat_at(ROOT, "/workspace/f", true).unwrap().size, 200_000);
}

#[test]
fn what_another_session_has_open_counts_for_who_removed_it() {
    let mut bed = Bed::with(LIMITS, &[]);
    let folder = || mount(&bed.granted(""), "/workspace", Access::ReadWrite);
    let (quota, other) = (Quota::new(LIMITS), Quota::new(LIMITS));
    let mut theirs = Files::new(vec![folder()], Arc::clone(&other));
    let mut gone = Files::new(vec![folder()], Arc::clone(&quota));
    let files = &mut bed.files;
    files.put_file("/workspace/f", &[1; 800]).unwrap();
    let held = theirs.open(ROOT, "/workspace/f", READ).unwrap();
    files.remove_file(ROOT, "/workspace/f").unwrap();
    assert_eq!(files.usage(), (800, 0));
    assert_eq!(files.put_file("/workspace/g", &[1; 201]), Err(FileError::Quota));
    theirs.close(held).unwrap();
    assert_eq!(files.usage(), (0, 1));
    // What replaces a file removes it, too, and the session that removed it may be gone first.
    gone.put_file("/workspace/f", &[1; 500]).unwrap();
    gone.put_file("/workspace/new", &[1; 500]).unwrap();
    let held = theirs.open(ROOT, "/workspace/f", READ).unwrap();
    gone.rename(ROOT, "/workspace/new", ROOT, "/workspace/f").unwrap();
    assert_eq!(gone.usage(), (1000, 1));
    drop((gone, quota));
    theirs.close(held).unwrap();
    assert_eq!(other.usage(), (0, 0));
}

#[test]
fn sessions_that_open_and_remove_the_same_files_end_at_zero() {
    let bed = Bed::new();
    let session = || {
        let quota = Quota::new(FileLimits::default());
        let files = Files::new(vec![mount(&bed.granted(""), "/workspace", Access::ReadWrite)], Arc::clone(&quota));
        (quota, files)
    };
    let ((writer, mut files), (reader, mut other)) = (session(), session());
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut opened = 0;
            loop {
                match other.open(ROOT, "/workspace/f", READ) {
                    Ok(file) => other.close(file).unwrap(),
                    Err(error) => assert_eq!(error, FileError::NotFound),
                }
                opened += 1;
                if other.stat_at(ROOT, "/workspace/end", true).is_ok() {
                    return opened;
                }
            }
        });
        for _ in 0..3000 {
            files.put_file("/workspace/f", &[1; 100]).unwrap();
            files.remove_file(ROOT, "/workspace/f").unwrap();
        }
        files.put_file("/workspace/end", b"").unwrap();
        assert!(reading.join().unwrap() > 0);
    });
    assert_eq!((writer.usage(), reader.usage()), ((0, 1), (0, 0)));
}
