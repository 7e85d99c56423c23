//! Ways out of the mounts. Each must meet its named denial.

use super::*;

/// No operation on `path` gets anywhere.
fn check_denied(bed: &mut Bed, path: &str, expected: FileError, expected_of_stat: FileError) {
    let files = &mut bed.files;
    assert_eq!(files.get(path), Err(expected), "read {path}");
    assert_eq!(files.open(ROOT, path, WRITE), Err(expected), "write {path}");
    assert_eq!(files.stat_at(ROOT, path, true), Err(expected_of_stat), "stat {path}");
    assert_eq!(files.set_times_at(ROOT, path, true, Some(1), Some(1)), Err(expected), "times {path}");
}

fn secret_is_untouched(bed: &Bed) {
    assert_eq!(fs::read_to_string(bed.host.path().join("secret.txt")).unwrap(), SECRET);
    assert_eq!(fs::read_to_string(bed.host.path().join("private/secret.txt")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(bed.host.path().join("private")).unwrap().count(), 1);
}

#[test]
fn plain_paths_to_what_is_not_granted() {
    let mut bed = Bed::new();
    let host = bed.host.path().join("secret.txt").to_str().unwrap().to_owned();
    for path in ["/etc/passwd", "/etc", "/proc/self/environ", "/usr/lib/other", "/srv/x", "/usr/lib/words2", &host] {
        check_denied(&mut bed, path, FileError::NotCapable, FileError::NotFound);
    }
}

#[test]
fn paths_that_no_machine_has_are_not_there_and_cannot_be_made() {
    let mut bed = Bed::new();
    for path in ["/workspaces", "/path/to/file.csv", "/no/such/folder/"] {
        assert_eq!(bed.files.open(ROOT, path, READ), Err(FileError::NotFound), "{path}");
        assert_eq!(bed.files.stat_at(ROOT, path, true), Err(FileError::NotFound), "{path}");
    }
    assert_eq!(bed.files.create_directory(ROOT, "/output"), Err(FileError::NotCapable));
    assert_eq!(bed.files.create_directory(ROOT, "/output/more"), Err(FileError::NotFound));
    assert_eq!(bed.files.get("/x/../etc/passwd"), Err(FileError::NotCapable));
}

#[test]
fn dot_dot_climbs_the_virtual_tree_only() {
    let mut bed = Bed::new();
    fs::create_dir(bed.granted("a")).unwrap();
    for path in [
        "../secret.txt",
        "/workspace/../secret.txt",
        "/workspace/../../../../../etc/passwd",
        "/workspace/a/../../secret.txt",
        "/workspace/a/../../private/secret.txt",
        "/usr/lib/words/../../../secret.txt",
    ] {
        check_denied(&mut bed, path, FileError::NotCapable, FileError::NotCapable);
    }
    let workspace = bed.files.open(ROOT, "/workspace", READ).unwrap();
    assert_eq!(bed.files.get_at(workspace, "../secret.txt"), Err(FileError::NotCapable));
    assert_eq!(bed.files.get_at(workspace, "a/../../usr/lib/words/words.txt").unwrap(), "words");
    assert_eq!(bed.files.get_at(workspace, "/usr/lib/words/words.txt").unwrap(), "words");
    assert_eq!(bed.files.get_at(workspace, "missing/../a"), Err(FileError::NotFound));
    secret_is_untouched(&bed);
}

#[test]
fn links_to_the_outside() {
    let mut bed = Bed::new();
    let secret = bed.host.path().join("secret.txt");
    symlink(&secret, bed.granted("absolute")).unwrap();
    symlink("../secret.txt", bed.granted("relative")).unwrap();
    symlink("relative", bed.granted("chain1")).unwrap();
    symlink("./chain1", bed.granted("chain2")).unwrap();
    symlink("../private", bed.granted("folder")).unwrap();
    symlink("../../../../../../../../etc/passwd", bed.granted("far")).unwrap();
    symlink("../library/words.txt", bed.granted("other-mount")).unwrap();
    let paths = ["absolute", "relative", "chain1", "chain2", "folder/secret.txt", "far", "other-mount"];
    for path in paths.map(|path| format!("/workspace/{path}")) {
        check_denied(&mut bed, &path, FileError::NotCapable, FileError::NotCapable);
    }
    assert_eq!(bed.files.open(ROOT, "/workspace/folder", READ), Err(FileError::NotCapable));
    assert_eq!(bed.files.get("/workspace/folder/../secret.txt"), Err(FileError::NotCapable));
    assert_eq!(bed.files.create_directory(ROOT, "/workspace/folder/new"), Err(FileError::NotCapable));
    assert_eq!(bed.files.remove_file(ROOT, "/workspace/folder/secret.txt"), Err(FileError::NotCapable));
    assert_eq!(bed.files.symlink("x", ROOT, "/workspace/folder/x"), Err(FileError::NotCapable));
    bed.files.put_file("/workspace/mine", b"mine").unwrap();
    assert_eq!(bed.files.rename(ROOT, "/workspace/mine", ROOT, "/workspace/folder/mine"), Err(FileError::NotCapable));
    assert_eq!(bed.files.link(ROOT, "/workspace/mine", ROOT, "/workspace/folder/mine"), Err(FileError::NotCapable));
    // The links themselves may be seen and removed; a target that is a host path is not told.
    assert_eq!(bed.files.read_link(ROOT, "/workspace/absolute"), Err(FileError::NotCapable));
    assert_eq!(bed.files.read_link(ROOT, "/workspace/relative").unwrap(), "../secret.txt");
    assert_eq!(bed.files.stat_at(ROOT, "/workspace/relative", false).unwrap().kind, FileKind::SymbolicLink);
    bed.files.remove_file(ROOT, "/workspace/relative").unwrap();
    secret_is_untouched(&bed);
}

#[test]
fn making_files_through_links() {
    let mut bed = Bed::new();
    symlink("../private/new.txt", bed.granted("out")).unwrap();
    symlink("in.txt", bed.granted("in")).unwrap();
    for how in [WRITE, FRESH, OpenHow { truncate: true, ..WRITE }] {
        let denied = bed.files.open(ROOT, "/workspace/out", how);
        assert!(matches!(denied, Err(FileError::NotCapable | FileError::Exists)), "{denied:?}");
    }
    secret_is_untouched(&bed);
    assert_eq!(bed.files.open(ROOT, "/workspace/in", FRESH), Err(FileError::Exists));
    bed.files.put_file("/workspace/in", b"x").unwrap();
    assert_eq!(fs::read(bed.granted("in.txt")).unwrap(), b"x");
}

#[test]
fn a_link_to_a_folder_and_dot_dot_mean_the_parent_of_the_target() {
    let mut bed = Bed::new();
    fs::create_dir_all(bed.granted("deep/er")).unwrap();
    fs::write(bed.granted("deep/beside"), "beside the target").unwrap();
    fs::write(bed.granted("beside"), "beside the link").unwrap();
    symlink("deep/er", bed.granted("link")).unwrap();
    assert_eq!(bed.files.get("/workspace/link/../beside").unwrap(), "beside the target");
    let link = bed.files.open(ROOT, "/workspace/link", READ).unwrap();
    assert_eq!(bed.files.get_at(link, "../beside").unwrap(), "beside the target");
    assert_eq!(bed.files.get_at(link, "../../../secret.txt"), Err(FileError::NotCapable));
    symlink("../../..", bed.granted("deep/er/up")).unwrap();
    assert_eq!(bed.files.get("/workspace/deep/er/up/secret.txt"), Err(FileError::NotCapable));
    assert_eq!(bed.files.get("/workspace/deep/er/up/../secret.txt"), Err(FileError::NotCapable));
}

#[test]
fn the_guest_cannot_plant_links_that_lead_out() {
    let mut bed = Bed::new();
    bed.files.create_directory(ROOT, "/workspace/a").unwrap();
    for (target, path) in [
        ("/etc/passwd", "/workspace/l"),
        ("../secret.txt", "/workspace/l"),
        ("../../secret.txt", "/workspace/a/l"),
        ("x/../../secret.txt", "/workspace/l"),
        ("/workspace/a", "/workspace/l"),
    ] {
        assert_eq!(bed.files.symlink(target, ROOT, path), Err(FileError::NotCapable), "{target}");
    }
    bed.files.symlink("../x", ROOT, "/workspace/a/l").unwrap();
    assert_eq!(bed.files.read_link(ROOT, "/workspace/a/l").unwrap(), "../x");
    // A folder moved up takes its links along. They lead out now, and still nobody follows them.
    bed.files.create_directory(ROOT, "/workspace/a/b").unwrap();
    bed.files.symlink("../../secret.txt", ROOT, "/workspace/a/b/l").unwrap();
    bed.files.rename(ROOT, "/workspace/a/b", ROOT, "/workspace/b").unwrap();
    bed.files.rename(ROOT, "/workspace/b/l", ROOT, "/workspace/l2").unwrap();
    check_denied(&mut bed, "/workspace/l2", FileError::NotCapable, FileError::NotCapable);
    secret_is_untouched(&bed);
}

#[test]
fn names_do_not_cross_mounts() {
    let mut bed = Bed::with(FileLimits::default(), &[("second", "/second", Access::ReadWrite)]);
    let files = &mut bed.files;
    files.put_file("/workspace/f", b"f").unwrap();
    let words = "/usr/lib/words/words.txt";
    for (from, to, expected) in [
        ("/workspace/f", "/second/f", FileError::CrossDevice),
        (words, "/workspace/w", FileError::CrossDevice),
        ("/workspace/f", words, FileError::CrossDevice),
        (words, "/usr/lib/words/w", FileError::ReadOnly),
        ("/workspace/f", "/outside", FileError::NotCapable),
        ("/secret.txt", "/workspace/s", FileError::NotCapable),
        ("/workspace/../../secret.txt", "/workspace/s", FileError::NotCapable),
    ] {
        assert_eq!(files.link(ROOT, from, ROOT, to), Err(expected), "link {from} {to}");
        assert_eq!(files.rename(ROOT, from, ROOT, to), Err(expected), "rename {from} {to}");
    }
    assert_eq!(files.rename(ROOT, "/workspace", ROOT, "/second/w"), Err(FileError::CrossDevice));
    assert_eq!(files.rename(ROOT, "/workspace", ROOT, "/workspace/w"), Err(FileError::Busy));
    assert_eq!(files.rename(ROOT, "/usr", ROOT, "/workspace/w"), Err(FileError::Busy));
    assert_eq!(files.rename(ROOT, "/workspace/f", ROOT, "/usr/lib"), Err(FileError::Busy));
    assert_eq!(files.remove_directory(ROOT, "/workspace"), Err(FileError::Busy));
    assert_eq!(files.remove_directory(ROOT, "/usr/lib"), Err(FileError::Busy));
    assert_eq!(files.remove_directory(ROOT, "/"), Err(FileError::Busy));
    assert_eq!(files.remove_file(ROOT, "/"), Err(FileError::IsDirectory));
}

#[test]
fn the_inner_of_nested_mounts_hides_what_the_outer_has_there() {
    let inner = ("inner", "/workspace/data/in", Access::ReadOnly);
    let mut bed = Bed::with(FileLimits::default(), &[inner, ("inner2", "/workspace/made/up", Access::ReadOnly)]);
    fs::write(bed.host.path().join("inner/f"), "inner").unwrap();
    fs::create_dir_all(bed.granted("data/in")).unwrap();
    fs::write(bed.granted("data/in/f"), SECRET).unwrap();
    fs::write(bed.granted("data/g"), "outer").unwrap();
    for (link, target) in [("to-in", "data/in"), ("to-f", "data/in/f"), ("chain", "to-in"), ("data/here", "in")] {
        bed.files.symlink(target, ROOT, &format!("/workspace/{link}")).unwrap();
    }
    symlink("../../g", bed.host.path().join("inner/up")).unwrap();
    symlink("../data/in", bed.granted("data/back")).unwrap();
    for path in
        ["data/in/f", "to-in/f", "to-f", "chain/f", "data/here/f", "data/../to-in/f", "to-in/../in/f", "data/back/f"]
    {
        assert_eq!(bed.files.get(&format!("/workspace/{path}")).unwrap(), "inner", "{path}");
    }
    assert_eq!(bed.files.get("/workspace/to-in/../g").unwrap(), "outer");
    // A link does not lead out of its mount, even into the one around it or into one beside it.
    symlink("../usr/lib/words/words.txt", bed.granted("beside")).unwrap();
    for path in ["data/in/up", "data/../data/in/up", "beside", "data/../beside"] {
        assert_eq!(bed.files.get(&format!("/workspace/{path}")), Err(FileError::NotCapable), "{path}");
    }
    fs::remove_file(bed.granted("beside")).unwrap();
    for from in ["/workspace/data", "/workspace/data/in", "/workspace/made"] {
        assert_eq!(bed.files.remove_directory(ROOT, from), Err(FileError::Busy), "{from}");
        let moved = bed.files.rename(ROOT, from, ROOT, "/workspace/moved");
        assert!(matches!(moved, Err(FileError::Busy | FileError::CrossDevice)), "{from}");
    }
    assert_eq!(bed.files.open(ROOT, "/workspace/data/in/f", WRITE), Err(FileError::ReadOnly));
    assert_eq!(bed.files.rename(ROOT, "/workspace/data/g", ROOT, "/workspace/data/in/g"), Err(FileError::CrossDevice));
    assert_eq!(bed.files.create_directory(ROOT, "/workspace/made"), Err(FileError::Exists));
    assert_eq!(bed.files.names("/workspace"), ["chain", "data", "made", "to-f", "to-in"]);
    assert_eq!(bed.files.names("/workspace/made"), ["up"]);
    assert_eq!(bed.files.names("/workspace/data"), ["back", "g", "here", "in"]);
    assert_eq!(bed.files.names("/workspace/data/in"), ["f", "up"]);
}

#[test]
fn a_link_where_the_tree_has_a_folder_is_not_there() {
    let mut bed = Bed::with(FileLimits::default(), &[("inner", "/workspace/made/up", Access::ReadOnly)]);
    fs::create_dir(bed.granted("data")).unwrap();
    fs::write(bed.granted("data/f"), SECRET).unwrap();
    symlink("data", bed.granted("made")).unwrap();
    assert_eq!(bed.files.stat_at(ROOT, "/workspace/made", false).unwrap().kind, FileKind::Directory);
    assert_eq!(bed.files.get("/workspace/made/f"), Err(FileError::NotCapable));
    assert_eq!(bed.files.get("/workspace/made/up/../f"), Err(FileError::NotCapable));
    assert_eq!(bed.files.names("/workspace/made"), ["up"]);
}

#[test]
fn special_files_are_refused_at_once() {
    let mut bed = Bed::new();
    make_fifo(&bed.granted("fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(bed.granted("socket")).unwrap();
    // Whoever waits for the other end of a pipe waits for ever.
    for name in ["fifo", "socket"] {
        let path = format!("/workspace/{name}");
        let both = OpenHow { write: true, ..READ };
        let write = OpenHow { read: false, write: true, ..READ };
        for how in [READ, both, write, WRITE, OpenHow { truncate: true, ..write }] {
            assert_eq!(bed.files.open(ROOT, &path, how), Err(FileError::NotPermitted), "{name} {how:?}");
        }
        assert_eq!(bed.files.stat_at(ROOT, &path, true).unwrap().kind, FileKind::Unknown);
        assert_eq!(bed.files.set_times_at(ROOT, &path, true, None, Some(1)), Err(FileError::NotPermitted));
        assert_eq!(bed.files.link(ROOT, &path, ROOT, "/workspace/l"), Err(FileError::NotPermitted));
    }
    assert_eq!(bed.files.table(), []);
    bed.files.remove_file(ROOT, "/workspace/fifo").unwrap();
}

pub(super) fn make_fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn kernel_interfaces_are_never_opened() {
    for host in ["/proc", "/sys"] {
        let refused = Mount { host: host.into(), guest: "/k".to_owned(), access: Access::ReadOnly }.open();
        assert!(matches!(refused, Err(MountError::KernelInterface { .. })), "{refused:?}");
    }
    // Nor through a folder that has them below it.
    let mounts = vec![mount(Path::new("/"), "/host", Access::ReadOnly)];
    let mut files = Files::new(mounts, Quota::new(FileLimits::default()));
    for path in
        ["self/environ", "self/mem", "kmsg", "self/fd", "self/root/etc/passwd", "self/cwd", "sys/kernel/hostname"]
    {
        let denied = files.open(ROOT, &format!("/host/proc/{path}"), READ);
        let named = [FileError::NotPermitted, FileError::Access, FileError::Loop, FileError::NotCapable];
        assert!(denied.is_err_and(|error| named.contains(&error)), "{path}: {denied:?}");
    }
    assert_eq!(files.open(ROOT, "/host/dev/null", READ), Err(FileError::NotPermitted));
}

#[test]
fn read_only_mounts_refuse_every_change() {
    let mut bed = Bed::new();
    let files = &mut bed.files;
    let words = "/usr/lib/words/words.txt";
    let new = "/usr/lib/words/new";
    let fresh_only = OpenHow { create: true, ..READ };
    for how in [WRITE, OpenHow { append: true, ..READ }, OpenHow { truncate: true, ..READ }] {
        assert_eq!(files.open(ROOT, words, how), Err(FileError::ReadOnly), "{how:?}");
    }
    assert_eq!(files.open(ROOT, new, WRITE), Err(FileError::ReadOnly));
    assert_eq!(files.open(ROOT, new, fresh_only), Err(FileError::ReadOnly));
    assert_eq!(files.create_directory(ROOT, new), Err(FileError::ReadOnly));
    assert_eq!(files.create_directory(ROOT, words), Err(FileError::Exists));
    assert_eq!(files.symlink("x", ROOT, new), Err(FileError::ReadOnly));
    assert_eq!(files.link(ROOT, words, ROOT, new), Err(FileError::ReadOnly));
    assert_eq!(files.rename(ROOT, words, ROOT, new), Err(FileError::ReadOnly));
    assert_eq!(files.remove_file(ROOT, words), Err(FileError::ReadOnly));
    assert_eq!(files.remove_file(ROOT, new), Err(FileError::NotFound));
    assert_eq!(files.remove_directory(ROOT, new), Err(FileError::NotFound));
    assert_eq!(files.set_times_at(ROOT, words, true, Some(1), None), Err(FileError::ReadOnly));
    let file = files.open(ROOT, words, fresh_only).unwrap();
    assert_eq!(files.set_times(file, Some(1), None), Err(FileError::ReadOnly));
    assert_eq!(files.write(file, 0, b"x"), Err(FileError::BadDescriptor));
    assert_eq!(files.append(file, b"x"), Err(FileError::BadDescriptor));
    assert_eq!(files.set_size(file, 0), Err(FileError::BadDescriptor));
    assert_eq!(files.open(ROOT, "/usr/lib/words/gone/deep", WRITE), Err(FileError::ReadOnly));
    assert_eq!(files.get(words).unwrap(), "words");
    assert_eq!(bed.host.path().join("library").read_dir().unwrap().count(), 1);
}
