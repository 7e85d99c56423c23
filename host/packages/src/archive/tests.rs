use std::io::{Cursor, Write as _};

use flate2::{Compression, write::GzEncoder};
use tar::{EntryType, Header};
use zip::write::SimpleFileOptions;

use super::*;

/// Unpacks an archive, and returns the paths of the unpacked files, or the error.
fn unpacked(
    unpack: impl FnOnce(Unpacking<'_>, &Path) -> Result<(), PackageError>,
    bytes: &[u8],
) -> Result<Vec<String>, String> {
    let place = tempfile::tempdir().expect("a folder");
    let (archive, folder) = (place.path().join("archive"), place.path().join("inner"));
    fs::write(&archive, bytes).expect("written");
    fs::create_dir(&folder).expect("made");
    let done = unpack(Unpacking::new("it", &folder), &archive).map_err(|error| error.to_string());
    let beside: Vec<_> =
        fs::read_dir(place.path()).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(beside.len(), 2, "something was written beside the folder: {beside:?}");
    done?;
    let files = crate::tree::files(&folder).expect("files");
    Ok(files.iter().map(|path| path.display().to_string()).collect())
}

fn wheel(entries: &[(&str, &str)]) -> Result<Vec<String>, String> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (path, content) in entries {
        match content.strip_prefix("-> ") {
            Some(target) => writer.add_symlink(*path, target, SimpleFileOptions::default()).expect("a link"),
            None => {
                writer.start_file(*path, SimpleFileOptions::default()).expect("a file");
                writer.write_all(content.as_bytes()).expect("written");
            }
        }
    }
    let bytes = writer.finish().expect("an archive").into_inner();
    unpacked(|unpacking, path| unpacking.wheel(path), &bytes)
}

fn tarball(entries: &[(&str, EntryType)]) -> Result<Vec<String>, String> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, kind) in entries {
        let mut header = Header::new_gnu();
        // Past the checks of the library, as somebody else's program would write it.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(0);
        header.set_cksum();
        builder.append(&header, std::io::empty()).expect("an entry");
    }
    let bytes = builder.into_inner().expect("a tar").finish().expect("compressed");
    unpacked(|unpacking, path| unpacking.tarball(path), &bytes)
}

fn refused(done: Result<Vec<String>, String>, why: &str) {
    let told = done.expect_err("it was taken");
    assert!(told.contains(why), "{told}");
}

#[test]
fn of_a_wheel_the_modules_are_taken() {
    let taken = wheel(&[
        ("pkg/__init__.py", ""),
        ("pkg/old.pyc", "bytecode"),
        ("pkg-1.data/purelib/more.py", ""),
        ("pkg-1.data/scripts/run", "#!/bin/sh"),
        ("pkg-1.dist-info/METADATA", "Name: pkg"),
    ]);
    assert_eq!(taken.expect("taken"), ["more.py", "pkg/__init__.py", "pkg-1.dist-info/METADATA"]);
}

#[test]
fn wheels_that_lead_elsewhere_or_have_machine_code_are_refused() {
    for path in [
        "../x.py",
        "/x.py",
        "a/../../x.py",
        "a\\..\\x.py",
        "c:/x.py",
        "a//x.py",
        "a/./x.py",
        "a\nb.py",
        &"d/".repeat(40),
        "pkg/aux.py",
        "NUL",
        "pkg/com1.txt",
        "pkg./x.py",
        "pkg/x.py ",
        "pkg/what?.py",
    ] {
        refused(wheel(&[(path, "")]), "is not allowed");
    }
    refused(wheel(&[("a.py", "-> /etc/passwd")]), "is a link");
    refused(wheel(&[("pkg/Name.py", ""), ("pkg/name.py", "")]), "two files");
    refused(wheel(&[("pkg", ""), ("pkg/name.py", "")]), "a file and a folder");
    refused(wheel(&[("pkg/name.py", ""), ("pkg", "")]), "a file and a folder");
    refused(wheel(&[("a.data/purelib/b.py", ""), ("b.py", "")]), "two files");
    for path in ["a/fast.cpython-313-x86_64-linux-gnu.so", "a.pyd", "a/lib.so.1", "a.libs/x.dylib"] {
        refused(wheel(&[(path, "")]), "native code");
    }
    refused(unpacked(|unpacking, path| unpacking.wheel(path), b"no archive"), "is refused");
}

#[test]
fn a_wheel_that_has_one_name_twice_is_refused() {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for path in ["pkg/one.py", "pkg/two.py"] {
        writer.start_file(path, SimpleFileOptions::default()).expect("a file");
    }
    let mut bytes = writer.finish().expect("an archive").into_inner();
    for at in 0..bytes.len() - 3 {
        if &bytes[at..at + 3] == b"two" {
            bytes[at..at + 3].copy_from_slice(b"one");
        }
    }
    refused(unpacked(|unpacking, path| unpacking.wheel(path), &bytes), "two files of one name");
}

#[test]
fn archives_that_are_too_large_are_refused() {
    let many: Vec<String> = (0..=FILES_MAX).map(|number| format!("{number}.py")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|path| (path.as_str(), "")).collect();
    refused(wheel(&many), "more than 20000 files");
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file("bomb.py", SimpleFileOptions::default()).expect("a file");
    let zeros = vec![0; 1 << 20];
    for _ in 0..=FILES_BYTES_MAX >> 20 {
        writer.write_all(&zeros).expect("written");
    }
    let bytes = writer.finish().expect("an archive").into_inner();
    refused(unpacked(|unpacking, path| unpacking.wheel(path), &bytes), "more than 268435456 bytes");
}

#[test]
fn of_a_tarball_files_alone_are_taken() {
    let file = EntryType::Regular;
    let taken =
        tarball(&[("package/index.js", file), ("other/lib/a.js", file), ("package/node_modules/b/index.js", file)]);
    assert_eq!(taken.expect("taken"), ["index.js", "lib/a.js"]);
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Fifo] {
        refused(tarball(&[("package/a.js", kind)]), "is no file");
    }
    for path in ["package/../../x.js", "/etc/x.js", "package//x.js"] {
        refused(tarball(&[(path, file)]), "is not allowed");
    }
    for path in ["package/build/a.node", "package/binding.gyp"] {
        refused(tarball(&[(path, file)]), "native code");
    }
}
