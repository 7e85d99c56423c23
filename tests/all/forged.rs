//! Snapshots that somebody has changed and sealed again: whatever a kernel is made of, it harms nobody but itself.

use std::time::Duration;

use cellar_engine::{Cell, Language, Limits, SessionConfig, Snapshot};
use twox_hash::XxHash3_128;

use crate::sessions::{host, on_one_thread, open, result, text};

const CHECKSUM_BYTES: usize = 16;
const ROUNDS: u64 = 150;

/// Numbers that are the same each time.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

#[test]
fn a_forged_memory_harms_nobody_but_its_own_session() {
    on_one_thread(async {
        let host = host();
        let session = open(&host, SessionConfig::default());
        let noise: String =
            (0..4_000_u64).map(|word| format!("{:016x}", XxHash3_128::oneshot(&word.to_le_bytes()))).collect();
        assert!(!result(&session, &format!("set name Ada\nset noise {noise}")).await.is_error);
        let bytes = session.snapshot().await.expect("a snapshot").to_bytes();
        let body = &bytes[..bytes.len() - CHECKSUM_BYTES];
        let limits = Limits { timeout: Duration::from_secs(1), grace: Duration::from_millis(50), ..Limits::default() };
        let mut restored = 0;
        for round in 0..ROUNDS {
            let mut forged = body.to_vec();
            let mut number = numbers(round);
            for _ in 0..=number(8) {
                let place = 16 + number(forged.len() - 16);
                forged[place] ^= 1 << number(8);
            }
            forged.extend(XxHash3_128::oneshot(&forged).to_le_bytes());
            let Ok(snapshot) = Snapshot::from_bytes(&forged) else { continue };
            let config = SessionConfig { limits: limits.clone(), ..SessionConfig::default() };
            let Ok(victim) = host.restore(&snapshot, config) else { continue };
            for code in ["get name", "set other 1\nget noise", "write f x"] {
                let Ok(run) = victim.run(vec![Cell::new(Language::Probe, code)]) else { continue };
                run.collect_result().await;
            }
            restored += 1;
            if round % 10 == 0 {
                assert_eq!(text(&session, "get name").await, "Ada");
            }
        }
        assert!(restored > ROUNDS / 10, "only {restored} of {ROUNDS} were restored");
    });
}
