//! Cells that do not end, stopped in every way at any moment while something else happens to their session.
//!
//! `CELLAR_STOPS_RACED` says how many; `CELLAR_STOPS` how guests are stopped.

use std::{sync::Arc, time::Duration};

use cellar_engine::{Host, Language, Limits, SessionConfig};
use futures::{StreamExt, stream};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::sessions::{config, open, outcome, run, text, until_started};

/// Sessions at the same time.
const WORKERS: usize = 8;
/// More than the sessions at the same time need: kernels that died are given back a moment later.
const KERNELS_MAX: u32 = 64;

#[test]
fn stops_race_with_everything_and_leave_nothing() {
    let stops = std::env::var("CELLAR_STOPS_RACED").map_or(300, |count| count.parse().expect("a number"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let host = Arc::new(Host::open(config(KERNELS_MAX)).expect("a host"));
        let races = stream::iter(0..stops).map(|number| tokio::spawn(race(host.clone(), number)));
        races.for_each_concurrent(WORKERS, async |race| race.await.expect("a race goes well")).await;
        while host.kernels() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

/// Stops an endless cell of a new session in one of the ways that there are, and has the session do something after it.
async fn race(host: Arc<Host>, number: u64) {
    let mut random = StdRng::seed_from_u64(number);
    let limits = Limits { grace: Duration::from_millis(random.random_range(1..5)), ..Limits::default() };
    let session = open(&host, SessionConfig { limits, ..SessionConfig::default() });
    // One asks whether it must stop, the other never does.
    let code = ["spin", "spin-hard"][random.random_range(0..2)];
    let mut endless = run(&session, code);
    until_started(&mut endless).await;
    tokio::time::sleep(Duration::from_micros(random.random_range(0..15_000))).await;
    match random.random_range(0..5) {
        0 => drop(endless),
        1 => {
            endless.canceller().cancel();
            outcome(endless).await;
        }
        2 => {
            session.reset(Language::Probe);
            outcome(endless).await;
        }
        3 => {
            // Its snapshot waits for the cell, which ends meanwhile.
            let canceller = endless.canceller();
            let (snapshot, _) = futures::join!(session.snapshot(), async {
                canceller.cancel();
                outcome(endless).await
            });
            snapshot.expect("a snapshot");
        }
        _ => return drop((session, endless)),
    }
    assert_eq!(text(&session, "emit alive").await, "alive", "race {number}, after `{code}`");
}
