//! What it takes to capture a session and to bring it back, against what it holds.

use std::time::{Duration, Instant};

use cellar_engine::{Language, Session, SessionConfig, Snapshot};

use crate::{
    Offer,
    lab::{LANGUAGES, Lab, Plan, trivial},
    table::{Line, Unit},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("snapshot and restore", snapshot_and_restore), ("sleep and wake", sleep)];

/// A cell that makes so many millions of bytes of objects, next to nothing of them alike.
fn data(language: Language, megabytes: u32) -> String {
    match language {
        Language::Python => format!("data = [n * 1.1 for n in range({})]", u64::from(megabytes) * 50_000),
        _ => format!("data = Array.from({{length: {}}}, (_, n) => [n * 1.1]); 1", u64::from(megabytes) * 10_000),
    }
}

fn session_with(lab: &Lab, megabytes: u32) -> Session {
    let session = lab.session();
    lab.run(&session, &data(lab.language, megabytes));
    session
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let began = Instant::now();
    let result = work();
    (began.elapsed(), result)
}

fn snapshot_and_restore(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for language in LANGUAGES {
        for megabytes in plan.pick([0, 1, 10, 100].as_slice(), &[0, 10]) {
            let lab = Lab::open(plan, language, 0);
            let session = session_with(&lab, *megabytes);
            let take = || lab.block_on(session.snapshot()).expect("a snapshot");
            let snapshot = take();
            let bytes = snapshot.to_bytes();
            let kept = snapshot.changed_bytes() as f64 / 1e6;
            let title = format!("{}, {kept:.1} MB changed", language.title());
            let (take_target, restore_target) =
                if *megabytes == 10 { (Some(10_000.0), Some(5_000.0)) } else { (None, None) };
            let what = format!("{title}: snapshot");
            lines.push(Line::time(what.clone(), &plan.sample(&what, || timed(take).0), take_target));
            let what = format!("{title}: to bytes");
            lines.push(Line::time(what.clone(), &plan.sample(&what, || timed(|| snapshot.to_bytes()).0), None));
            let restored = |snapshot: &Snapshot| {
                let restore = || lab.host.restore(snapshot, SessionConfig::default()).expect("a session");
                let (time, session) = timed(|| {
                    let session = restore();
                    lab.run(&session, trivial(language));
                    session
                });
                drop(session);
                lab.wait(Duration::from_millis(1));
                time
            };
            let what = format!("{title}: restore, and a cell");
            lines.push(Line::time(what.clone(), &plan.sample(&what, || restored(&snapshot)), restore_target));
            let what = format!("{title}: restore from bytes, and a cell");
            let from_bytes = || {
                let (time, snapshot) = timed(|| Snapshot::from_bytes(&bytes).expect("a snapshot"));
                time + restored(&snapshot)
            };
            lines.push(Line::time(what.clone(), &plan.sample(&what, from_bytes), restore_target));
            let size = bytes.len() as f64 / 1e6;
            let target = (*megabytes == 0).then_some(0.2);
            lines.push(Line::new(format!("{title}: bytes of a snapshot"), Unit::Megabytes, size, size, target));
        }
    }
    lines
}

fn sleep(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for language in LANGUAGES {
        let lab = Lab::open(plan, language, 0);
        let session = session_with(&lab, 1);
        let what = format!("{}, 1 MB of data: wake, and a cell", language.title());
        let samples = plan.sample(&what, || {
            lab.block_on(session.hibernate()).expect("asleep");
            lab.time(&session, trivial(language))
        });
        lines.push(Line::time(what, &samples, 5_000.0));
    }
    lines
}
