//! Guarantees of the hub: journals, readers, owners, and the order of runs.

use std::{sync::Arc, time::Duration};

use cellar_bridges::NoDoors;
use cellar_engine::{
    Cell, EventKind, Host, Language,
    config::{RunOptions, Unread},
    outcome::FailureKind,
};
use cellar_hub::{
    Delivery, Hub, HubConfig, HubError, Journals, OnDisconnect, OpenRequest, Reader, RunHandle, RunRequest,
};

use crate::{
    sessions::{config, on_one_thread},
    support::PATIENCE,
};

fn hub() -> Hub {
    Hub::open(config(8), HubConfig::default(), Arc::new(NoDoors)).expect("a hub")
}

async fn session(hub: &Hub, name: &str) {
    let open = OpenRequest { name: Some(name.to_owned()), ..OpenRequest::default() };
    hub.open_session(open, None).await.expect("a session");
}

fn request(id: &str, code: &str) -> RunRequest {
    RunRequest {
        id: id.to_owned(),
        cells: vec![Cell::new(Language::Probe, code)],
        keep_going: false,
        options: RunOptions::default(),
        is_owned: false,
        on_disconnect: OnDisconnect::Continue,
    }
}

/// All that a reader is given to the end, each in a few words.
async fn read(mut reader: Reader) -> Vec<String> {
    let mut words = Vec::new();
    while let Some(delivery) = reader.next().await {
        words.push(match delivery {
            Delivery::Event(event) => match &event.kind {
                EventKind::Stdout { text, .. } => format!("{} stdout {}", event.seq, text.trim_end()),
                EventKind::RunFinished { is_error, .. } => format!("{} end {is_error}", event.seq),
                _ => event.seq.to_string(),
            },
            Delivery::Gap(from, to) => format!("gap {from} {to}"),
            other => format!("{other:?}"),
        });
    }
    words
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it happens")
}

#[test]
fn what_has_begun_is_told_although_nothing_comes_after_it() {
    on_one_thread(async {
        let hub = hub();
        session(&hub, "s").await;
        let run = hub.start("s", request("r", "sleep 100000")).expect("a run");
        let mut reader = run.watch(0);
        for seq in 0..2 {
            let told = within(reader.next()).await;
            assert!(matches!(&told, Some(Delivery::Event(event)) if event.seq == seq), "{told:?}");
        }
        run.cancel();
        within(run.result()).await.expect("a result");
    });
}

#[test]
fn an_owner_that_wants_the_result_alone_holds_nothing_up_and_takes_the_run_along() {
    on_one_thread(async {
        let hub = hub();
        session(&hub, "s").await;
        let owned = |id: &str, code: &str| RunRequest {
            is_owned: true,
            on_disconnect: OnDisconnect::Cancel(Duration::ZERO),
            ..request(id, code)
        };
        let run = hub.start("s", owned("r", &"emit x\nclear\n".repeat(100))).expect("a run");
        let reader = run.own_result();
        assert!(!within(run.result()).await.expect("a result").is_error);
        drop(reader);
        let run = hub.start("s", owned("q", "sleep 100000")).expect("a run");
        drop(run.own_result());
        assert!(within(run.result()).await.expect("a result").is_error);
    });
}

#[test]
fn any_number_of_readers_follow_a_run_from_any_event_now_and_later() {
    on_one_thread(async {
        let hub = hub();
        session(&hub, "s").await;
        let run = hub.start("s", request("r", "emit hello")).expect("a run");
        let (first, second) = within(async { tokio::join!(read(run.watch(0)), read(run.own(0))) }).await;
        assert_eq!(first, ["0", "1", "2 stdout hello", "3", "4 end false"]);
        assert_eq!(first, second);
        let later = hub.ended_run("r").expect("it is kept");
        assert_eq!(within(read(later.watch(3))).await, ["3", "4 end false"]);
        assert_eq!(within(read(later.watch(99))).await, [""; 0]);
        assert_eq!(within(later.result()).await.expect("a result").text(), "hello");
    });
}

#[test]
fn runs_of_a_session_start_in_the_order_sent_and_a_cancelled_one_never_does() {
    on_one_thread(async {
        let hub = hub();
        session(&hub, "s").await;
        let start = |id: &str, code: &str| hub.start("s", request(id, code)).expect(id);
        let runs: Vec<RunHandle> = (0..20).map(|n| start(&n.to_string(), &format!("emit {n}"))).collect();
        let cancelled = start("cancelled", "emit never");
        cancelled.cancel();
        let last = start("last", "emit last");
        let mut cells = Vec::new();
        for run in runs.iter().chain([&last]) {
            let mut reader = run.watch(0);
            while let Some(Delivery::Event(event)) = within(reader.next()).await {
                if let EventKind::CellStarted { cell, .. } = &event.kind {
                    cells.push(cell.0);
                }
            }
        }
        assert!(cells.is_sorted() && cells.len() == 21, "{cells:?}");
        let result = within(cancelled.result()).await.expect("a result");
        let failure = result.cells[0].failure.as_ref().expect("a failure");
        assert_eq!((failure.kind, result.text().contains("never")), (FailureKind::Interrupted, false));
    });
}

#[test]
fn a_hub_that_keeps_much_gives_way_to_one_that_keeps_little() {
    on_one_thread(async {
        const BYTES_MAX: usize = 1 << 20;
        let journals = Journals::new(BYTES_MAX);
        let host = Host::open(config(8)).expect("a host");
        let hub = || {
            let mut hub_config = HubConfig::default();
            hub_config.journals = journals.clone();
            Hub::on(host.clone(), config(8), hub_config, Arc::new(NoDoors)).expect("a hub")
        };
        let (small, large) = (hub(), hub());
        session(&small, "s").await;
        session(&large, "s").await;
        // Says a word, behind whatever it does first, and goes on.
        let says = async |hub: &Hub, id: &str, code: &str| {
            let run = hub.start("s", request(id, &format!("{code}\nemit said\nsleep 1000000"))).expect("a run");
            let mut reader = run.watch(0);
            loop {
                let delivery = within(reader.next()).await.expect("it goes on");
                if let Delivery::Event(event) = delivery
                    && matches!(&event.kind, EventKind::Stdout { text, .. } if text.contains("said"))
                {
                    return run;
                }
            }
        };
        let waiting = says(&small, "waiting", "emit small").await;
        let ended = small.start("s", request("ended", "emit old")).expect("a run");
        within(ended.result()).await.expect("a result");
        // Runs that have ended, and one that has not, of more than there is room for.
        for n in 0..20 {
            let run = large.start("s", request(&n.to_string(), "flood 10000")).expect("a run");
            within(run.result()).await.expect("a result");
        }
        let last = says(&large, "last", "flood 200000").await;
        assert!(journals.size_bytes() <= BYTES_MAX, "{} bytes", journals.size_bytes());
        assert!(matches!(large.ended_run("0"), Err(HubError::RunForgotten { .. })));
        assert_eq!(
            within(read(small.ended_run("ended").expect("it is kept").watch(0))).await.first(),
            Some(&"0".to_owned())
        );
        waiting.cancel();
        last.cancel();
        let words = within(read(waiting.watch(0))).await;
        assert!(words.iter().any(|word| word.contains("small")), "{words:?}");
    });
}

#[test]
fn an_id_is_free_when_the_last_event_was_read() {
    on_one_thread(async {
        let hub = hub();
        session(&hub, "s").await;
        for _ in 0..50 {
            let run = hub.start("s", request("same", "emit again")).expect("the id is free");
            let taken = hub.start("s", request("same", "emit again")).expect_err("it is not");
            assert!(matches!(taken, HubError::RunUnderWay(_)), "{taken}");
            within(read(run.watch(0))).await;
        }
    });
}

#[test]
fn a_run_whose_owner_goes_away_is_cancelled_or_goes_on() {
    on_one_thread(async {
        let hub = hub();
        session(&hub, "s").await;
        let deserted = |id: &str, on_disconnect| {
            let run = RunRequest { is_owned: true, on_disconnect, ..request(id, "sleep 200\nemit done") };
            hub.start("s", run).expect("a run")
        };
        let stopped = deserted("stopped", OnDisconnect::Cancel(Duration::ZERO));
        let mut owner = stopped.own(0);
        within(owner.next()).await;
        drop(owner);
        let result = within(stopped.result()).await.expect("a result");
        assert_eq!(result.cells[0].failure.as_ref().expect("a failure").kind, FailureKind::Interrupted);
        let kept = deserted("kept", OnDisconnect::Continue);
        drop(kept.own(0));
        assert_eq!(within(kept.result()).await.expect("a result").text(), "done");
    });
}

#[test]
fn readers_that_do_not_read_have_bounded_room_and_hold_up_nobody_else() {
    on_one_thread(async {
        const BYTES_MAX: usize = 4 << 20;
        const DISPLAYS: usize = 16;
        let host = Host::open(config(8)).expect("a host");
        let unread = Unread::bounded(BYTES_MAX);
        let hub = |unread: Unread| {
            let mut hub_config = HubConfig::default();
            hub_config.unread = unread;
            Hub::on(host.clone(), config(8), hub_config, Arc::new(NoDoors)).expect("a hub")
        };
        let (stuck, reading) = (hub(unread.beside()), hub(unread));
        let code = format!("display {}\n", "x".repeat(512 << 10)).repeat(DISPLAYS);
        let owned = |id: &str| {
            let mut request = RunRequest { is_owned: true, ..request(id, &code) };
            request.cells[0].timeout = Some(Duration::from_secs(600));
            request
        };
        let displays = async |mut reader: Reader| {
            let mut displays = 0;
            while let Some(delivery) = reader.next().await {
                let Delivery::Event(event) = delivery else { panic!("{delivery:?}") };
                displays += usize::from(matches!(event.kind, EventKind::Display { .. }));
            }
            displays
        };
        let mut owners = Vec::new();
        for name in ["a", "b", "c"] {
            session(&stuck, name).await;
            owners.push(stuck.start(name, owned(name)).expect("a run").own(0));
        }
        // An account leaves as much free as it has, but for one event of each who has none.
        within(async {
            while stuck.unread_bytes() + (1 << 20) < BYTES_MAX / 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        session(&reading, "s").await;
        let run = reading.start("s", owned("r")).expect("a run");
        assert_eq!(within(displays(run.own(0))).await, DISPLAYS);
        assert!(stuck.unread_bytes() <= BYTES_MAX / 4 * 3, "{} bytes", stuck.unread_bytes());
        // Who reads on misses nothing, and then nothing is counted any more.
        for owner in owners {
            assert_eq!(within(displays(owner)).await, DISPLAYS);
        }
        assert_eq!((stuck.unread_bytes(), reading.unread_bytes()), (0, 0));
    });
}

#[test]
fn an_owner_that_lags_holds_the_guest_and_a_watcher_is_told_of_a_gap() {
    on_one_thread(async {
        let hub = hub();
        session(&hub, "s").await;
        let code = (0..20_000).map(|n| format!("status {n}\n")).collect::<String>();
        let held = hub.start("s", RunRequest { is_owned: true, ..request("held", &code) }).expect("a run");
        let owner = held.own(0);
        // The session's other runs tell that time has passed: the guest is held, and they wait behind it.
        tokio::time::timeout(Duration::from_millis(300), held.result()).await.expect_err("it waits for its owner");
        let words = within(read(owner)).await;
        assert!(words.iter().all(|word| !word.starts_with("gap")), "an owner misses nothing");
        let free = hub.start("s", request("free", &code)).expect("a run");
        within(free.result()).await.expect("a result");
        let words = within(read(free.watch(0))).await;
        assert!(words[0].starts_with("gap 0 "), "{:?}", &words[..2]);
        assert!(words.last().expect("an end").ends_with("end false"));
    });
}

#[test]
fn a_run_that_is_refused_says_why_and_its_readers_end() {
    on_one_thread(async {
        let hub = hub();
        session(&hub, "s").await;
        let run = hub.start("s", RunRequest { cells: Vec::new(), ..request("r", "") }).expect("it is accepted");
        assert_eq!(within(read(run.watch(0))).await, [""; 0]);
        assert_eq!(within(run.result()).await.expect_err("a refusal").code(), "request");
        let unknown = hub.start("other", request("r", "emit")).expect_err("no session");
        assert_eq!(unknown.code(), "session-not-open");
    });
}
