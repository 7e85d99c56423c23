//! Output of code while none of its session's cells runs.

use cellar_engine::{Cell, CellId, EventKind, Language, Session, SessionConfig, background::Background};
use futures::StreamExt;

use super::snapshots::host;
use crate::support::PATIENCE;

async fn run(session: &Session, language: Language, code: &str) -> Vec<EventKind> {
    let run = session.run(vec![Cell::new(language, code)]).expect("a run");
    run.map(|event| event.kind).collect().await
}

fn told(events: &[EventKind]) -> Vec<(u32, bool, &str)> {
    let told = events.iter().filter_map(|kind| match kind {
        EventKind::Background { cell, is_stderr, text, .. } => Some((cell.0, *is_stderr, text.as_str())),
        _ => None,
    });
    told.collect()
}

/// Late output of a language: its cell, the text on standard output, and a part of the text on standard error.
const LATE: [(Language, &str, &str); 2] = [
    (
        Language::Python,
        "import asyncio\ndef late():\n    print('late')\n    raise ValueError('too late')\n\
         timer = asyncio.get_running_loop().call_later(0.2, late)",
        "ValueError: too late",
    ),
    (
        Language::JavaScript,
        "setTimeout(() => { console.log('late'); throw new RangeError('too late'); }, 2500); undefined",
        "RangeError: too late",
    ),
];

#[test]
fn what_timers_and_tasks_write_between_cells_is_told() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (language, code, error) in LATE {
            let host = host();
            let session = host.session(SessionConfig::default()).expect("a session");
            let mut background = session.background();
            assert!(told(&run(&session, language, code).await).is_empty(), "{language:?}");
            let mut heard = Vec::new();
            while !heard.iter().any(|each: &Background| each.is_stderr && each.text.contains(error)) {
                let next = tokio::time::timeout(PATIENCE, background.next()).await;
                heard.push(next.expect("in time").expect("an open session"));
            }
            assert_eq!(heard[0].cell, CellId(1), "{heard:?}");
            assert_eq!((heard[0].is_stderr, heard[0].text.as_str()), (false, "late\n"), "{language:?}");
            // The next cell is told, and its result says it.
            let events = run(&session, language, "1").await;
            let told = told(&events);
            assert_eq!(told[0], (1, false, "late\n"), "{events:?}");
            assert!(told.iter().any(|(_, is_stderr, text)| *is_stderr && text.contains(error)), "{events:?}");
            let after = session.run(vec![Cell::new(language, "2")]).expect("a run").collect_result().await;
            assert_eq!(after.text(), "2", "it is told once");
        }
    });
}

#[test]
fn a_result_shows_what_was_written_between_cells() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (language, code, error) = LATE[1];
        let session = host().session(SessionConfig::default()).expect("a session");
        let mut background = session.background();
        run(&session, language, code).await;
        while !background.next().await.expect("an open session").text.contains(error) {}
        let text = session.run(vec![Cell::new(language, "1")]).expect("a run").collect_result().await.text();
        assert!(text.starts_with("[<cell 1> wrote this after it had ended]\nlate\n"), "{text}");
        assert!(text.contains(error) && text.ends_with("\n1"), "{text}");
    });
}

/// Code of two cells: one that leaves a task, and one that runs while that writes and displays.
const LEFT: [(Language, &str, &str); 2] = [
    (
        Language::Python,
        "import asyncio\nasync def tick():\n    for n in range(2):\n        await asyncio.sleep(0.1)\n        print('tick', n)\n    \
         display({'late': [1]})\ntask = asyncio.create_task(tick())",
        "await task; print('own')",
    ),
    (
        Language::JavaScript,
        // Timers that are due within two seconds are waited for.
        "const ticking = (async () => { await new Promise((done) => setTimeout(done, 2500)); \
         for (const n of [0, 1]) console.log('tick', n); display({late: [1]}); })(); undefined",
        "await ticking; console.log('own')",
    ),
];

#[test]
fn what_tasks_write_while_another_cell_runs_is_not_given_out_as_its_own() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (language, leave, wait) in LEFT {
            let session = host().session(SessionConfig::default()).expect("a session");
            let cells = [leave, wait].map(|code| Cell::new(language, code)).to_vec();
            let events: Vec<EventKind> = session.run(cells).expect("a run").map(|event| event.kind).collect().await;
            let late: String = told(&events).iter().map(|(cell, _, text)| format!("{cell}:{text}|")).collect();
            assert_eq!(late.replace('|', "").replace("1:", ""), "tick 0\ntick 1\n", "{language:?}: {late}");
            let own: String = events
                .iter()
                .filter_map(|kind| if let EventKind::Stdout { text, .. } = kind { Some(text.as_str()) } else { None })
                .collect();
            assert_eq!(own, "own\n", "{language:?}");
            // The display stands behind its mark.
            let place = events.iter().position(|kind| matches!(kind, EventKind::Display { .. })).expect("a display");
            let EventKind::Background { cell, text, .. } = &events[place - 1] else { panic!("{events:?}") };
            assert_eq!((cell.0, text.as_str()), (1, ""), "{language:?}");
        }
    });
}

#[test]
fn what_tasks_display_between_cells_is_shown_by_the_next() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (language, leave, _) in LEFT {
            let session = host().session(SessionConfig::default()).expect("a session");
            let mut background = session.background();
            run(&session, language, leave).await;
            while !background.next().await.expect("an open session").text.contains("late") {}
            let result = session.run(vec![Cell::new(language, "1")]).expect("a run").collect_result().await;
            assert_eq!(result.jsons().collect::<Vec<_>>().len(), 1, "{language:?}: {}", result.text());
            let text = result.text();
            assert!(text.contains("[<cell 1> displayed this after it had ended]\n"), "{language:?}: {text}");
            let again = session.run(vec![Cell::new(language, "2")]).expect("a run").collect_result().await;
            assert_eq!((again.text().as_str(), again.jsons().count()), ("2", 0), "{language:?}");
        }
    });
}
