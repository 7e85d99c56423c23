//! Time until an endless cell is stopped, and until its session is useful again.

use std::time::{Duration, Instant};

use cellar_engine::{Cell, Language, Limits, Session, outcome::FailureKind};

use crate::{
    Offer,
    lab::{LANGUAGES, Lab, PAUSE, Plan, trivial},
    table::{Line, Samples},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("soft stop", soft_stop), ("restart", restart)];

/// The shortest that a cell may have.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A cell that never ends, and one that does not even when told to.
fn endless(language: Language) -> (&'static str, &'static str) {
    match language {
        Language::Python => {
            ("while True: pass", "while True:\n    try:\n        while True: pass\n    except BaseException: pass")
        }
        _ => ("while (true);", "for (;;) try { while (true); } catch {}"),
    }
}

/// Returns how much later than its timeout an endless cell ends; the session keeps its state.
pub(crate) fn time_soft_stop(lab: &Lab, session: &Session) -> Duration {
    lab.run(session, "kept = 41");
    let cell = Cell { timeout: Some(TIMEOUT), ..Cell::new(lab.language, endless(lab.language).0) };
    let began = Instant::now();
    let result = lab.run_any(session, cell);
    let late = began.elapsed().saturating_sub(TIMEOUT);
    let failure = result.failure.expect("an endless cell fails");
    assert_eq!((failure.kind, failure.state_kept), (FailureKind::Timeout, true), "{failure:?}");
    late
}

fn soft_stop(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for language in LANGUAGES {
        let lab = Lab::open(plan, language);
        let (mut late, mut cancelled) = (Samples::default(), Samples::default());
        for _ in 0..plan.pick(8, 2) {
            let session = lab.session();
            late.push(time_soft_stop(&lab, &session));

            let run = session.run(vec![Cell::new(language, endless(language).0)]).expect("a run");
            let canceller = run.canceller();
            // Not a whole number of ticks, so that all phases of the ticker are met.
            let stopper = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(53));
                let began = Instant::now();
                canceller.cancel();
                began
            });
            lab.block_on(run.collect_result());
            cancelled.push(stopper.join().expect("the canceller does not panic").elapsed());
            assert_eq!(lab.value(&session, "kept + 1"), "42");
        }
        let title = language.title();
        lines.push(Line::time(format!("{title}: soft stop, past the deadline by"), &late, 20_000.0));
        lines.push(Line::time(format!("{title}: cancelled loop ends after"), &cancelled, None));
    }
    lines
}

fn restart(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for language in LANGUAGES {
        let lab = Lab::open(plan, language).with_pauses();
        let limits = Limits { grace: Duration::from_millis(50), ..Limits::default() };
        let (mut ended, mut again) = (Samples::default(), Samples::default());
        for _ in 0..plan.pick(8, 2) {
            let session = lab.session_with(limits.clone());
            let cell = Cell { timeout: Some(TIMEOUT), ..Cell::new(language, endless(language).1) };
            let began = Instant::now();
            let result = lab.run_any(&session, cell);
            ended.push(began.elapsed().saturating_sub(TIMEOUT + limits.grace));
            let failure = result.failure.expect("an endless cell fails");
            // JavaScript cannot catch a stop, so there it stays soft.
            if !failure.state_kept {
                again.push(lab.time(&session, trivial(language)));
            }
        }
        let title = language.title();
        if again.median().is_finite() {
            lines.push(Line::time(format!("{title}: hard stop, past deadline and grace by"), &ended, None));
            lines.push(Line::time(format!("{title}: first result after a hard stop"), &again, None));
        }
        let samples = plan.sample(&format!("{title} reset"), || {
            let session = lab.session();
            lab.run(&session, trivial(language));
            lab.wait(PAUSE);
            let began = Instant::now();
            session.reset(language);
            lab.run(&session, trivial(language));
            began.elapsed()
        });
        lines.push(Line::time(format!("{title}: first result after a reset"), &samples, None));
    }
    lines
}
