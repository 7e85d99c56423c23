//! The audit log, on the probe guest: all that runs is in it, nothing that is said is, and without it nothing runs.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use cellar_engine::{
    Bridges, Cell, Event, EventKind, Language, Run, Session, SessionConfig,
    audit::{Audit, AuditEntry, AuditFile, AuditKind, AuditSink, CellRan, RunFinished},
    bridges::{BridgeGrants, Call, CallError, CallErrorKind, CallFuture, Caller, Response},
    config::FolderGrants,
    files::{Access, Mount},
};
use futures::StreamExt;
use sha2::{Digest, Sha256};

use crate::{
    sessions::{host, on_one_thread, open, result, run, until_started},
    support::PATIENCE,
};

/// Text in all cells, calls and responses here, which the log must not contain.
const SAID: &str = "CONTENT";

/// Entries in memory, while the disk has room.
#[derive(Clone, Debug, Default)]
struct Memory {
    entries: Arc<Mutex<Vec<AuditEntry>>>,
    is_full: Arc<AtomicBool>,
}

impl AuditSink for Memory {
    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.entries.lock().expect("entries").push(entry.clone());
        Ok(())
    }
}

impl Memory {
    fn entries(&self) -> Vec<AuditEntry> {
        self.entries.lock().expect("entries").clone()
    }

    /// The entries, each in a few words.
    fn words(&self) -> Vec<String> {
        self.entries()
            .iter()
            .map(|entry| match &entry.kind {
                AuditKind::RunStarted(run) => format!("started {}", run.cells.len()),
                AuditKind::Call(call) => format!("{} {} {}", call.bridge, call.name, call.outcome),
                AuditKind::RunFinished(run) => format!("finished {}", run.outcome),
                other => panic!("an entry of a kind that is not known: {other:?}"),
            })
            .collect()
    }

    fn finished(&self) -> RunFinished {
        let entries = self.entries();
        let last = entries.into_iter().rev().find_map(|entry| match entry.kind {
            AuditKind::RunFinished(run) => Some(run),
            _ => None,
        });
        last.expect("a run has ended")
    }
}

/// Tools that answer, fail and never answer; agents that run what they are told; requests that are answered.
struct Talkative;

impl Bridges for Talkative {
    fn grants(&self) -> BridgeGrants {
        BridgeGrants { tools: vec!["echo".to_owned()], ..BridgeGrants::default() }
    }

    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        Box::pin(async move {
            match call {
                Call::Tool { name, .. } if name == "never" => std::future::pending().await,
                Call::Tool { name, arguments } if name == "echo" => Ok(Response::Json(arguments)),
                Call::Agent(agent) => {
                    let session = caller.session.for_agent(caller.depth + 1);
                    let run = session.run(vec![Cell::new(Language::Probe, agent.prompt)]).expect("a run");
                    Ok(Response::Text(run.collect_result().await.text()))
                }
                Call::Http(_) => Ok(Response::Text(SAID.to_owned())),
                _ => Err(CallError::new(CallErrorKind::Failed, SAID)),
            }
        })
    }
}

fn audited(memory: &Memory) -> SessionConfig {
    let mut audit = Audit::to(memory.clone());
    (audit.actor, audit.tenant) = (Some("alice".to_owned()), Some("acme".to_owned()));
    SessionConfig { audit: Some(audit), bridges: Arc::new(Talkative), ..SessionConfig::default() }
}

fn sha256(code: &str) -> String {
    Sha256::digest(code).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_run_is_told_with_its_grants_its_calls_and_its_end() {
    on_one_thread(async {
        let memory = Memory::default();
        let folder = tempfile::tempdir().expect("a folder");
        let mount = Mount { host: folder.path().to_owned(), guest: "/data".to_owned(), access: Access::ReadOnly };
        let environment = vec![("NAME".to_owned(), SAID.to_owned())];
        let folders = FolderGrants { mounts: vec![mount], ..FolderGrants::default() };
        let session = open(&host(), SessionConfig { folders, environment, ..audited(&memory) });
        let codes = [format!("emit {SAID}\ncall echo {{\"a\": \"{SAID}\"}}"), format!("raise {SAID}"), SAID.to_owned()];
        let cells = codes.iter().map(|code| Cell::new(Language::Probe, code.as_str())).collect();
        let running = session.run(cells).expect("a run");
        let id = running.id().to_string();
        running.collect_result().await;
        assert_eq!(memory.words(), ["started 3", "tool echo ok", "finished error"]);
        for entry in memory.entries() {
            assert_eq!((entry.session.as_str(), entry.run.as_deref()), (session.id(), Some(id.as_str())));
            assert_eq!((entry.actor.as_deref(), entry.tenant.as_deref()), (Some("alice"), Some("acme")));
            let line = serde_json::to_string(&entry).expect("JSON");
            assert!(!line.contains(SAID), "{line}");
        }
        let [first, call, last] = memory.entries().try_into().expect("three");
        let AuditKind::RunStarted(started) = first.kind else { panic!("{first:?}") };
        let digests: Vec<_> = started.cells.iter().map(|cell| cell.code_sha256.clone()).collect();
        assert_eq!(digests, codes.each_ref().map(|code| sha256(code)));
        let folders: Vec<_> =
            started.grants.folders.iter().map(|each| (each.host.clone(), each.guest.as_str(), each.write)).collect();
        let data = Some(folder.path().display().to_string());
        let own = ["/workspace", "/tmp", "/mnt/data", "/home/user", "/content"].map(|guest| (None, guest, true));
        assert_eq!(folders, [own.as_slice(), &[(data, "/data", false)]].concat());
        assert_eq!(
            (started.grants.bridges.tools, started.grants.environment),
            (vec!["echo".to_owned()], vec!["NAME".to_owned()])
        );
        assert_eq!(
            (started.depth, started.serves, started.grants.limits.0.timeout),
            (0, None, std::time::Duration::from_secs(30))
        );
        let AuditKind::Call(call) = call.kind else { panic!("{call:?}") };
        assert_eq!((call.cell, call.request_bytes, call.response_bytes), (Some(1), 20, 16));
        let AuditKind::RunFinished(finished) = last.kind else { panic!("{last:?}") };
        let ends: Vec<_> = finished.cells.iter().map(|cell| (cell.cell, cell.outcome.as_str())).collect();
        assert_eq!(ends, [(Some(1), "complete"), (Some(2), "raised")], "the third cell never began");
        assert_eq!((finished.calls, finished.calls_failed, &finished.cells[1].code_sha256), (1, 0, &digests[1]));
    });
}

#[test]
fn every_way_a_call_can_end_has_an_entry() {
    on_one_thread(async {
        let memory = Memory::default();
        let session = open(&host(), audited(&memory));
        let calls = "call-sync echo {}\ncall-sync fail {}\nhttp https://user:pass@example.com/a/b?q=CONTENT#CONTENT";
        result(&session, calls).await;
        let expected = ["started 1", "tool echo ok", "tool fail failed"];
        assert_eq!(memory.words()[..3], expected);
        let session = open(&host(), audited(&memory));
        result(&session, "http https://user:pass@example.com/a/b?q=CONTENT#CONTENT").await;
        assert!(memory.words().contains(&"http GET https://example.com/a/b ok".to_owned()), "{:?}", memory.words());
        // What a stopped run had under way.
        let mut stopped = run(&session, "call never {}");
        until_called(&mut stopped).await;
        stopped.cancel();
        stopped.collect_result().await;
        assert_eq!(
            memory.words().iter().rev().take(2).rev().cloned().collect::<Vec<_>>(),
            ["tool never cancelled", "finished error"]
        );
    });
}

async fn until_called(run: &mut Run) {
    while let Some(Event { kind, .. }) = run.next().await {
        if matches!(kind, EventKind::CallStarted { .. }) {
            return;
        }
    }
    panic!("nothing was called");
}

#[test]
fn a_run_of_an_agent_says_which_call_it_serves() {
    on_one_thread(async {
        let memory = Memory::default();
        let session = open(&host(), audited(&memory));
        result(&session, "emit first").await;
        result(&session, "agent emit deep").await;
        let started: Vec<_> = memory
            .entries()
            .into_iter()
            .filter_map(|entry| match entry.kind {
                AuditKind::RunStarted(run) => Some((run.depth, run.serves.map(|site| (site.cell, site.call)))),
                _ => None,
            })
            .collect();
        assert_eq!(started, [(0, None), (0, None), (1, Some((2, 1)))]);
    });
}

#[test]
fn a_dropped_run_has_its_end_and_its_calls_have_theirs() {
    on_one_thread(async {
        let memory = Memory::default();
        let session = open(&host(), audited(&memory));
        let mut dropped = run(&session, "call never {}");
        until_called(&mut dropped).await;
        drop(dropped);
        // The entry is written on a thread that may block.
        let is_written = async {
            while !memory.words().iter().any(|words| words.starts_with("finished")) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, is_written).await.expect("the run's last entry");
        let finished = memory.finished();
        assert_eq!((finished.outcome.as_str(), finished.calls), ("cancelled", 1));
        assert!(matches!(&finished.cells[..], [CellRan { cell: Some(1), .. }]));
        // Its call ends with its cell, or at the latest with its kernel.
        drop(session);
        let is_written = async {
            while !memory.words().contains(&"tool never cancelled".to_owned()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, is_written).await.expect("the entry of its call");
    });
}

#[test]
fn a_run_that_is_never_read_leaves_nothing() {
    on_one_thread(async {
        let memory = Memory::default();
        let session = open(&host(), audited(&memory));
        drop(run(&session, "emit never"));
        assert_eq!(memory.words(), [""; 0]);
    });
}

#[test]
fn nothing_runs_that_cannot_be_logged() {
    on_one_thread(async {
        let memory = Memory::default();
        let session = open(&host(), audited(&memory));
        memory.is_full.store(true, Ordering::SeqCst);
        for run in [run(&session, "emit ran"), run(&session, "emit ran").keep_going()] {
            let refused = run.collect_result().await;
            let failure = refused.cells[0].failure.as_ref().expect("a failure");
            assert_eq!((refused.is_error, failure.name.as_str()), (true, "AuditError"));
            assert!(failure.message.starts_with("the audit log cannot be written: "), "{}", failure.message);
            assert!(!refused.text().contains("ran\n"), "{}", refused.text());
        }
        memory.is_full.store(false, Ordering::SeqCst);
        assert_eq!(result(&session, "emit ran").await.text(), "ran");
        assert_eq!(memory.words(), ["started 1", "finished complete"]);
    });
}

#[test]
fn a_disk_that_fills_up_stops_calls_and_fails_the_run() {
    on_one_thread(async {
        let memory = Memory::default();
        let session = open(&host(), audited(&memory));
        let mut running = run(&session, "sleep 1\ncall echo {\"n\": 1}\ncall echo {\"n\": 2}");
        until_started(&mut running).await;
        memory.is_full.store(true, Ordering::SeqCst);
        let mut events = Vec::new();
        while let Some(Event { kind, .. }) = running.next().await {
            events.push(kind);
        }
        let error = events.iter().find_map(|kind| match kind {
            EventKind::CallFinished { error, .. } => error.clone(),
            _ => None,
        });
        assert!(error.expect("the call failed").starts_with("the audit log cannot be written: "));
        let [.., EventKind::Status { op, .. }, EventKind::RunFinished { is_error: true, .. }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(op, "audit_lost");
        // A call that would be made now is not; its refusal is the first that can be logged again.
        memory.is_full.store(false, Ordering::SeqCst);
        assert!(!result(&session, "call echo {}").await.is_error, "the entry of the run could be written");
    });
}

#[test]
fn a_file_has_a_line_for_each_entry_and_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    on_one_thread(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        std::fs::write(&path, "what was there\n").expect("written");
        std::fs::remove_file(&path).expect("removed");
        for _ in 0..2 {
            let audit = Some(Audit::to(AuditFile::open(&path, true).expect("a file")));
            let session = open(&host(), SessionConfig { audit, ..SessionConfig::default() });
            result(&session, "emit x").await;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        let types: Vec<String> = text.lines().map(type_of).collect();
        assert_eq!(types, ["run_started", "run_finished", "run_started", "run_finished"]);
        assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    });
}

fn type_of(line: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
    value["type"].as_str().expect("a type").to_owned()
}

#[test]
fn no_cell_can_write_to_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).expect("a folder");
    let open = |workspace: &Path, mounts: Vec<Mount>| -> Result<Session, _> {
        let audit = Some(Audit::to(AuditFile::open(&inner.join("audit.jsonl"), false).expect("a file")));
        let folders = FolderGrants { workspace: Some(workspace.to_owned()), mounts, ..FolderGrants::default() };
        host().session(SessionConfig { audit, folders, ..SessionConfig::default() })
    };
    let error = open(folder.path(), Vec::new()).expect_err("the log is in the workspace").to_string();
    assert!(error.contains("to which cells may write as `/workspace`"), "{error}");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mount = |access| vec![Mount { host: inner.clone(), guest: "/logs".to_owned(), access }];
    assert!(open(elsewhere.path(), mount(Access::ReadWrite)).is_err());
    assert!(open(elsewhere.path(), mount(Access::ReadOnly)).is_ok());
}
