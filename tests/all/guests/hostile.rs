//! Programs that mean harm, or nothing at all: the session of JavaScript goes on as it was.

use std::time::Duration;

use cellar_engine::{
    Cell, EventKind, Language, Limits, Outcome, Session, SessionConfig,
    outcome::{Failure, FailureKind},
};
use futures::StreamExt;
use proptest::{
    prelude::{any, prop},
    sample::Index,
    strategy::Strategy,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::snapshots::{host, on_runtime, text};

/// Makes the calls; see there.
const BUILTINS: &str = include_str!("../../../fixtures/builtins.js");
/// Processor time that a call may take: ten times of what the slowest take on a quiet machine.
const LONGEST: Duration = Duration::from_secs(20);
/// Tests that share the calls, to run at the same time.
const PARTS: usize = 4;
/// Programs to make others of.
const PROGRAMS: [&str; 6] = [
    include_str!("../../../fixtures/transcripts/javascript/cells.js"),
    include_str!("../../../fixtures/transcripts/javascript/errors.js"),
    include_str!("../../../fixtures/transcripts/javascript/scope.js"),
    include_str!("../../../fixtures/transcripts/javascript/syntax.js"),
    include_str!("../../../fixtures/transcripts/limits/depth.js"),
    include_str!("../../../fixtures/oracle/javascript/inspect.js"),
];
/// Mutants that are made at least; `PROPTEST_CASES` asks for more.
const MUTANTS: u32 = 500;

/// A session whose cells get little time, and as long as they like to end when it is over.
fn impatient(cell: Duration) -> Session {
    let limits =
        Limits { timeout: cell, grace: Duration::from_secs(120), memory_bytes: 192 << 20, ..Limits::default() };
    host().session(SessionConfig { limits, ..SessionConfig::default() }).expect("a session")
}

/// Runs a cell and returns its failure, if it failed, and the processor time that it took.
async fn ended(session: &Session, code: &str) -> (Option<Failure>, Duration) {
    let mut run = session.run(vec![Cell::new(Language::JavaScript, code)]).expect("a run");
    let mut ended = None;
    while let Some(event) = run.next().await {
        if let EventKind::CellFinished { outcome, usage, .. } = event.kind {
            let failure = match outcome {
                Outcome::Failed(failure) => Some(*failure),
                Outcome::Complete | Outcome::Exited(_) => None,
            };
            ended = Some((failure, usage.cpu));
        }
    }
    ended.expect("an end")
}

/// Makes every call whose number has the remainder `part` when it is divided by [`PARTS`].
fn no_call_outlasts_its_time(part: usize) {
    on_runtime(async {
        let session = impatient(Duration::from_secs(1));
        let listed = session
            .run(vec![Cell { timeout: Some(Duration::from_secs(60)), ..Cell::new(Language::JavaScript, BUILTINS) }]);
        let calls: usize = listed.expect("a run").collect_result().await.text().trim().parse().expect("how many calls");
        assert!(calls > 5000, "{calls} calls");
        let mut stopped = 0;
        for call in (part..calls).step_by(PARTS) {
            let (failure, took) = ended(&session, &format!("(0, eval)(calls[{call}])")).await;
            if took > LONGEST || failure.as_ref().is_some_and(|failure| !failure.state_kept) {
                let call = text(&session, Language::JavaScript, &format!("calls[{call}]")).await;
                panic!("`{call}` took {took:?} and ended with {failure:?}");
            }
            stopped += u32::from(failure.is_some_and(|failure| failure.kind == FailureKind::Timeout));
        }
        assert!(stopped > 5, "only {stopped} calls had to be stopped");
        assert_eq!(text(&session, Language::JavaScript, "kept.get('kept')").await, "yes");
    });
}

#[test]
fn no_builtin_of_javascript_outlasts_its_time_first() {
    no_call_outlasts_its_time(0);
}

#[test]
fn no_builtin_of_javascript_outlasts_its_time_second() {
    no_call_outlasts_its_time(1);
}

#[test]
fn no_builtin_of_javascript_outlasts_its_time_third() {
    no_call_outlasts_its_time(2);
}

#[test]
fn no_builtin_of_javascript_outlasts_its_time_fourth() {
    no_call_outlasts_its_time(3);
}

/// Edit of a program: its kind, its place, and the program and piece to insert.
type Edit = (u8, Index, Index, Index);

/// A program made of pieces of others.
fn mutant(programs: &[Vec<&str>], first: Index, edits: &[Edit]) -> String {
    let mut program = programs[first.index(programs.len())].clone();
    for (kind, at, other, piece) in edits {
        let donor = &programs[other.index(programs.len())];
        let piece = donor[piece.index(donor.len())];
        let at = at.index(program.len());
        match kind {
            0 => _ = program.remove(at),
            1 => program.insert(at, piece),
            2 => program[at] = piece,
            _ => program.truncate(at),
        }
        if program.is_empty() {
            program.push(piece);
        }
    }
    program.concat()
}

/// Words, blanks and signs, in order.
fn pieces(program: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = program;
    while let Some(first) = rest.chars().next() {
        let is_word = |each: char| each.is_alphanumeric() || each == '_';
        let end =
            if is_word(first) { rest.find(|each| !is_word(each)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (piece, left) = rest.split_at(end);
        found.push(piece);
        rest = left;
    }
    found
}

#[test]
fn broken_programs_fail_by_name_and_leave_the_session_as_it_was() {
    let programs: Vec<Vec<&str>> = PROGRAMS
        .iter()
        .flat_map(|program| program.split("// %%"))
        .map(|cell| pieces(cell.split_once('\n').map_or(cell, |(_, code)| code)))
        .filter(|pieces| !pieces.is_empty())
        .collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let session = runtime.block_on(async { impatient(Duration::from_secs(1)) });
    runtime.block_on(async {
        let (failure, _) = ended(&session, "const untouched = Object.freeze({ answer: 42 });").await;
        assert_eq!(failure, None);
    });
    let edit = (0_u8..4, any::<Index>(), any::<Index>(), any::<Index>());
    let mutants =
        (any::<Index>(), prop::collection::vec(edit, 1..4)).prop_map(|(first, edits)| mutant(&programs, first, &edits));
    let defaults = Config::default();
    let config = Config { cases: defaults.cases.max(MUTANTS), failure_persistence: None, ..defaults };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let tried = runner.run(&mutants, |program| {
        if let (Some(failure), _) = runtime.block_on(ended(&session, &program)) {
            assert!(failure.state_kept, "{}", failure.message);
            assert!(!failure.name.is_empty(), "{failure:?}");
        }
        Ok(())
    });
    assert_eq!(tried, Ok(()));
    assert_eq!(runtime.block_on(text(&session, Language::JavaScript, "untouched.answer + 1")), "43");
}
