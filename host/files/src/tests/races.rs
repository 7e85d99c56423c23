//! Folders, links and mounts that change while paths are followed: by another kernel, another session, or the host.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;

/// Returns the duration of each race. `CELLAR_RACE_SECONDS` sets another one.
fn duration() -> Duration {
    let asked = std::env::var("CELLAR_RACE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs_f64(asked.unwrap_or(1.5))
}

/// `outer/` and, in it, `outer/ro` and `outer/deep/ro`: both read-only mounts.
struct Nested {
    host: TempDir,
    quota: Arc<Quota>,
}

/// Content of the files in read-only mounts, which must not change.
const KEPT: &str = "kept";

/// Time at which it was modified last.
fn kept_at() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

impl Nested {
    fn new() -> Self {
        let host = tempfile::tempdir().unwrap();
        for ro in ["outer/ro", "outer/deep/ro"] {
            let ro = host.path().join(ro);
            fs::create_dir_all(ro.join("sub")).unwrap();
            fs::write(ro.join("f"), KEPT).unwrap();
            fs::File::open(ro.join("f")).unwrap().set_modified(kept_at()).unwrap();
            fs::write(ro.join("sub/f"), KEPT).unwrap();
        }
        fs::create_dir(host.path().join("outer/folder")).unwrap();
        fs::create_dir(host.path().join("outer/folder/sub")).unwrap();
        symlink("ro", host.path().join("outer/link")).unwrap();
        let limits = FileLimits { bytes_max: 1 << 30, files_max: 1 << 30, ..FileLimits::default() };
        Self { host, quota: Quota::new(limits) }
    }

    fn outer(&self, path: &str) -> PathBuf {
        self.host.path().join("outer").join(path)
    }

    /// A kernel that has `outer` at `/rw` and the read-only mounts at these places.
    fn kernel(&self, places: [&str; 2]) -> Files {
        let mounts = vec![
            mount(&self.outer(""), "/rw", Access::ReadWrite),
            mount(&self.outer("ro"), places[0], Access::ReadOnly),
            mount(&self.outer("deep/ro"), places[1], Access::ReadOnly),
        ];
        Files::new(mounts, Arc::clone(&self.quota))
    }

    /// Panics when something in a read-only mount was changed.
    fn check(&self) {
        for ro in ["ro", "deep/ro"] {
            for file in ["f", "sub/f"] {
                let data = fs::read_to_string(self.outer(ro).join(file));
                assert_eq!(data.ok().as_deref(), Some(KEPT), "{ro}/{file} was changed");
            }
            let mut names: Vec<_> =
                fs::read_dir(self.outer(ro)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, ["f", "sub"], "{ro} has other names");
            let modified = fs::metadata(self.outer(ro).join("f")).unwrap().modified().unwrap();
            assert_eq!(modified, kept_at(), "{ro}/f has another time");
        }
    }
}

/// Tries everything that changes something below the folder or link `/rw/s`.
fn write_through(files: &mut Files, turn: u64) {
    let folder = ["/rw/s", "/rw/s/sub", "/rw/folder/../s", "/rw/s/../s/sub/.."][turn as usize % 4];
    let at = |name: &str| format!("{folder}/{name}");
    if let Ok(file) = files.open(ROOT, &at("f"), OpenHow { truncate: turn.is_multiple_of(2), ..WRITE }) {
        let _ = files.write(file, 0, b"OVERWRITTEN");
        let _ = files.set_times(file, Some(1), Some(1));
        files.close(file).unwrap();
    }
    if let Ok(file) = files.open(ROOT, &at("f"), READ) {
        let _ = files.set_times(file, Some(1), Some(1));
        files.close(file).unwrap();
    }
    let _ = files.set_times_at(ROOT, &at("f"), turn.is_multiple_of(3), Some(1), Some(1));
    let _ = files.create_directory(ROOT, &at("new"));
    let _ = files.remove_directory(ROOT, &at("new"));
    let _ = files.symlink("f", ROOT, &at("new"));
    let _ = files.link(ROOT, &at("f"), ROOT, "/rw/mine");
    let _ = files.open(ROOT, "/rw/mine", WRITE).map(|mine| {
        let _ = files.write(mine, 0, b"OVERWRITTEN");
        files.close(mine).unwrap();
    });
    let _ = files.remove_file(ROOT, "/rw/mine");
    let _ = files.rename(ROOT, &at("f"), ROOT, &at("new"));
    let _ = files.rename(ROOT, &at("sub"), ROOT, "/rw/taken");
    let _ = files.rename(ROOT, "/rw/taken", ROOT, "/rw/folder/sub");
    let _ = files.remove_file(ROOT, &at("f"));
    let _ = files.remove_file(ROOT, &at("new"));
}

/// Runs a writer against something that swaps, until the time is up. Returns how often each went round.
fn race(nested: &Nested, mut writer: Files, mut swap: impl FnMut() + Send) -> (u64, u64) {
    let (over, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut turns = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                swap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let begin = Instant::now();
        while begin.elapsed() < duration() {
            write_through(&mut writer, turns);
            turns += 1;
        }
        over.store(true, Ordering::Relaxed);
    });
    nested.check();
    (turns, swaps.into_inner())
}

/// Mount points inside the writable mount, and elsewhere.
const INSIDE: [&str; 2] = ["/rw/ro", "/rw/deep/ro"];
const ELSEWHERE: [&str; 2] = ["/lib/ro", "/lib/deep"];

#[test]
fn another_kernel_swaps_a_folder_and_a_link_to_a_read_only_mount() {
    for places in [INSIDE, ELSEWHERE] {
        let nested = Nested::new();
        let mut other = nested.kernel(places);
        let (turns, swaps) = race(&nested, nested.kernel(places), || {
            for (from, to) in [("folder", "s"), ("s", "folder"), ("link", "s"), ("s", "link")] {
                let _ = other.rename(ROOT, &format!("/rw/{from}"), ROOT, &format!("/rw/{to}"));
            }
        });
        assert!(turns > 10 && swaps > 10, "{turns} {swaps}");
    }
}

#[test]
fn the_host_swaps_a_folder_and_a_link_to_a_read_only_mount() {
    for places in [INSIDE, ELSEWHERE] {
        let nested = Nested::new();
        fs::rename(nested.outer("folder"), nested.outer("s")).unwrap();
        let (turns, swaps) = race(&nested, nested.kernel(places), || {
            let _ = renameat_with(CWD, nested.outer("s"), CWD, nested.outer("link"), RenameFlags::EXCHANGE);
        });
        assert!(turns > 10 && swaps > 10, "{turns} {swaps}");
    }
}

#[test]
fn the_host_swaps_a_folder_and_the_root_of_a_read_only_mount() {
    let nested = Nested::new();
    fs::rename(nested.outer("folder"), nested.outer("s")).unwrap();
    let writer = nested.kernel(ELSEWHERE);
    let swap = || renameat_with(CWD, nested.outer("s"), CWD, nested.outer("ro"), RenameFlags::EXCHANGE).unwrap();
    let mut swaps = 0_u64;
    race(&nested, writer, || {
        swap();
        swap();
        swaps += 1;
    });
    assert!(swaps > 10);
}

#[test]
fn every_nesting_keeps_what_is_read_only() {
    use Access::{ReadOnly, ReadWrite};
    for (outer, inner) in [(ReadOnly, ReadOnly), (ReadOnly, ReadWrite), (ReadWrite, ReadOnly), (ReadWrite, ReadWrite)] {
        for point in ["/outer/inner", "/elsewhere", "/outer/by/another/name"] {
            let host = tempfile::tempdir().unwrap();
            fs::create_dir_all(host.path().join("inner/sub")).unwrap();
            fs::write(host.path().join("inner/sub/f"), KEPT).unwrap();
            fs::write(host.path().join("g"), KEPT).unwrap();
            symlink("inner/sub", host.path().join("link")).unwrap();
            let mounts = vec![mount(host.path(), "/outer", outer), mount(&host.path().join("inner"), point, inner)];
            let mut files = Files::new(mounts, Quota::new(FileLimits::default()));
            let expected = |writable: bool| if writable { Ok(()) } else { Err(FileError::ReadOnly) };
            let case = format!("{outer:?} {inner:?} {point}");
            let both = outer == ReadWrite && inner == ReadWrite;
            // Through the inner mount point its own access counts; through the folder of the outer one, both.
            let by_point = inner == ReadWrite;
            let by_folder = if point == "/outer/inner" { by_point } else { both };
            let write =
                |files: &mut Files, path: &str| files.open(ROOT, path, WRITE).map(|file| files.close(file).unwrap());
            assert_eq!(write(&mut files, &format!("{point}/sub/f")), expected(by_point), "{case}");
            assert_eq!(write(&mut files, "/outer/inner/sub/f"), expected(by_folder), "{case}");
            assert_eq!(write(&mut files, "/outer/link/f"), expected(by_folder), "{case}");
            assert_eq!(write(&mut files, "/outer/link/new"), expected(by_folder), "{case}");
            assert_eq!(write(&mut files, "/outer/g"), expected(outer == ReadWrite), "{case}");
            assert_eq!(files.set_times_at(ROOT, "/outer/link/f", true, None, Some(1)), expected(by_folder), "{case}");
            let file = files.open(ROOT, "/outer/inner/sub/f", READ).unwrap();
            assert_eq!(files.set_times(file, None, Some(1)), expected(by_folder), "{case}");
            let folder = files.open(ROOT, "/outer/inner/sub", READ).unwrap();
            assert_eq!(files.set_times(folder, None, Some(1)), expected(by_folder), "{case}");
            // The names of the one are no names of the other, nor can the inner folder itself be taken away.
            let across = |files: &mut Files| files.rename(ROOT, "/outer/g", ROOT, "/outer/inner/sub/g");
            assert_eq!(across(&mut files), Err(FileError::CrossDevice), "{case}");
            assert_eq!(files.link(ROOT, "/outer/inner/sub/f", ROOT, "/outer/l"), Err(FileError::CrossDevice), "{case}");
            let moved = files.rename(ROOT, "/outer/inner", ROOT, "/outer/moved");
            assert!(
                matches!(moved, Err(FileError::Busy | FileError::ReadOnly | FileError::CrossDevice)),
                "{case} {moved:?}"
            );
            let removed = files.remove_directory(ROOT, "/outer/inner");
            assert!(matches!(removed, Err(FileError::Busy | FileError::ReadOnly)), "{case} {removed:?}");
            let gone = files.remove_file(ROOT, "/outer/inner/sub/f");
            assert_eq!(gone, expected(by_folder), "{case}");
        }
    }
}

/// Checks that no kernel wakes a host process that waits for a reader of a FIFO.
#[test]
fn fifos_of_the_host_are_not_woken() {
    let bed = Bed::with(FileLimits::default(), &[("inner", "/workspace/inner", Access::ReadOnly)]);
    let fifo = bed.host.path().join("library/fifo");
    for path in [fifo.clone(), bed.granted("fifo"), bed.host.path().join("inner/fifo")] {
        escape::make_fifo(&path);
        let (told, woken) = std::sync::mpsc::channel();
        let writer = path.clone();
        let waiting = std::thread::spawn(move || {
            told.send(()).unwrap();
            let opened = fs::OpenOptions::new().write(true).open(writer);
            told.send(()).unwrap();
            opened
        });
        woken.recv().unwrap();
        let mut files = Files::new(
            vec![
                mount(&bed.granted(""), "/workspace", Access::ReadWrite),
                mount(&bed.host.path().join("inner"), "/workspace/inner", Access::ReadOnly),
                mount(&bed.host.path().join("library"), "/lib", Access::ReadOnly),
            ],
            Arc::clone(&bed.quota),
        );
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(300) {
            for guest in ["/workspace/fifo", "/workspace/inner/fifo", "/lib/fifo"] {
                for how in [READ, WRITE, OpenHow { read: false, write: true, ..READ }] {
                    assert!(files.open(ROOT, guest, how).is_err() || !path.ends_with(guest));
                }
                let _ = files.set_times_at(ROOT, guest, true, None, Some(1));
            }
        }
        assert!(woken.try_recv().is_err(), "the host's writer was woken");
        // Now somebody reads, so that the writer ends.
        let reader = fs::File::open(&path).unwrap();
        drop(waiting.join().unwrap().unwrap());
        drop(reader);
        fs::remove_file(&path).unwrap();
        drop(files);
        let _ = fs::remove_file(bed.granted("fifo"));
    }
}

/// Checks that no kernel wakes a host process at a FIFO that the host swaps with a file again and again.
#[test]
fn fifos_that_the_host_swaps_for_files_are_not_woken() {
    let bed = Bed::with(FileLimits::default(), &[]);
    let (file, fifo) = (bed.granted("file"), bed.granted("fifo"));
    fs::write(&file, KEPT).unwrap();
    escape::make_fifo(&fifo);
    // A second name by which the test ends the wait.
    let end = bed.host.path().join("end");
    fs::hard_link(&fifo, &end).unwrap();
    let waiting = std::thread::spawn({
        let end = end.clone();
        move || fs::OpenOptions::new().write(true).open(end).unwrap()
    });
    let mut files = Files::new(vec![mount(&bed.granted(""), "/workspace", Access::ReadOnly)], Arc::clone(&bed.quota));
    let over = AtomicBool::new(false);
    let (mut turns, mut opened) = (0_u64, 0_u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &file, CWD, &fifo, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let begin = Instant::now();
        while begin.elapsed() < duration() && !waiting.is_finished() {
            turns += 1;
            if let Ok(one) = files.open(ROOT, "/workspace/file", READ) {
                opened += 1;
                files.close(one).unwrap();
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(!waiting.is_finished(), "the host's writer was woken after {turns} turns");
    assert!(opened > 10 && turns > opened, "{opened} of {turns}");
    let reader = fs::File::open(&end).unwrap();
    drop((waiting.join().unwrap(), reader));
}
