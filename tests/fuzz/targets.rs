//! Targets.

use std::{
    fs,
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use cellar_config::Config;
use cellar_engine::{
    Cell, EventKind, GuestName, Host, HostConfig, HostFolders, Language, Session, SessionConfig, Snapshot,
    guests::{BakeOptions, bake},
};
use cellar_tables::Table;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use twox_hash::XxHash3_128;

use crate::root;

/// Result of a case.
pub(crate) enum Answer {
    /// It was taken for what it claims to be.
    Taken,
    /// It was refused, with these words.
    Refused(String),
}

impl Answer {
    fn of<T>(read: Result<T, impl std::fmt::Display>) -> Answer {
        read.map_or_else(|error| Answer::Refused(error.to_string()), |_| Answer::Taken)
    }
}

/// Tries a case.
///
/// # Errors
/// What is wrong with how it was answered.
pub(crate) type Try = Box<dyn FnMut(&[u8]) -> Result<Answer, String>>;

/// Code that reads what strangers write.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Cases of a short run.
    pub(crate) cases: u64,
    /// Memory that a case may take at least.
    pub(crate) bytes: usize,
    /// Adds seeds.
    pub(crate) open: fn(&mut Vec<Vec<u8>>) -> Try,
}

pub(crate) const TARGETS: [Target; 10] = [
    Target { name: "snapshot", cases: 3_000, bytes: 1 << 30, open: snapshot },
    Target { name: "recording", cases: 1_000, bytes: 1 << 30, open: recording },
    Target { name: "lines", cases: 50_000, bytes: 0, open: lines },
    Target { name: "configuration", cases: 5_000, bytes: 0, open: configuration },
    Target { name: "table", cases: 50_000, bytes: 0, open: table },
    Target { name: "file", cases: 40, bytes: 0, open: file },
    Target { name: "chart", cases: 40, bytes: 0, open: chart },
    Target { name: "notebook", cases: 60, bytes: 0, open: notebook },
    Target { name: "guest", cases: 200, bytes: 2 << 30, open: guest },
    Target { name: "request", cases: 1_000, bytes: 256 << 20, open: crate::requests::requests },
];

/// A host of the probe guest, and what its sessions run on.
struct Probe {
    runtime: Runtime,
    host: Host,
}

impl Probe {
    fn new() -> Probe {
        let cache = std::env::var_os("CELLAR_CACHE").map(PathBuf::from);
        let cache = cache.or_else(|| dirs::cache_dir().map(|cache| cache.join("cellar"))).expect("a cache folder");
        let folders = HostFolders { guests: root().join("target/guests"), cache };
        let config = HostConfig { kernels_max: 8, ..HostConfig::new(folders) };
        bake(&config, GuestName::Probe, BakeOptions::default()).expect("the probe guest; run `make probe`");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Probe { runtime: runtime.expect("a runtime"), host: Host::open(config).expect("a host") }
    }

    fn session(&self, config: SessionConfig) -> Session {
        let _entered = self.runtime.enter();
        self.host.session(config).expect("a session")
    }

    /// Returns the output of a program, however it ends.
    fn text(&self, session: &Session, code: &str) -> String {
        let cell = Cell { timeout: Some(Duration::from_secs(1)), ..Cell::new(Language::Probe, code) };
        self.runtime.block_on(async {
            match session.run(vec![cell]) {
                Ok(run) => run.collect_result().await.text(),
                Err(_) => String::new(),
            }
        })
    }
}

/// Puts the checksum of what stands before it behind the head of a file of the engine.
fn signed(case: &[u8]) -> Option<Vec<u8>> {
    let head = u32::from_le_bytes(case.get(12..16)?.try_into().ok()?);
    let end = usize::try_from(head).ok()?.checked_add(16)?;
    let mut signed = case.to_vec();
    let checksum = XxHash3_128::oneshot(case.get(..end)?).to_le_bytes();
    signed.get_mut(end..end.checked_add(16)?)?.copy_from_slice(&checksum);
    Some(signed)
}

/// Snapshots: read, restored, and run a cell in.
fn snapshot(seeds: &mut Vec<Vec<u8>>) -> Try {
    let probe = Probe::new();
    let held = "primitive selfref context.remember {\"text\": \"a lesson\"}\nhold f\nhold g\nhold /tmp/h";
    for code in ["set a b", "grow 1\nwrite f text\nset b c\nemit x", "sleep 5\nset c d", held] {
        let session = probe.session(SessionConfig::default());
        probe.text(&session, code);
        seeds.push(probe.runtime.block_on(session.snapshot()).expect("a snapshot").to_bytes());
    }
    // Of cells that wait, for a timer and for an answer.
    for code in ["sleep 60000", "input Who?"] {
        let input = Some(Duration::from_secs(60));
        let session = probe.session(SessionConfig { input, ..SessionConfig::default() });
        seeds.push(probe.runtime.block_on(waiting(&session, code)).to_bytes());
    }
    let folder = tempfile::tempdir().expect("a folder");
    Box::new(move |case| {
        let file = folder.path().join("snapshot");
        // The whole file has one checksum, at its end.
        let body = &case[..case.len().saturating_sub(16)];
        let signed = [body, &XxHash3_128::oneshot(body).to_le_bytes()].concat();
        let _ = Snapshot::from_bytes(case);
        // As it is read where it lies in a file.
        fs::write(&file, &signed).map_err(|error| error.to_string())?;
        let opened = Snapshot::open_file(&file).map_err(|error| error.to_string())?;
        let snapshot = match Snapshot::read_from(opened).map_err(|error| error.to_string())? {
            Ok(snapshot) => snapshot,
            Err(error) => return Ok(Answer::Refused(error.to_string())),
        };
        let _ = (snapshot.session(), snapshot.taken_at(), snapshot.languages(), snapshot.changed_bytes());
        let _entered = probe.runtime.enter();
        let restored = probe.host.restore(&snapshot, SessionConfig::default());
        if let Ok(session) = &restored {
            probe.text(session, "emit x");
        }
        Ok(Answer::of(restored))
    })
}

/// A snapshot of a session whose cell waits.
async fn waiting(session: &Session, code: &str) -> Snapshot {
    let mut run = session.run(vec![Cell::new(Language::Probe, code)]).expect("a run");
    while let Some(event) = run.next().await {
        if matches!(event.kind, EventKind::CellStarted { .. } | EventKind::InputRequest { .. }) {
            break;
        }
    }
    session.snapshot().await.expect("a snapshot")
}

/// The length that four bytes of a recording say.
fn number_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}

/// Returns the plain parts of a recording: its head, and its frames unpacked, each behind its kind and its length; without the checksums.
fn unframed(recording: &[u8]) -> Option<Vec<u8>> {
    let number = |at| number_at(recording, at);
    let mut at = number(12)?.checked_add(16)?;
    let mut plain = recording.get(..at)?.to_vec();
    loop {
        at += CHECKSUM_BYTES;
        let (kind, packed, length) = match recording.get(at) {
            Some(kind) => (*kind, number(at + 1)?, number(at + 5)?),
            None => return Some(plain),
        };
        at += FRAME_HEAD_BYTES;
        let bytes = recording.get(at..at.checked_add(packed)?)?;
        let bytes = if length == 0 { bytes.to_vec() } else { zstd::bulk::decompress(bytes, length).ok()? };
        plain.push(kind);
        plain.extend(u32::try_from(bytes.len()).ok()?.to_le_bytes());
        plain.extend(bytes);
        at += packed;
    }
}

/// A recording of what [`unframed`] gives, with the checksums that it needs.
fn framed(plain: &[u8]) -> Option<Vec<u8>> {
    let number = |at| number_at(plain, at);
    let mut at = number(12)?.checked_add(16)?;
    let mut recording = plain.get(..at)?.to_vec();
    let mut checksum = XxHash3_128::oneshot(&recording).to_le_bytes();
    recording.extend(checksum);
    while let Some(kind) = plain.get(at) {
        let bytes = plain.get(at + 5..)?;
        let bytes = bytes.get(..number(at + 1)?.min(bytes.len()))?;
        at += 5 + bytes.len();
        // The last frame is not packed.
        let (packed, length) = match at < plain.len() {
            true => (zstd::bulk::compress(bytes, 1).ok()?, bytes.len()),
            false => (bytes.to_vec(), 0),
        };
        let mut frame = [&checksum[..], &[*kind]].concat();
        frame.extend(u32::try_from(packed.len()).ok()?.to_le_bytes());
        frame.extend(u32::try_from(length).ok()?.to_le_bytes());
        frame.extend(packed);
        checksum = XxHash3_128::oneshot(&frame).to_le_bytes();
        recording.extend(&frame[CHECKSUM_BYTES..]);
        recording.extend(checksum);
    }
    Some(recording)
}

/// Bytes of a checksum, and of what stands before a frame, in a recording.
const CHECKSUM_BYTES: usize = 16;
const FRAME_HEAD_BYTES: usize = 9;

/// Recordings: played to their ends.
fn recording(seeds: &mut Vec<Vec<u8>>) -> Try {
    let probe = Probe::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("recording");
    for code in ["emit x", "set a b\nget a\nrandom 4\nclock\nwrite f text\nread f", "flood 50\ncall nothing {}"] {
        let session = probe.session(SessionConfig { record: Some(file.clone()), ..SessionConfig::default() });
        probe.text(&session, code);
        session.end_recording().expect("recorded");
        let recording = fs::read(&file).expect("a recording");
        let plain = unframed(&recording).expect("a recording");
        assert_eq!(framed(&plain).as_deref(), Some(&*recording), "a recording is framed as the engine does it");
        seeds.extend([recording, plain]);
    }
    Box::new(move |case| {
        let mut answer = Answer::Refused("it is too short for a head".to_owned());
        for bytes in [Some(case.to_vec()), signed(case), framed(case)].into_iter().flatten() {
            let file = folder.path().join("case");
            fs::write(&file, bytes).map_err(|error| error.to_string())?;
            let _entered = probe.runtime.enter();
            let played = probe.host.replay(&file).and_then(|mut replay| {
                probe.runtime.block_on(async {
                    while replay.next().await?.is_some() {}
                    Ok(())
                })
            });
            answer = Answer::of(played);
        }
        Ok(answer)
    })
}

/// The contents of the files below a folder whose names end so.
fn contents(folder: &Path, end: &str, seeds: &mut Vec<Vec<u8>>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            contents(&path, end, seeds);
        } else if path.to_string_lossy().ends_with(end) {
            seeds.extend(fs::read(path).ok().filter(|bytes| bytes.len() < 256 << 10));
        }
    }
}

/// Lines of `cellar stdio`, and runs as JSON.
fn lines(seeds: &mut Vec<Vec<u8>>) -> Try {
    contents(&root().join("fixtures/malformed"), ".json", seeds);
    contents(&root().join("fixtures/wire"), "run.json", seeds);
    let mut files = Vec::new();
    contents(&root().join("fixtures/wire"), ".ndjson", &mut files);
    for line in files.iter().flat_map(|file| file.split(|byte| *byte == b'\n')) {
        // Scripts say what is sent.
        let sent = serde_json::from_slice::<Value>(line)
            .ok()
            .and_then(|line| Some(line.get("send")?.to_string().into_bytes()));
        seeds.push(sent.unwrap_or_else(|| line.to_vec()));
    }
    seeds.retain(|seed| !seed.is_empty());
    Box::new(|case| {
        let run = cellar_wire::run_from_json(case, "a run");
        let _ = cellar_wire::request_from_json::<Config>(case, "a line", cellar_wire::Caller::Remote);
        match cellar_wire::request_from_json::<Config>(case, "a line", cellar_wire::Caller::Trusted).1 {
            Ok(_) => Ok(Answer::Taken),
            Err(_) if run.is_ok() => Ok(Answer::Taken),
            Err(error) => Ok(Answer::Refused(error.to_string())),
        }
    })
}

/// `cellar.toml`.
fn configuration(seeds: &mut Vec<Vec<u8>>) -> Try {
    let mut pages = vec![fs::read(root().join("README.md")).unwrap_or_default()];
    contents(&root().join("host"), ".md", &mut pages);
    for page in &pages {
        let text = String::from_utf8_lossy(page);
        seeds.extend(
            text.split("```toml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.as_bytes().to_vec())),
        );
    }
    for folder in ["analysis", "lineage"] {
        contents(&root().join("fixtures").join(folder), ".toml", seeds);
    }
    let folder = tempfile::tempdir().expect("a folder");
    Box::new(move |case| Ok(Answer::of(Config::parse(&String::from_utf8_lossy(case), folder.path(), "a file"))))
}

/// Tables that guests hand over: read, and written as files.
fn table(seeds: &mut Vec<Vec<u8>>) -> Try {
    let column = |name: &str, dtype: &str, kind: Value| json!({"name": name, "dtype": dtype, "type": kind});
    let range = json!({"kind": "range", "name": null, "start": 0, "stop": 2, "step": 1});
    let mut seed = |columns: Vec<Value>, buffers: &[&[u8]]| {
        let head = json!({"rows": 2, "index": range, "columns": columns}).to_string().into_bytes();
        let length = u32::try_from(head.len()).expect("short").to_le_bytes();
        seeds.push([&length[..], &head, &buffers.concat()].concat());
    };
    let eights = [1_u8; 16];
    let nullable = json!({"name": "n", "dtype": "Int64", "nullable": true, "type": {"kind": "integer", "bits": 64, "signed": true}});
    seed(
        vec![column("i", "int64", json!({"kind": "integer", "bits": 64, "signed": true})), nullable],
        &[&eights, &[1, 0], &eights],
    );
    seed(
        vec![
            column("f", "float64", json!({"kind": "float", "bits": 64})),
            column("b", "bool", json!({"kind": "boolean"})),
        ],
        &[&eights, &[0, 1]],
    );
    let when = json!({"kind": "timestamp", "unit": "ns", "zone": "Europe/Oslo"});
    seed(
        vec![
            column("t", "datetime64[ns, Europe/Oslo]", when),
            column("d", "timedelta64[s]", json!({"kind": "duration", "unit": "s"})),
        ],
        &[&eights, &eights],
    );
    let ends = [0_u8, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
    seed(
        vec![
            column("s", "str", json!({"kind": "text", "bytes": 2})),
            column("j", "object", json!({"kind": "json", "bytes": 2})),
        ],
        &[&ends, b"ab", &ends, b"12"],
    );
    for (bits, signed) in [(8, true), (16, true), (32, true), (8, false), (16, false), (32, false), (64, false)] {
        let kind = json!({"kind": "integer", "bits": bits, "signed": signed});
        seed(vec![column("n", "int", kind)], &[&eights[..bits / 4]]);
    }
    for bits in [16, 32] {
        seed(vec![column("n", "float", json!({"kind": "float", "bits": bits}))], &[&eights[..bits / 4]]);
    }
    for unit in ["s", "ms", "us", "ns"] {
        let [moment, span] = ["timestamp", "duration"].map(|kind| json!({"kind": kind, "unit": unit, "zone": null}));
        seed(vec![column("t", "datetime64", moment)], &[&[0; 16]]);
        seed(vec![column("d", "timedelta64", span)], &[&[0; 16]]);
    }
    seed(vec![column("d", "object", json!({"kind": "date"}))], &[&eights[..8]]);
    let group = json!({"kind": "category", "count": 2, "bytes": 2, "ordered": true});
    seed(
        vec![column("g", "category", group), column("x", "object", json!({"kind": "binary", "bytes": 2}))],
        &[&[0, 0, 0, 0, 255, 255, 255, 255], &ends, b"xy", &ends, b"\0\xff"],
    );
    Box::new(|case| {
        let table = match Table::parse(case) {
            Ok(table) => table,
            Err(error) => return Ok(Answer::Refused(error.to_string())),
        };
        let mut file = Vec::new();
        table.write_parquet(&mut file).map_err(|error| format!("a table that was taken is not written: {error}"))?;
        Ok(Answer::Taken)
    })
}

/// Files with tables that cells read, in the process in which they are read.
fn file(seeds: &mut Vec<Vec<u8>>) -> Try {
    let mut tables = Vec::new();
    let _ = table(&mut tables);
    let kinds = [
        ("parquet", None),
        ("parquet", Some("zstd")),
        ("parquet", Some("gzip")),
        ("feather", None),
        ("feather", Some("lz4")),
    ];
    for ((format, compression), case) in kinds.iter().cycle().zip(&tables) {
        let request = json!({"direction": "write", "format": format, "compression": compression}).to_string();
        let made = program(&["work", cellar_tables::convert::JOB, "10", &request], case).expect("made").stdout;
        seeds.extend(whole(&made).map(|(file, _)| file));
    }
    Box::new(move |case| {
        let format = if case.starts_with(b"PAR1") { "parquet" } else { "feather" };
        let request = json!({"direction": "read", "format": format}).to_string();
        let ended = program(&["work", cellar_tables::convert::JOB, "10", &request], case);
        let ended = ended.map_err(|error| error.to_string())?;
        check(&ended)?;
        Ok(match whole(&ended.stdout) {
            Some((_, [b'k', ..])) => Answer::Taken,
            Some((_, [b'e', _, _, _, _, words @ ..])) => Answer::Refused(String::from_utf8_lossy(words).into_owned()),
            _ => Answer::Refused("it was killed".to_owned()),
        })
    })
}

/// Joins the pieces of a converting process's output, and returns it with the piece at their end.
fn whole(mut pieces: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut whole = Vec::new();
    while let [b'd', a, b, c, d, rest @ ..] = pieces {
        let (piece, rest) = rest.split_at_checked(u32::from_le_bytes([*a, *b, *c, *d]) as usize)?;
        whole.extend(piece);
        pieces = rest;
    }
    Some((whole, pieces))
}

/// Runs the command on what it reads.
fn program(arguments: &[&str], input: &[u8]) -> io::Result<Output> {
    let program = std::env::var_os("CELLAR_FUZZ_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_cellar").into());
    let mut stdin = tempfile::tempfile()?;
    stdin.write_all(input)?;
    stdin.rewind()?;
    Command::new(program).args(arguments).env("NO_COLOR", "1").stdin(stdin).output()
}

/// Refuses an end of the command that none of its own is. What draws, and what reads others' formats, is no program of ours, and
/// is let fail in a process of its own.
fn check(ended: &Output) -> Result<(), String> {
    let said = String::from_utf8_lossy(&ended.stderr);
    if said.contains("panicked at host/") { Err(format!("{}: {said}", ended.status)) } else { Ok(()) }
}

/// Runs the command on what it reads; whether it was taken.
fn command(arguments: &[&str], input: &[u8]) -> Result<Answer, String> {
    let ended = program(arguments, input).map_err(|error| error.to_string())?;
    check(&ended)?;
    if ended.status.code() == Some(101) && arguments[0] != "work" {
        return Err(format!("{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr)));
    }
    let refused = || Answer::Refused(String::from_utf8_lossy(&ended.stderr).into_owned());
    Ok(if ended.status.success() { Answer::Taken } else { refused() })
}

/// SVG, drawn as the command draws it: in a process of its own, of ten seconds.
fn chart(seeds: &mut Vec<Vec<u8>>) -> Try {
    contents(&root().join("fixtures/charts"), ".svg", seeds);
    seeds.truncate(6);
    Box::new(|case| command(&["work", cellar_charts::JOB, "10"], case))
}

/// Notebooks, read by the command up to where it would need a guest.
fn notebook(seeds: &mut Vec<Vec<u8>>) -> Try {
    let cell = |kind: &str, source: Value| json!({"cell_type": kind, "id": "a", "metadata": {}, "source": source});
    let code = json!({"cell_type": "code", "id": "b", "metadata": {"tags": ["x"]}, "source": ["1\n", "2"], "execution_count": 1,
        "outputs": [{"output_type": "stream", "name": "stdout", "text": "1"}, {"output_type": "error", "ename": "E", "evalue": "", "traceback": []}]});
    let info = json!({"kernelspec": {"name": "python3", "display_name": "P", "language": "python"}, "language_info": {"name": "python"}});
    let four = |minor: u32| json!({"nbformat": 4, "nbformat_minor": minor, "metadata": info, "cells": [cell("markdown", json!("x")), code]});
    let three = json!({"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"metadata": {}, "cells": [
        {"cell_type": "code", "language": "python", "input": "1", "outputs": [], "metadata": {}, "collapsed": false}]}]});
    seeds.extend([four(5), four(2), three].map(|notebook| notebook.to_string().into_bytes()));
    let folder = tempfile::tempdir().expect("a folder");
    Box::new(move |case| {
        let file = folder.path().join("n.ipynb");
        fs::write(&file, case).map_err(|error| error.to_string())?;
        let (file, guests) = (file.display().to_string(), folder.path().display().to_string());
        command(&["run", "--guests", &guests, &file, "--json"], b"")
    })
}

/// Programs of a guest that breaks the rules: whatever it does, another session is as it was.
fn guest(seeds: &mut Vec<Vec<u8>>) -> Try {
    let page = fs::read_to_string(root().join("guests/probe/README.md")).unwrap_or_default();
    let words = page.lines().filter(|line| line.starts_with("| `")).flat_map(|line| line.split('`').skip(1).step_by(2));
    let slow = ["spin", "spin-hard", "block", "recurse", "wake-in-the-past", "wait-for-nothing", "loop"];
    let is_quick = |word: &&str| !slow.iter().any(|slow| word.starts_with(slow));
    seeds.extend(words.filter(is_quick).map(|word| word.replace("JSON", "{\"a\": 1}").into_bytes()));
    let lies = fs::read_to_string(root().join("fixtures/transcripts/escape/lies.probe")).unwrap_or_default();
    let lies = lies.lines().filter(|line| line.strip_prefix("lie ").is_some_and(|lie| is_quick(&lie)));
    seeds.extend(lies.map(|lie| lie.as_bytes().to_vec()));
    // Calls of the kernel world with arguments drawn at random: a changed number draws others.
    seeds.extend((1..=16).map(|seed| format!("cross 300 {seed}\nlist /").into_bytes()));
    let probe = Probe::new();
    let other = probe.session(SessionConfig::default());
    probe.text(&other, "set name kept");
    let open = |probe: &Probe| probe.session(SessionConfig::default());
    let (mut session, mut count) = (open(&probe), 0_u32);
    Box::new(move |case| {
        count += 1;
        if count.is_multiple_of(20) {
            session = open(&probe);
        }
        // Lines, so that pieces of several commands stand beside each other.
        let code = String::from_utf8_lossy(case);
        let is_slow = |line: &&str| slow.iter().any(|slow| line.contains(slow));
        let code: Vec<&str> = code.lines().filter(|line| !is_slow(line)).take(20).collect();
        probe.text(&session, &code.join("\n"));
        let text = probe.text(&other, "get name\nemit alive");
        if text != "kept\nalive" {
            return Err(format!("another session says {text:?}"));
        }
        Ok(Answer::Taken)
    })
}
