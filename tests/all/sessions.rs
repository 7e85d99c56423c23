//! Guarantees of sessions whatever their guests do, on the probe guest and the library's own interface.

use std::{
    future::Future,
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cellar_engine::{
    Bridges, Cell, Error, EventKind, GuestName, Host, HostConfig, HostFolders, Language, Limits, Outcome, Run,
    RunResult, Session, SessionConfig,
    bridges::{Call, CallFuture, Caller, Response, denied},
    config::FolderGrants,
    guests::{BakeOptions, bake},
    outcome::{FailureCode, FailureKind},
};
use futures::{StreamExt, future::join_all};
use tempfile::TempDir;

use crate::support::{PATIENCE, root, stops};

/// Images of guests that were tampered with; the others share the user's cache.
static CACHE: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("a temporary folder"));

fn cache() -> std::path::PathBuf {
    std::env::var_os("CELLAR_CACHE").map_or_else(|| dirs::cache_dir().expect("a home").join("cellar"), Into::into)
}

pub(crate) fn config(kernels_max: u32) -> HostConfig {
    let config = HostConfig {
        kernels_max,
        stops: stops(),
        ..HostConfig::new(HostFolders { guests: root().join("target/guests"), cache: cache() })
    };
    bake(&config, GuestName::Probe, BakeOptions::default()).expect("the probe guest; run `make probe`");
    config
}

pub(crate) fn host() -> Host {
    Host::open(config(32)).expect("a host")
}

pub(crate) fn open(host: &Host, config: SessionConfig) -> Session {
    host.session(config).expect("a session")
}

pub(crate) fn run(session: &Session, code: &str) -> Run {
    session.run(vec![Cell::new(Language::Probe, code)]).expect("a run")
}

pub(crate) async fn result(session: &Session, code: &str) -> RunResult {
    run(session, code).collect_result().await
}

pub(crate) async fn text(session: &Session, code: &str) -> String {
    result(session, code).await.text()
}

/// Runs a test on one thread: whatever starves its neighbours here is caught.
pub(crate) fn on_one_thread(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test);
}

/// Reads a run until a cell started.
pub(crate) async fn until_started(run: &mut Run) {
    while let Some(event) = run.next().await {
        if matches!(event.kind, EventKind::CellStarted { .. }) {
            return;
        }
    }
    panic!("no cell started");
}

/// Returns the outcome of the only cell of a run.
pub(crate) async fn outcome(mut run: Run) -> Outcome {
    while let Some(event) = run.next().await {
        if let EventKind::CellFinished { outcome, .. } = event.kind {
            return outcome;
        }
    }
    panic!("the cell did not finish");
}

pub(crate) fn kind(outcome: &Outcome) -> Option<FailureKind> {
    match outcome {
        Outcome::Failed(failure) => Some(failure.kind),
        _ => None,
    }
}

#[test]
fn a_busy_cell_does_not_starve_other_sessions_on_the_same_thread() {
    on_one_thread(async {
        let host = host();
        let busy = open(&host, SessionConfig::default());
        let mut spinning = run(&busy, "spin");
        until_started(&mut spinning).await;
        let spinning = tokio::spawn(outcome(spinning));
        let other = open(&host, SessionConfig::default());
        for _ in 0..20 {
            assert_eq!(text(&other, "emit alive").await, "alive");
        }
        assert!(!spinning.is_finished(), "the busy cell ended before the others");
        spinning.abort();
    });
}

#[test]
fn dropping_a_run_stops_its_cell_and_keeps_the_state() {
    on_one_thread(async {
        let session = open(&host(), SessionConfig::default());
        assert!(!result(&session, "set kept yes").await.is_error);
        for code in ["spin", "sleep 100000", "call hang {}"] {
            let mut doomed = run(&session, code);
            until_started(&mut doomed).await;
            drop(doomed);
            assert_eq!(text(&session, "get kept").await, "yes", "after `{code}`");
        }
    });
}

#[test]
fn cancelling_a_run_ends_it_properly() {
    on_one_thread(async {
        let session = open(&host(), SessionConfig::default());
        for code in ["spin", "sleep 100000", "block 100000"] {
            let mut running = run(&session, code);
            let canceller = running.canceller();
            until_started(&mut running).await;
            canceller.cancel();
            assert_eq!(kind(&outcome(running).await), Some(FailureKind::Interrupted), "`{code}`");
        }
        let cancelled = run(&session, "emit never");
        cancelled.cancel();
        assert_eq!(kind(&outcome(cancelled).await), Some(FailureKind::Interrupted));
        assert_eq!(text(&session, "emit alive").await, "alive");
    });
}

#[test]
fn a_reset_interrupts_cells_that_run_on_the_old_kernel() {
    on_one_thread(async {
        let session = open(&host(), SessionConfig::default());
        for code in ["spin", "sleep 100000"] {
            let mut running = run(&session, code);
            until_started(&mut running).await;
            let ended = tokio::spawn(outcome(running));
            tokio::task::yield_now().await;
            session.reset(Language::Probe);
            assert_eq!(kind(&ended.await.expect("no panic")), Some(FailureKind::Interrupted), "`{code}`");
            assert_eq!(text(&session, "emit alive").await, "alive");
        }
    });
}

#[test]
fn clearing_forgets_names_and_keeps_the_kernel() {
    on_one_thread(async {
        let session = open(&host(), SessionConfig::default());
        assert!(!result(&session, "set name Ada").await.is_error);
        let names = session.variables(Language::Probe).await.expect("names");
        assert_eq!(names.iter().map(|variable| variable.name.as_str()).collect::<Vec<_>>(), ["name"]);
        session.clear(Language::Probe).await.expect("cleared");
        assert!(session.variables(Language::Probe).await.expect("names").is_empty());
    });
}

#[test]
fn closed_sessions_give_back_their_kernels_whatever_ran_in_them() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let host = Host::open(config(2)).expect("a host");
        for code in ["emit x", "spin", "sleep 100000", "call hang {}", "call-sync hang {}", "trap"].repeat(3) {
            // The kernel before is given back a moment after its session went.
            let session = open(&host, SessionConfig::default());
            let mut running = loop {
                let mut run = run(&session, code);
                until_started(&mut run).await;
                let refused = tokio::select! {
                    biased;
                    event = run.next() => is_exhausted(event.as_ref().map(|event| &event.kind)),
                    () = tokio::task::yield_now() => false,
                };
                if !refused {
                    break run;
                }
                tokio::task::yield_now().await;
            };
            let _ = futures::poll!(running.next());
        }
        // With a kernel lost per round, both would be gone by now.
        let (a, b) = (open(&host, SessionConfig::default()), open(&host, SessionConfig::default()));
        for session in [&a, &b] {
            while text(session, "emit alive").await != "alive" {
                tokio::task::yield_now().await;
            }
        }
    });
}

fn is_exhausted(event: Option<&EventKind>) -> bool {
    matches!(event, Some(EventKind::CellFinished { outcome: Outcome::Failed(failure), .. })
        if failure.code == Some(FailureCode::Busy))
}

#[test]
fn a_slow_reader_suspends_the_guest_and_loses_nothing() {
    on_one_thread(async {
        let limits = Limits { timeout: Duration::from_secs(600), ..Limits::default() };
        let session = open(&host(), SessionConfig { limits, ..SessionConfig::default() });
        let mut flood = run(&session, "flood 20000");
        let mut lines = 0;
        while let Some(event) = flood.next().await {
            if let EventKind::Stdout { text, .. } = event.kind {
                lines += text.lines().count();
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(lines, 20_000);
    });
}

/// Tools of these tests, which count how many run at once; an agent that runs a cell in its caller's session.
#[derive(Default)]
struct Counting {
    running: AtomicUsize,
    most: AtomicUsize,
}

struct Counted(Arc<Counting>);

impl Bridges for Counted {
    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        let counting = self.0.clone();
        match &call {
            Call::Tool { name, .. } if name == "sleep" => Box::pin(async move {
                let running = counting.running.fetch_add(1, Ordering::SeqCst) + 1;
                counting.most.fetch_max(running, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(50)).await;
                counting.running.fetch_sub(1, Ordering::SeqCst);
                Ok(Response::Json("null".to_owned()))
            }),
            Call::Tool { name, .. } if name == "never" => Box::pin(std::future::pending()),
            Call::Agent(agent) => {
                let prompt = agent.prompt.clone();
                Box::pin(async move {
                    let session = caller.session.for_agent(caller.depth + 1);
                    let run = session.run(vec![Cell::new(Language::Probe, prompt)]);
                    let text = match run {
                        Ok(run) => run.collect_result().await.text(),
                        Err(error) => error.to_string(),
                    };
                    Ok(Response::Text(text))
                })
            }
            _ => {
                let error = denied(&call);
                Box::pin(async { Err(error) })
            }
        }
    }
}

#[test]
fn calls_overlap_up_to_the_sessions_limit() {
    on_one_thread(async {
        let counting = Arc::<Counting>::default();
        let limits = Limits { calls_in_flight: 10, ..Limits::default() };
        let bridges = Arc::new(Counted(counting.clone()));
        let session = open(&host(), SessionConfig { limits, bridges, ..SessionConfig::default() });
        let runs = (0..50).map(|_| result(&session, "call sleep {}"));
        assert!(join_all(runs).await.iter().all(|result| !result.is_error));
        assert_eq!(counting.most.load(Ordering::SeqCst), 10);
    });
}

#[test]
fn an_agent_shares_the_session_of_the_cell_that_awaits_it() {
    on_one_thread(async {
        let bridges = Arc::new(Counted(Arc::default()));
        let session = open(&host(), SessionConfig { bridges, ..SessionConfig::default() });
        assert_eq!(text(&session, "set name Ada\nagent get name").await, "Ada");
        assert_eq!(text(&session, "agent set name Grace\nget name").await, "(no output)\nGrace");
    });
}

#[test]
fn an_agent_that_needs_a_blocked_kernel_is_told_so() {
    on_one_thread(async {
        let bridges = Arc::new(Counted(Arc::default()));
        let session = open(&host(), SessionConfig { bridges, ..SessionConfig::default() });
        let answer = text(&session, "agent-sync emit never").await;
        assert!(answer.contains("blocked by a synchronous agent() call in <cell 1>"), "{answer}");
        assert_eq!(text(&session, "emit alive").await, "alive");
    });
}

#[test]
fn agents_nest_three_deep() {
    on_one_thread(async {
        let bridges = Arc::new(Counted(Arc::default()));
        let session = open(&host(), SessionConfig { bridges, ..SessionConfig::default() });
        assert_eq!(text(&session, "agent agent agent emit deep").await, "deep");
        let answer = text(&session, "agent agent agent agent emit deeper").await;
        assert!(answer.contains("agents are nested 4 deep, at most 3 are allowed"), "{answer}");
    });
}

#[test]
fn sessions_do_not_share_names_or_files() {
    on_one_thread(async {
        let host = host();
        let (a, b) = (open(&host, SessionConfig::default()), open(&host, SessionConfig::default()));
        assert!(!result(&a, "set name Ada\nwrite note.txt mine").await.is_error);
        assert!(result(&b, "get name").await.is_error);
        assert!(result(&b, "read note.txt").await.is_error);
        assert_eq!(text(&a, "read note.txt").await, "mine");
    });
}

#[test]
fn a_granted_workspace_is_the_hosts_own_folder() {
    on_one_thread(async {
        let folder = TempDir::new().expect("a folder");
        let session = open(
            &host(),
            SessionConfig {
                folders: FolderGrants { workspace: Some(folder.path().into()), ..FolderGrants::default() },
                ..SessionConfig::default()
            },
        );
        assert!(!result(&session, "write note.txt mine").await.is_error);
        assert_eq!(std::fs::read_to_string(folder.path().join("note.txt")).expect("the file"), "mine");
    });
}

/// Copies the probe guest, with its manifest changed.
fn changed_guest(folder: &Path, change: impl FnOnce(String) -> String) -> HostConfig {
    let source = root().join("target/guests/probe");
    let copy = folder.join("probe");
    std::fs::create_dir_all(&copy).expect("a folder");
    std::fs::copy(source.join("guest.wasm"), copy.join("guest.wasm")).expect("the guest");
    let manifest = std::fs::read_to_string(source.join("manifest.json")).expect("its manifest");
    std::fs::write(copy.join("manifest.json"), change(manifest)).expect("written");
    HostConfig {
        kernels_max: 2,
        ..HostConfig::new(HostFolders { guests: folder.to_owned(), cache: CACHE.path().join("changed") })
    }
}

fn load_error(config: HostConfig) -> Error {
    Host::open(config).expect("a host").preload(GuestName::Probe).expect_err("a refusal")
}

#[test]
fn a_guest_of_another_version_is_refused_with_both_versions() {
    let folder = TempDir::new().expect("a folder");
    let config = changed_guest(folder.path(), |manifest| manifest.replace("\"0.12.0\"", "\"9.9.9\""));
    let message = load_error(config).to_string();
    assert!(message.contains("cellar:kernel@9.9.9") && message.contains("cellar:kernel@0.12.0"), "{message}");
}

#[test]
fn a_guest_that_was_rebuilt_is_not_run_from_its_old_image() {
    let folder = TempDir::new().expect("a folder");
    let config = changed_guest(folder.path(), |manifest| manifest);
    bake(&config, GuestName::Probe, BakeOptions::default()).expect("baked");
    Host::open(config.clone()).expect("a host").preload(GuestName::Probe).expect("it loads");
    let changed = changed_guest(folder.path(), |manifest| manifest.replacen('{', "{ \"rebuilt\": true,", 1));
    assert_eq!(load_error(changed).code(), "not-baked");
}

#[test]
fn a_guest_whose_bytes_changed_is_not_baked() {
    let folder = TempDir::new().expect("a folder");
    let config = changed_guest(folder.path(), |manifest| manifest.replacen('{', "{ \"damaged\": true,", 1));
    let wasm = folder.path().join("probe/guest.wasm");
    let mut bytes = std::fs::read(&wasm).expect("the guest");
    bytes.push(0);
    std::fs::write(&wasm, bytes).expect("written");
    let error = bake(&config, GuestName::Probe, BakeOptions::default()).expect_err("a refusal");
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(cause.contains("its manifest says"), "{cause}");
}

#[test]
fn code_that_others_may_write_is_not_loaded() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().expect("a folder");
    let config = changed_guest(folder.path(), |manifest| manifest.replacen('{', "{ \"exposed\": true,", 1));
    let report = bake(&config, GuestName::Probe, BakeOptions::default()).expect("baked");
    let expose = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("exposed");
    };
    let entries = || std::fs::read_dir(&report.path).expect("a folder").map(|entry| entry.expect("an entry").path());
    let code = || entries().filter(|path| path.extension().is_some_and(|end| end == "cwasm"));
    let is_refused = |why: &str| {
        let error = load_error(config.clone()).to_string();
        assert!(error.contains(why), "{error}");
        let again = bake(&config, GuestName::Probe, BakeOptions::default()).expect("baked");
        assert!(again.fresh, "what {why} was kept");
        Host::open(config.clone()).expect("a host").preload(GuestName::Probe).expect("it was made anew");
    };
    expose(&report.path, 0o777);
    is_refused("may be written by other users");
    entries().for_each(|path| expose(&path, 0o666));
    is_refused("may be written by other users");
    code().for_each(|path| {
        std::fs::remove_file(&path).expect("removed");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success());
    });
    is_refused("is no plain file");
}

#[test]
fn what_lies_beside_the_guests_is_loaded_without_a_cache_that_may_be_written() {
    let folder = TempDir::new().expect("a folder");
    let config = changed_guest(folder.path(), |manifest| manifest.replacen('{', "{ \"installed\": true,", 1));
    let made = bake(&config, GuestName::Probe, BakeOptions { fuel: true, ..BakeOptions::default() }).expect("baked");
    let installed = folder.path().join("baked").join(made.path.file_name().expect("a name"));
    std::fs::create_dir(folder.path().join("baked")).expect("a folder");
    let copied = std::process::Command::new("cp").arg("-r").args([&made.path, &installed]).status().expect("cp");
    assert!(copied.success());
    // Where a folder would have to be, a file lies.
    let nowhere = folder.path().join("nowhere");
    std::fs::write(&nowhere, "").expect("written");
    let config = HostConfig { cache: nowhere, ..config };
    let found = bake(&config, GuestName::Probe, BakeOptions { fuel: true, ..BakeOptions::default() }).expect("ready");
    assert!(!found.fresh && found.path == installed && found.compiled_bytes == made.compiled_bytes, "{found:?}");
    Host::open(config).expect("a host").preload(GuestName::Probe).expect("it loads");
}

#[test]
fn code_that_counts_fuel_is_compiled_when_a_kernel_first_needs_it() {
    on_one_thread(async {
        let folder = TempDir::new().expect("a folder");
        let config = changed_guest(folder.path(), |manifest| manifest.replacen('{', "{ \"fuelled\": true,", 1));
        let baked = bake(&config, GuestName::Probe, BakeOptions::default()).expect("baked").path;
        let has_fuel = || {
            let mut files =
                std::fs::read_dir(&baked).expect("a folder").map(|entry| entry.expect("an entry").file_name());
            files.any(|name| name.to_string_lossy().starts_with("fuel-"))
        };
        assert!(!has_fuel());
        let limits = Limits { fuel: Some(1_000_000_000), ..Limits::default() };
        let session = open(&Host::open(config).expect("a host"), SessionConfig { limits, ..SessionConfig::default() });
        assert!(!result(&session, "spin 1").await.is_error);
        assert!(has_fuel());
    });
}

#[test]
fn a_missing_guest_is_named() {
    let folder = TempDir::new().expect("a folder");
    let error =
        load_error(HostConfig::new(HostFolders { guests: folder.path().to_owned(), cache: CACHE.path().to_owned() }));
    assert_eq!(error.code(), "guest-missing");
    assert!(error.to_string().starts_with("the guest `probe` is not there"), "{error}");
}

/// Reads a run until a cell started, and then no more, until its kernel waits for it.
async fn stall(session: &Session) -> Run {
    let mut stalled = run(session, "flood 4000000");
    until_started(&mut stalled).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    stalled
}

#[test]
fn a_reader_that_stops_reading_holds_up_no_other_run_of_its_kernel_for_long() {
    on_one_thread(async {
        let limits = Limits { timeout: 5 * PATIENCE, grace: Duration::from_millis(100), ..Limits::default() };
        let session = open(&host(), SessionConfig { limits, ..SessionConfig::default() });
        let mut waiting = Cell::new(Language::Probe, "sleep 100000");
        waiting.timeout = Some(Duration::from_secs(1));
        let mut waiting = session.run(vec![waiting]).expect("a run");
        until_started(&mut waiting).await;
        let stalled = stall(&session).await;
        let ended = tokio::time::timeout(PATIENCE, outcome(waiting)).await;
        assert_eq!(kind(&ended.expect("its deadline is its own")), Some(FailureKind::Timeout));
        assert_eq!(text(&session, "emit alive").await, "alive");
        assert_eq!(kind(&outcome(stalled).await), Some(FailureKind::Interrupted));
    });
}

#[test]
fn a_reader_that_stops_reading_does_not_keep_a_kernel_that_was_given_up() {
    on_one_thread(async {
        let session = open(&Host::open(config(1)).expect("a host"), SessionConfig::default());
        let stalled = stall(&session).await;
        session.reset(Language::Probe);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(text(&session, "emit alive").await, "alive");
        drop(stalled);
    });
}

#[test]
fn a_cell_ends_although_nobody_reads_its_run() {
    on_one_thread(async {
        let session = open(&host(), SessionConfig::default());
        let mut unread = run(&session, &"emit x\n".repeat(64));
        until_started(&mut unread).await;
        let other = tokio::time::timeout(PATIENCE, text(&session, "emit alive")).await;
        assert_eq!(other.expect("the kernel is free"), "alive");
        assert_eq!(outcome(unread).await, Outcome::Complete);
    });
}

#[test]
fn clearing_ends_the_cells_that_await() {
    on_one_thread(async {
        let session = open(&host(), SessionConfig::default());
        let mut waiting = run(&session, "sleep 100000");
        until_started(&mut waiting).await;
        let ended = tokio::spawn(outcome(waiting));
        tokio::task::yield_now().await;
        session.clear(Language::Probe).await.expect("cleared");
        let ended = tokio::time::timeout(PATIENCE, ended).await.expect("at once");
        assert_eq!(kind(&ended.expect("no panic")), Some(FailureKind::Interrupted));
        assert_eq!(text(&session, "emit alive").await, "alive");
    });
}

#[test]
fn waiting_for_a_busy_kernel_is_not_the_waiting_cells_time() {
    on_one_thread(async {
        let session = open(&host(), SessionConfig::default());
        let mut busy = run(&session, "block 1500");
        until_started(&mut busy).await;
        tokio::task::yield_now().await;
        let mut queued = Cell::new(Language::Probe, "spin 10\nemit done");
        queued.timeout = Some(Duration::from_secs(1));
        let queued = session.run(vec![queued]).expect("a run");
        let (busy, queued) = tokio::join!(outcome(busy), queued.collect_result());
        assert_eq!(busy, Outcome::Complete);
        assert_eq!(queued.text(), "done");
    });
}

#[test]
fn a_cell_that_was_stopped_in_time_costs_the_next_one_nothing() {
    on_one_thread(async {
        let limits = Limits { grace: Duration::from_millis(100), ..Limits::default() };
        let bridges = Arc::new(Counted(Arc::default()));
        let session = open(&host(), SessionConfig { limits, bridges, ..SessionConfig::default() });
        let mut doomed = Cell::new(Language::Probe, "call sleep {}\nspin");
        doomed.timeout = Some(Duration::from_secs(1));
        let mut doomed = session.run(vec![doomed]).expect("a run");
        until_started(&mut doomed).await;
        // Both calls end at the same time, so that both cells go on in one entry of the guest.
        let busy = run(&session, "call sleep {}\nblock 400\nspin 100");
        let (doomed, busy) = tokio::join!(outcome(doomed), outcome(busy));
        assert_eq!(kind(&doomed), Some(FailureKind::Timeout));
        assert_eq!(busy, Outcome::Complete);
    });
}

#[test]
fn a_cell_pays_for_what_it_burns_after_a_timer() {
    on_one_thread(async {
        let limits = Limits { fuel: Some(50_000_000_000), ..Limits::default() };
        let session = open(&host(), SessionConfig { limits, ..SessionConfig::default() });
        let fuel = async |code: &str| {
            let mut run = run(&session, code);
            while let Some(event) = run.next().await {
                if let EventKind::CellFinished { usage, .. } = event.kind {
                    return usage.fuel.expect("fuel is counted");
                }
            }
            panic!("no cell finished");
        };
        let (waiting, burning) = tokio::join!(fuel("sleep 2000"), fuel("sleep 10\nspin 20"));
        assert!(waiting < 10_000_000 && burning > 40_000_000, "{waiting}, {burning}");
    });
}

#[test]
fn arguments_that_wait_for_their_calls_are_bounded() {
    on_one_thread(async {
        let bridges = Arc::new(Counted(Arc::default()));
        let session = open(&host(), SessionConfig { bridges, ..SessionConfig::default() });
        let code = format!("call never {}", "x".repeat(15 << 20));
        let mut waiting = Vec::new();
        for _ in 0..17 {
            let mut run = run(&session, &code);
            until_started(&mut run).await;
            waiting.push(run);
        }
        let refused = result(&session, &code).await;
        assert!(refused.is_error && refused.text().contains("more than 268435456 bytes of arguments"));
    });
}
