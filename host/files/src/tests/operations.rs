//! Tests of the operations, the path rules, and the bounds on single calls.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn the_root_lists_mount_points_and_their_ancestors() {
    let mut bed = Bed::new();
    let root = bed.files.read_directory(ROOT, 0).unwrap();
    assert_eq!(root.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["usr", "workspace"]);
    assert!(root.iter().all(|entry| entry.kind == FileKind::Directory));
    assert_eq!(root[1].inode, bed.files.stat_at(ROOT, "workspace", true).unwrap().inode);
    assert_eq!(root[0].inode, bed.files.stat_at(ROOT, "/usr/", true).unwrap().inode);
    assert_eq!(bed.files.names("/usr/./lib//"), ["words"]);
    assert_eq!(bed.files.names("/usr/lib/words"), ["words.txt"]);
    assert_eq!(bed.files.names("/../.."), ["usr", "workspace"]);
    assert_eq!(bed.files.stat(ROOT).unwrap().kind, FileKind::Directory);
    assert_eq!(bed.files.open(ROOT, "/usr", WRITE), Err(FileError::IsDirectory));
    assert_eq!(bed.files.open(ROOT, "/usr", FRESH), Err(FileError::Exists));
    assert_eq!(bed.files.create_directory(ROOT, "/usr"), Err(FileError::Exists));
    assert_eq!(bed.files.create_directory(ROOT, "/workspace/"), Err(FileError::Exists));
    assert_eq!(bed.files.close(ROOT), Err(FileError::NotPermitted));
    let mut bare = Files::new(Vec::new(), Quota::new(FileLimits::default()));
    assert_eq!(bare.read_directory(ROOT, 0).unwrap(), []);
    assert_eq!(bare.get("/etc/x"), Err(FileError::NotCapable));
}

#[test]
fn a_mount_may_be_the_root() {
    let bed = Bed::new();
    let mut files = Files::new(
        vec![
            mount(&bed.granted(""), "/", Access::ReadWrite),
            mount(&bed.host.path().join("library"), "/lib/words", Access::ReadOnly),
        ],
        Arc::clone(&bed.quota),
    );
    files.put_file("/f", b"f").unwrap();
    assert_eq!(files.names("/"), ["f", "lib"]);
    assert_eq!(files.names("/lib"), ["words"]);
    assert_eq!(files.get("/lib/../lib/words/words.txt").unwrap(), "words");
    assert_eq!(files.get("../f").unwrap(), "f");
    assert_eq!(files.get("../secret.txt"), Err(FileError::NotFound));
    assert_eq!(files.remove_directory(ROOT, "/lib"), Err(FileError::Busy));
}

#[test]
fn bad_guest_paths_are_not_mounted() {
    let bed = Bed::new();
    for guest in ["", "workspace", "/a/../b", "/a\0b"] {
        let refused = Mount { host: bed.granted(""), guest: guest.to_owned(), access: Access::ReadOnly }.open();
        assert!(matches!(refused, Err(MountError::GuestPath { .. })), "{guest}");
    }
    let missing = Mount { host: bed.granted("missing"), guest: "/m".to_owned(), access: Access::ReadOnly }.open();
    let error = missing.unwrap_err();
    assert!(error.to_string().contains("missing") && error.to_string().contains("`/m`"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn odd_paths_get_their_own_errors() {
    let mut bed = Bed::new();
    bed.files.put_file("/workspace/f", b"f").unwrap();
    let long = format!("/workspace/{}", "n".repeat(256));
    let longer = "a/".repeat(2049);
    for (path, expected) in [
        ("", FileError::NotFound),
        ("/workspace/a\0b", FileError::Invalid),
        (&long, FileError::NameTooLong),
        (&longer, FileError::NameTooLong),
        ("/workspace/f/", FileError::NotDirectory),
        ("/workspace/f/.", FileError::NotDirectory),
        ("/workspace/f/..", FileError::NotDirectory),
        ("/workspace/f/g", FileError::NotDirectory),
        ("/workspace/g", FileError::NotFound),
    ] {
        assert_eq!(bed.files.get(path), Err(expected), "{path}");
        assert_eq!(bed.files.stat_at(ROOT, path, false), Err(expected), "{path}");
    }
    assert_eq!(bed.files.remove_file(ROOT, "/workspace/f/"), Err(FileError::NotDirectory));
    assert_eq!(bed.files.remove_directory(ROOT, "/workspace/."), Err(FileError::Busy));
    assert_eq!(bed.files.open(ROOT, "/workspace/new/", WRITE), Err(FileError::IsDirectory));
    fs::create_dir(bed.granted("d")).unwrap();
    assert_eq!(bed.files.remove_directory(ROOT, "/workspace/d/."), Err(FileError::Invalid));
    assert_eq!(bed.files.open(ROOT, "/workspace/d", WRITE), Err(FileError::IsDirectory));
    assert_eq!(bed.files.remove_file(ROOT, "/workspace/d"), Err(FileError::IsDirectory));
    assert_eq!(bed.files.remove_directory(ROOT, "/workspace/f"), Err(FileError::NotDirectory));
    assert_eq!(bed.files.create_directory(ROOT, "/workspace/e/"), Ok(()));
    assert_eq!(bed.files.open(ROOT, "/workspace/f", OpenHow { directory: true, ..READ }), Err(FileError::NotDirectory));
}

#[test]
fn reads_and_writes_are_positional_and_bounded() {
    let mut bed = Bed::new();
    let file = bed.files.open(ROOT, "/workspace/f", WRITE).unwrap();
    let data = vec![7; (1 << 20) + 5];
    assert_eq!(bed.files.write(file, 0, &data), Ok(1 << 20));
    assert_eq!(bed.files.append(file, b"end"), Ok((3, (1 << 20) + 3)));
    assert_eq!(bed.files.read(file, 1 << 20, u32::MAX).unwrap(), b"end");
    let other = bed.files.open(ROOT, "/workspace/g", WRITE).unwrap();
    assert_eq!(bed.files.append(other, &data), Ok((1 << 20, 1 << 20)));
    assert_eq!(bed.files.append(other, b"end"), Ok((3, (1 << 20) + 3)));
    assert_eq!(bed.files.read(file, 0, u32::MAX).unwrap().len(), 1 << 20);
    assert_eq!(bed.files.read(file, 5, 3).unwrap(), [7, 7, 7]);
    assert_eq!(bed.files.read(file, u64::from(u32::MAX), 10).unwrap(), b"");
    assert_eq!(bed.files.read(file, u64::from(u32::MAX), u32::MAX).unwrap(), b"");
    assert!(bed.files.read(file, (1 << 20) + 1, u32::MAX).unwrap().capacity() < 100);
    assert_eq!(bed.files.read(file, u64::MAX, 1), Err(FileError::Invalid));
    assert_eq!(bed.files.write(file, u64::MAX, b"x"), Err(FileError::FileTooLarge));
    assert_eq!(bed.files.write(file, i64::MAX as u64, b"x"), Err(FileError::FileTooLarge));
    assert_eq!(bed.files.set_size(file, u64::MAX), Err(FileError::FileTooLarge));
    assert_eq!(bed.files.write(file, u64::MAX, b""), Ok(0));
    bed.files.write(file, 1, b"abc").unwrap();
    assert_eq!(bed.files.read(file, 0, 5).unwrap(), *b"\x07abc\x07");
    bed.files.set_size(file, 2).unwrap();
    assert_eq!(bed.files.read(file, 0, 5).unwrap(), *b"\x07a");
    bed.files.sync(file).unwrap();
    let mute = bed.files.open(ROOT, "/workspace/f", OpenHow { read: false, ..WRITE }).unwrap();
    assert_eq!(bed.files.read(mute, 0, 1), Err(FileError::BadDescriptor));
    // Appending and writing at an offset go together.
    let append = bed.files.open(ROOT, "/workspace/f", OpenHow { append: true, ..READ }).unwrap();
    assert_eq!(bed.files.append(append, b"z"), Ok((1, 3)));
    assert_eq!(bed.files.write(append, 0, b"y"), Ok(1));
    assert_eq!(bed.files.get("/workspace/f").unwrap(), "yaz");
}

#[test]
fn numbers_are_the_lowest_free_and_bounded() {
    let limits = FileLimits { descriptors_max: 3, ..FileLimits::default() };
    let mut bed = Bed::with(limits, &[]);
    let files = &mut bed.files;
    assert_eq!(files.open(ROOT, "/workspace", READ), Ok(4));
    assert_eq!(files.open(ROOT, "/", READ), Ok(5));
    assert_eq!(files.open(4, "f", WRITE), Ok(6));
    assert_eq!(files.open(4, "g", WRITE), Err(FileError::TooManyOpen));
    assert_eq!(files.stat_at(4, "g", true), Err(FileError::NotFound));
    files.close(5).unwrap();
    assert_eq!(files.close(5), Err(FileError::BadDescriptor));
    assert_eq!(files.open(4, "f", READ), Ok(5));
    for bad in [0, 1, 2, 7, 100, u32::MAX] {
        assert_eq!(files.stat(bad), Err(FileError::BadDescriptor));
        assert_eq!(files.close(bad), Err(FileError::BadDescriptor));
        assert_eq!(files.open(bad, "f", READ), Err(FileError::BadDescriptor));
    }
    assert_eq!(files.get_at(5, "x"), Err(FileError::NotDirectory));
    assert_eq!(files.read(4, 0, 1), Err(FileError::IsDirectory));
    assert_eq!(files.read_directory(5, 0), Err(FileError::NotDirectory));
}

#[test]
fn times() {
    let mut bed = Bed::new();
    let files = &mut bed.files;
    files.put_file("/workspace/f", b"f").unwrap();
    files.symlink("f", ROOT, "/workspace/l").unwrap();
    let file = files.open(ROOT, "/workspace/f", READ).unwrap();
    files.set_times(file, Some(1_000_000_001), None).unwrap();
    files.set_times_at(ROOT, "/workspace/l", true, None, Some(2_000_000_002)).unwrap();
    files.set_times_at(ROOT, "/workspace/l", false, Some(3), Some(4)).unwrap();
    files.set_times_at(ROOT, "/workspace", true, None, Some(5)).unwrap();
    let stat = files.stat(file).unwrap();
    assert_eq!((stat.accessed, stat.modified), (1_000_000_001, 2_000_000_002));
    assert_eq!(files.stat_at(ROOT, "/workspace/f", true).unwrap(), stat);
    let link = files.stat_at(ROOT, "/workspace/l", false).unwrap();
    assert_eq!((link.accessed, link.modified), (3, 4));
    assert_eq!(files.stat_at(ROOT, "/workspace", true).unwrap().modified, 5);
    files.set_times(file, Some(u64::MAX), None).unwrap();
}

#[test]
fn folders_are_listed_piece_by_piece() {
    let mut bed = Bed::new();
    for number in 0..2000 {
        fs::write(bed.granted(&format!("f{number:04}")), "").unwrap();
    }
    let dir = bed.files.open(ROOT, "/workspace", READ).unwrap();
    let first = bed.files.read_directory(dir, 0).unwrap();
    assert!(first.len() < 2000 && first[0].name == "f0000");
    // Removing what was listed does not make the rest be missed.
    for entry in &first {
        bed.files.remove_file(dir, &entry.name).unwrap();
    }
    let mut seen = first.len();
    loop {
        let piece = bed.files.read_directory(dir, seen as u64).unwrap();
        if piece.is_empty() {
            break;
        }
        assert_eq!(piece[0].name, format!("f{seen:04}"));
        seen += piece.len();
    }
    assert_eq!(seen, 2000);
    assert_eq!(bed.files.read_directory(dir, u64::MAX).unwrap(), []);
    assert_eq!(bed.files.read_directory(dir, 0).unwrap().len(), 512);
}

#[test]
fn renaming() {
    let mut bed = Bed::new();
    let files = &mut bed.files;
    files.create_directory(ROOT, "/workspace/d").unwrap();
    files.put_file("/workspace/d/f", b"f").unwrap();
    files.put_file("/workspace/g", b"g").unwrap();
    let d = files.open(ROOT, "/workspace/d", READ).unwrap();
    files.rename(ROOT, "/workspace/d/", ROOT, "/workspace/e/").unwrap();
    assert_eq!(files.get_at(d, "f").unwrap(), "f");
    files.rename(d, "f", ROOT, "/workspace/g").unwrap();
    assert_eq!(files.get("/workspace/g").unwrap(), "f");
    assert_eq!(files.rename(ROOT, "/workspace/g", ROOT, "/workspace/h/"), Err(FileError::NotDirectory));
    assert_eq!(files.rename(ROOT, "/workspace/e", ROOT, "/workspace/e/x"), Err(FileError::Invalid));
    assert_eq!(files.rename(ROOT, "/workspace/g", ROOT, "/workspace/e"), Err(FileError::IsDirectory));
    assert_eq!(files.rename(ROOT, "/workspace/none", ROOT, "/workspace/g"), Err(FileError::NotFound));
    assert_eq!(files.names("/workspace"), ["e", "g"]);
}

#[test]
fn files_open_alike_in_a_private_workspace_and_in_a_folder_of_the_host() {
    let mut found = Vec::new();
    for is_own in [true, false] {
        let bed = Bed::new();
        fs::create_dir_all(bed.granted("d/e")).unwrap();
        for file in ["f", "d/f", "d/e/f"] {
            fs::write(bed.granted(file), "words").unwrap();
        }
        symlink("d", bed.granted("link")).unwrap();
        symlink("d/f", bed.granted("file-link")).unwrap();
        symlink("../secret.txt", bed.granted("out")).unwrap();
        symlink("nowhere", bed.granted("dangling")).unwrap();
        let mut files = if is_own {
            bed.files
        } else {
            Files::new(
                vec![mount(&bed.host.path().join("granted"), "/workspace", Access::ReadWrite)],
                Quota::new(FileLimits::default()),
            )
        };
        let paths = [
            "f",
            "d/f",
            "d/e/f",
            "d",
            "f/",
            "f/x",
            "none",
            "d/none",
            "link/f",
            "link",
            "file-link",
            "out",
            "dangling",
            "d/../f",
            "./d//f",
            "d/e/../..",
        ];
        for path in paths {
            let path = format!("/workspace/{path}");
            let unfollowed = OpenHow { follow_symlinks: false, ..READ };
            let emptied = OpenHow { truncate: true, create: false, ..WRITE };
            let folder = OpenHow { directory: true, ..READ };
            for how in [READ, unfollowed, folder, OpenHow { create: false, ..WRITE }, FRESH, WRITE, emptied] {
                let opened = files.open(ROOT, &path, how).map(|file| {
                    let stat = files.stat(file).unwrap();
                    let data = files.read(file, 0, 100);
                    files.close(file).unwrap();
                    (stat.kind, stat.size, data)
                });
                found.push((is_own, path.clone(), how, opened));
            }
        }
    }
    let (own, granted) = found.split_at(found.len() / 2);
    for (own, granted) in own.iter().zip(granted) {
        assert_eq!((&own.1, &own.2, &own.3), (&granted.1, &granted.2, &granted.3));
    }
}

/// A workspace that is seen at `/mnt/data` as well, and a folder for temporary files, both the session's own.
fn aliased(bed: &Bed) -> Files {
    fs::create_dir(bed.host.path().join("tmp")).unwrap();
    let own = |host: PathBuf, guest: &str| {
        Mount { host, guest: guest.to_owned(), access: Access::ReadWrite }.open_own().unwrap()
    };
    let workspace = own(bed.granted(""), "/workspace");
    let alias = workspace.also_at("/mnt/data").unwrap();
    let mounts = vec![workspace, alias, own(bed.host.path().join("tmp"), "/tmp"), bed.library()];
    Files::new(mounts, Arc::clone(&bed.quota))
}

#[test]
fn an_alias_is_the_same_folder() {
    let bed = Bed::new();
    let mut files = aliased(&bed);
    files.put_file("/mnt/data/a", b"text").unwrap();
    assert_eq!(files.get("/workspace/a").unwrap(), "text");
    assert_eq!((files.names("/mnt"), files.names("/mnt/data")), (vec!["data".to_owned()], vec!["a".to_owned()]));
    assert_eq!(files.stat_at(ROOT, "/mnt/data/a", true), files.stat_at(ROOT, "/workspace/a", true));
    // What is open is followed by either name.
    let open = files.open(ROOT, "/mnt/data/a", READ).unwrap();
    files.rename(ROOT, "/workspace/a", ROOT, "/mnt/data/b").unwrap();
    let table = files.table();
    assert_eq!((table[0].path.as_str(), table[0].stale), ("/mnt/data/b", false));
    files.close(open).unwrap();
    files.link(ROOT, "/workspace/b", ROOT, "/mnt/data/c").unwrap();
    assert_eq!(bed.quota.usage(), (4, 2));
    // It can be neither moved nor removed, and leads nowhere else.
    assert_eq!(files.remove_directory(ROOT, "/mnt/data"), Err(FileError::Busy));
    assert_eq!(files.rename(ROOT, "/mnt/data", ROOT, "/workspace/d"), Err(FileError::Busy));
    assert_eq!(files.get("/mnt/data/../../secret.txt"), Err(FileError::NotCapable));
    assert_eq!(files.get("/mnt/data/../../workspace/b").unwrap(), "text");
    symlink("../secret.txt", bed.granted("out")).unwrap();
    symlink("../tmp", bed.granted("tmp")).unwrap();
    assert_eq!(files.get("/mnt/data/out"), Err(FileError::NotCapable));
    assert_eq!(files.stat_at(ROOT, "/mnt/data/tmp/x", true), Err(FileError::NotCapable));
}

#[test]
fn files_move_between_the_folders_that_are_the_sessions_own_and_no_others() {
    let bed = Bed::new();
    let mut files = aliased(&bed);
    files.put_file("/tmp/a", b"text").unwrap();
    let open = files.open(ROOT, "/tmp/a", READ).unwrap();
    files.rename(ROOT, "/tmp/a", ROOT, "/workspace/a").unwrap();
    assert_eq!((files.get("/mnt/data/a").unwrap(), files.names("/tmp")), ("text".to_owned(), vec![]));
    assert_eq!(files.table()[0].path, "/workspace/a");
    files.close(open).unwrap();
    assert_eq!(bed.quota.usage(), (4, 1));
    assert_eq!(files.rename(ROOT, "/usr/lib/words/words.txt", ROOT, "/tmp/w"), Err(FileError::CrossDevice));
    assert_eq!(files.rename(ROOT, "/tmp", ROOT, "/workspace/t"), Err(FileError::Busy));
    // A folder of the host's is another device to them, as is one that is the same folder by another grant.
    let other = mount(&bed.granted(""), "/other", Access::ReadWrite);
    let own = Mount { host: bed.host.path().join("tmp"), guest: "/tmp".to_owned(), access: Access::ReadWrite };
    let mut files = Files::new(vec![other, own.open_own().unwrap()], Arc::clone(&bed.quota));
    assert_eq!(files.rename(ROOT, "/other/a", ROOT, "/tmp/a"), Err(FileError::CrossDevice));
}

#[test]
fn what_collides_is_found_whatever_way_it_is_written() {
    let bed = Bed::new();
    let library = bed.library();
    for guest in ["/usr/lib/words", "/usr//lib/./words/", "/usr", "/", "/usr/lib/words/deep"] {
        assert!(library.collides_with(guest), "{guest}");
    }
    for guest in ["/usr/lib/word", "/usr/lib/wordsmith", "/mnt/data", "relative", "/usr/../usr/lib/words"] {
        assert!(!library.collides_with(guest), "{guest}");
    }
    assert!(library.holds("/usr/lib/words/deep") && library.holds("/usr/lib/words") && !library.holds("/usr/lib"));
    assert!(library.also_at("relative").is_none() && library.also_at("/a/../b").is_none());
}

#[test]
fn a_folder_that_is_made_later_is_made_when_a_guest_looks_into_it_and_is_as_any_other() {
    let host = tempfile::tempdir().unwrap();
    let place = host.path().join("made");
    let (made, path) = (Arc::new(AtomicUsize::new(0)), place.clone());
    let count = Arc::clone(&made);
    let later = OpenMount::made_later("/workspace", move || {
        count.fetch_add(1, Ordering::Relaxed);
        fs::create_dir(&path).or_else(|error| if path.is_dir() { Ok(()) } else { Err(error) })?;
        Ok(path.clone())
    });
    let later = later.unwrap();
    let alias = later.also_at("/home/user").unwrap();
    let mut files = Files::new(vec![later, alias], Quota::new(FileLimits::default()));
    assert_eq!(files.get("/nowhere/at/all"), Err(FileError::NotFound));
    assert_eq!(made.load(Ordering::Relaxed), 0, "nobody has looked");
    assert_eq!(files.names("/workspace"), [""; 0]);
    files.put_file("/workspace/a.txt", b"a").unwrap();
    assert_eq!(files.get("/home/user/a.txt").unwrap(), "a");
    files.rename(ROOT, "/workspace/a.txt", ROOT, "/home/user/b.txt").unwrap();
    assert_eq!((files.names("/workspace"), made.load(Ordering::Relaxed)), (vec!["b.txt".to_owned()], 1));
}

#[test]
fn a_folder_that_cannot_be_made_fails_what_needs_it_and_is_tried_again() {
    let host = tempfile::tempdir().unwrap();
    let (parent, path) = (host.path().join("parent"), host.path().join("parent/made"));
    let later = OpenMount::made_later("/workspace", move || fs::create_dir(&path).map(|()| path.clone())).unwrap();
    let mut files = Files::new(vec![later], Quota::new(FileLimits::default()));
    assert_eq!(files.put_file("/workspace/a.txt", b"a"), Err(FileError::NotFound));
    fs::create_dir(parent).unwrap();
    files.put_file("/workspace/a.txt", b"a").unwrap();
    assert_eq!(files.get("/workspace/a.txt").unwrap(), "a");
}
