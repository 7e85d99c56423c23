//! Turns: what each share of processor time gets, and what waiting for a turn does to cells, on the probe guest.

use std::time::{Duration, Instant};

use cellar_engine::{
    Host, Limits, Session, SessionConfig,
    config::{CpuShare, MemoryBudget, SharedBudgets, WEIGHT},
    outcome::FailureKind,
};
use futures::StreamExt;

use crate::sessions::{config, host, open, outcome, result, run, text};

/// More kernels than any machine has cores, by so many times.
const CROWD: usize = 8;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs a test on as many threads as there are cores.
fn on_all_cores(test: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::spawn(test).await.expect("it ends well") });
}

fn of(host: &Host, share: &CpuShare, limits: Limits) -> Session {
    open(
        host,
        SessionConfig {
            shared: SharedBudgets { cpu: Some(share.clone()), ..SharedBudgets::default() },
            limits,
            ..SessionConfig::default()
        },
    )
}

/// Loops until it is dropped, in sessions of their own.
fn loops(host: &Host, share: &CpuShare, count: usize) -> Vec<tokio::task::JoinHandle<()>> {
    let limits = Limits { timeout: Duration::from_secs(600), ..Limits::default() };
    let each = || {
        let session = of(host, share, limits.clone());
        tokio::spawn(async move {
            let mut run = run(&session, "spin");
            while run.next().await.is_some() {}
        })
    };
    (0..count).map(|_| each()).collect()
}

#[test]
fn shares_get_processor_time_by_weight_whatever_number_of_loops_each_runs() {
    on_all_cores(async {
        let host = Host::open(config(u32::try_from(16 * cores()).expect("few"))).expect("a host");
        let (many, few, heavy) = (host.share(WEIGHT), host.share(WEIGHT), host.share(3 * WEIGHT));
        let crowd = loops(&host, &many, CROWD * cores());
        let others = loops(&host, &few, cores());
        let heavy_ones = loops(&host, &heavy, cores());
        let total = || many.used() + few.used() + heavy.used();
        // Until it is plain what each gets, however fast this machine is.
        while total() < Duration::from_secs(4) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let part = |share: &CpuShare| share.used().as_secs_f64() / total().as_secs_f64();
        let (many, few, heavy) = (part(&many), part(&few), part(&heavy));
        crowd.iter().chain(&others).chain(&heavy_ones).for_each(tokio::task::JoinHandle::abort);
        // A fifth, a fifth, three fifths.
        assert!((0.12..0.28).contains(&many), "{many} {few} {heavy}");
        assert!((0.12..0.28).contains(&few), "{many} {few} {heavy}");
        assert!((0.5..0.7).contains(&heavy), "{many} {few} {heavy}");
    });
}

#[test]
fn cells_of_others_answer_next_to_a_crowd_of_loops() {
    on_all_cores(async {
        let host = Host::open(config(u32::try_from(16 * cores()).expect("few"))).expect("a host");
        let (crowded, quiet) = (host.share(WEIGHT), host.share(WEIGHT));
        let crowd = loops(&host, &crowded, CROWD * cores());
        while crowded.used() < Duration::from_millis(200) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let session = of(&host, &quiet, Limits::default());
        let before = crowded.used();
        for _ in 0..50 {
            assert_eq!(text(&session, "emit here").await, "here");
        }
        // Where cells take their turn among the loops, each waits until all loops have had theirs.
        let meanwhile = (crowded.used() - before) / 50;
        let of_all = Duration::from_millis(10) * u32::try_from(CROWD * cores()).expect("few");
        crowd.iter().for_each(tokio::task::JoinHandle::abort);
        assert!(meanwhile < of_all / 2, "{meanwhile:?} of {of_all:?} a cell");
    });
}

#[test]
fn a_crowd_of_loops_leaves_kernels_for_others() {
    on_all_cores(async {
        let host = Host::open(config(8)).expect("a host");
        let (crowded, quiet, late) = (host.share(WEIGHT), host.share(WEIGHT), host.share(WEIGHT));
        // More loops than kernels, none of which ever gives its kernel back.
        let crowd = loops(&host, &crowded, 24);
        while crowded.used() < Duration::from_millis(200) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Others find a kernel, one after the other, and have it again.
        let sessions = [&quiet, &late, &quiet].map(|share| of(&host, share, Limits::default()));
        for round in 0..3 {
            for session in &sessions {
                assert_eq!(text(session, &format!("emit {round}")).await, round.to_string());
            }
        }
        crowd.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

#[test]
fn time_spent_waiting_for_a_turn_is_not_the_cells() {
    on_all_cores(async {
        let host = Host::open(config(u32::try_from(16 * cores()).expect("few"))).expect("a host");
        // How much it computes in a tenth of a second when nobody else does.
        let alone = open(&host, SessionConfig::default());
        let mut millions = 16;
        let (took, lasted) = loop {
            let began = Instant::now();
            let ran = result(&alone, &format!("spin {millions}")).await;
            let took = ran.cells[0].usage.as_ref().expect("it ended").cpu;
            if took >= Duration::from_millis(100) {
                break (took, began.elapsed());
            }
            millions *= 2;
        };
        // As one of a crowd it takes sixteen times as long, and may take ten times: what else the machine does slows down both.
        let limit = (lasted * 10).max(Duration::from_secs(1));
        let share = host.share(WEIGHT);
        let crowd = loops(&host, &share, 2 * CROWD * cores() - cores());
        let session = of(&host, &share, Limits { timeout: limit, ..Limits::default() });
        let ran = result(&session, &format!("set kept yes\nspin {millions}")).await;
        let cell = &ran.cells[0];
        assert!(cell.failure.is_none(), "{:?}", cell.failure);
        let usage = cell.usage.as_ref().expect("it ended");
        assert!(usage.cpu <= took * 4, "waiting is no processor time: {:?} of {took:?}", usage.cpu);
        // A cell that must stop has the grace for it in turns of its own: it is no reason to kill a kernel.
        crowd[CROWD..].iter().for_each(tokio::task::JoinHandle::abort);
        let failure = outcome(run(&session, "spin")).await.failure().expect("it failed");
        assert_eq!((failure.kind, failure.state_kept), (FailureKind::Timeout, true), "{}", failure.message);
        assert_eq!(text(&session, "get kept").await, "yes");
        crowd.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

#[test]
fn sessions_with_one_budget_share_its_memory_and_those_that_wake_have_what_they_had() {
    on_all_cores(async {
        let (host, memory) = (host(), MemoryBudget::new(48 << 20));
        let with = || {
            open(
                &host,
                SessionConfig {
                    shared: SharedBudgets { memory: Some(memory.clone()), ..SharedBudgets::default() },
                    ..SessionConfig::default()
                },
            )
        };
        let (first, second) = (with(), with());
        assert!(result(&first, "set kept yes\ngrow 32").await.cells[0].failure.is_none());
        assert!((32..48).contains(&(memory.used_bytes() >> 20)), "{}", memory.used_bytes());
        let refused = outcome(run(&second, "grow 32")).await.failure().expect("it failed");
        assert_eq!(refused.kind, FailureKind::Memory, "{}", refused.message);
        assert_eq!(text(&second, "emit on").await, "on");
        // What sleeps has none, and wakes even if others have taken it meanwhile.
        first.hibernate().await.expect("it sleeps");
        assert!(memory.used_bytes() < 8 << 20, "{}", memory.used_bytes());
        assert!(result(&second, "grow 32").await.cells[0].failure.is_none());
        assert_eq!(text(&first, "get kept").await, "yes");
        assert!(memory.used_bytes() > memory.limit_bytes(), "{}", memory.used_bytes());
        drop((first, second));
        while memory.used_bytes() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}
