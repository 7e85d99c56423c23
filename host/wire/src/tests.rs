use std::{fs, path::PathBuf, time::Duration};

use cellar_core::{
    cell::{Cell, CellId, Language},
    event::{Bridge, Event, EventKind, Fetch, KeptText, Scalar},
    mime::{MimeBundle, MimeData},
    origin::{DatasetRef, DerivedFrom, FetchRef, Origin},
    outcome::{Failure, FailureCode, FailureKind, Outcome, Usage},
};
use cellar_results::result::RunResult;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn sample(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/wire").join(name)
}

/// Compares with a sample; with `CELLAR_BLESS=1` rewrites it.
fn check(name: &str, found: &str) {
    let path = sample(name);
    if std::env::var_os("CELLAR_BLESS").is_some() {
        fs::write(&path, found).expect("written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{}", path.display());
}

fn bundle() -> MimeBundle {
    MimeBundle(vec![
        ("image/png".to_owned(), MimeData::Binary(vec![0x89, b'P', b'N', b'G'])),
        ("application/json".to_owned(), MimeData::Text("{\"b\":[1,2.5,null],\"a\":\"é\"}".to_owned())),
        ("image/svg+xml".to_owned(), MimeData::Text("<svg/>".to_owned())),
        ("text/markdown".to_owned(), MimeData::Text("# Hi".to_owned())),
        ("text/plain".to_owned(), MimeData::Text("Hi".to_owned())),
    ])
}

fn failure() -> Failure {
    Failure {
        code: Some(FailureCode::Busy),
        kind: FailureKind::Raised,
        name: "ZeroDivisionError".to_owned(),
        message: "division by zero".to_owned(),
        line: Some(2),
        column: Some(5),
        snippet: Some("x = 1 / 0".to_owned()),
        pointer: Some("    ~~^~~".to_owned()),
        traceback:
            "Traceback (most recent call last):\n  File \"<cell 2>\", line 2\nZeroDivisionError: division by zero"
                .to_owned(),
        state_kept: false,
    }
}

fn kept(digits: &str) -> KeptText {
    KeptText { id: digits.repeat(16), bytes: 70_000, is_complete: true, path: Some("/tmp/a".into()) }
}

/// One run in which everything happens.
fn fetch() -> Fetch {
    Fetch {
        connector: "fred".to_owned(),
        fetch: "GDPC1".to_owned(),
        arguments: "{\"series_id\":\"GDPC1\"}".to_owned(),
        fetched_at: 1_767_225_600_123_456_000,
        is_cached: false,
        duration: Duration::from_micros(1_500),
        rows: 314,
        columns: vec![("date".to_owned(), "date".to_owned()), ("value".to_owned(), "float64".to_owned())],
        head: "[{\"date\":\"1947-01-01\",\"value\":2182.681}]".to_owned(),
        tail: "[{\"date\":\"2025-04-01\",\"value\":null}]".to_owned(),
        artifact: Some("0f".repeat(16)),
        notice: None,
        error: None,
    }
}

fn origin() -> Origin {
    Origin {
        producer: "notebooks/fed.py".to_owned(),
        cell: CellId(7),
        language: Language::Python,
        stamped_at: 1_767_225_600_123_456_000,
        datasets: vec![DatasetRef { name: "inflation_monthly".to_owned(), version: 3, artifact: "1f".repeat(16) }],
        fetches: vec![FetchRef { connector: "fred".to_owned(), fetch: "GDPC1".to_owned(), artifact: None }],
        derived_from: vec![DerivedFrom {
            name: "raw".to_owned(),
            producer: "notebooks/load.py".to_owned(),
            cell: CellId(2),
        }],
    }
}

fn failed_fetch() -> Fetch {
    Fetch {
        rows: 0,
        columns: Vec::new(),
        head: "[]".to_owned(),
        tail: String::new(),
        artifact: None,
        error: Some("fred.GDPC1: the source does not answer".to_owned()),
        ..fetch()
    }
}

fn events() -> Vec<Event> {
    let cell = Cell {
        title: Some("load".to_owned()),
        timeout: Some(Duration::from_secs(5)),
        reset: true,
        ..Cell::new(Language::Python, "print(1)")
    };
    let text = |text: &str| text.to_owned();
    let fields = vec![
        (text("path"), Scalar::Text(text("a.csv"))),
        (text("bytes"), Scalar::Integer(12)),
        (text("share"), Scalar::Number(0.5)),
        (text("new"), Scalar::Boolean(true)),
    ];
    let usage = |fuel| Usage { fuel, cpu: Duration::from_micros(1_250), memory_peak_bytes: 1 << 20 };
    let kinds = vec![
        EventKind::RunStarted { session: text("s-1"), cells: vec![cell, Cell::new(Language::JavaScript, "1 / 0")] },
        EventKind::CellStarted { index: 0, cell: CellId(7) },
        EventKind::Stdout { index: 0, text: text("1\n") },
        EventKind::Stderr { index: 0, text: text("warning\n") },
        EventKind::Display { index: 0, data: bundle(), display_id: Some(text("d")), is_value: false },
        EventKind::UpdateDisplay { index: 0, data: bundle(), display_id: text("d") },
        EventKind::Display { index: 0, data: MimeBundle::default(), display_id: None, is_value: true },
        EventKind::ClearOutput { index: 0, wait: true },
        EventKind::Status { index: 0, op: text("read"), fields },
        EventKind::CallStarted { index: 0, call: 3, bridge: Bridge::Tool, name: text("add") },
        EventKind::CallFinished { index: 0, call: 3, duration: Duration::from_micros(1_500), error: None },
        EventKind::CallFinished { index: 0, call: 4, duration: Duration::from_secs(2), error: Some(text("no")) },
        EventKind::CallStarted { index: 0, call: 5, bridge: Bridge::Connector, name: text("fred.GDPC1") },
        EventKind::Fetched { index: 0, call: 5, fetch: Box::new(fetch()) },
        EventKind::Fetched {
            index: 0,
            call: 6,
            fetch: Box::new(Fetch {
                is_cached: true,
                tail: String::new(),
                artifact: None,
                notice: Some(text("the rows were not kept: the disk is full")),
                ..fetch()
            }),
        },
        EventKind::Fetched { index: 0, call: 7, fetch: Box::new(failed_fetch()) },
        EventKind::Bound {
            index: 0,
            origin: Box::new(origin()),
            names: vec![text("df"), text("π")],
            deleted: vec![text("old")],
        },
        EventKind::InputRequest {
            index: 0,
            request_id: text("r-1"),
            prompt: text("name? "),
            idle_timeout: Duration::from_secs(300),
        },
        EventKind::Stdout { index: 0, text: text("after\n") },
        EventKind::Display { index: 0, data: bundle(), display_id: None, is_value: false },
        EventKind::CellFinished {
            index: 0,
            outcome: Outcome::Complete,
            duration: Duration::from_millis(12),
            usage: usage(Some(1_000)),
            kept: Some(kept("0f")),
        },
        EventKind::CellStarted { index: 1, cell: CellId(8) },
        EventKind::Background { index: 1, cell: CellId(3), is_stderr: true, text: text("late\n"), left_out: 5 },
        EventKind::Background { index: 1, cell: CellId(4), is_stderr: false, text: text("later"), left_out: 0 },
        EventKind::Fork {
            index: 1,
            fork: text("fork-1"),
            kind: Box::new(EventKind::Stdout { index: 0, text: text("elsewhere") }),
        },
        EventKind::CellFinished {
            index: 1,
            outcome: Outcome::Failed(Box::new(failure())),
            duration: Duration::from_micros(12_345),
            usage: usage(None),
            kept: None,
        },
        EventKind::RunFinished { is_error: true, kept: Some(KeptText { path: None, ..kept("a1") }) },
    ];
    kinds.into_iter().enumerate().map(|(seq, kind)| Event { seq: seq as u64, kind }).collect()
}

#[test]
fn every_event_has_its_sample() {
    let lines: Vec<String> =
        events().iter().map(|event| serde_json::to_string(&EventJson::from(event)).expect("JSON") + "\n").collect();
    check("events.ndjson", &lines.concat());
}

#[test]
fn every_event_survives_the_way_there_and_back() {
    for event in events() {
        let text = serde_json::to_string(&Line::Event(EventJson::from(&event))).expect("JSON");
        match serde_json::from_str(&text) {
            Ok(Line::Event(read)) => assert_eq!(Event::from(read), event, "{text}"),
            other => panic!("{text} was read as {other:?}"),
        }
    }
}

#[test]
fn the_result_has_its_sample() {
    let mut result = RunResult::default();
    events().iter().for_each(|event| result.apply(event));
    check("result.json", &(serde_json::to_string_pretty(&ResultJson::from(&result)).expect("JSON") + "\n"));
}

#[test]
fn a_truncated_result_has_its_sample() {
    let mut result = RunResult::default();
    let started = EventKind::RunStarted { session: "s".to_owned(), cells: vec![Cell::new(Language::Python, "")] };
    let text = (0..4_000).map(|n| format!("{n}\n")).collect();
    for (seq, kind) in [started, EventKind::Stdout { index: 0, text }].into_iter().enumerate() {
        result.apply(&Event { seq: seq as u64, kind });
    }
    let value = serde_json::to_value(ResultJson::from(&result)).expect("JSON");
    check("truncation.json", &(serde_json::to_string_pretty(&value["details"]["meta"]).expect("JSON") + "\n"));
}

#[test]
fn refusals_and_results_are_told_from_events() {
    let refusal = Refusal { code: "invalid".to_owned(), message: "no".to_owned(), hint: Some("yes".to_owned()) };
    let text = serde_json::to_string(&Line::Refusal(RefusalLine { error: refusal.clone() })).expect("JSON");
    assert_eq!(text, r#"{"type":"error","error":{"code":"invalid","message":"no","hint":"yes"}}"#);
    assert!(matches!(serde_json::from_str(&text), Ok(Line::Refusal(line)) if line.error == refusal));
    let text =
        serde_json::to_string(&Line::Result(Box::new(ResultLine { result: ResultJson::from(&RunResult::default()) })));
    let text = text.expect("JSON");
    assert!(text.starts_with(r#"{"type":"result","result":{"content":[{"type":"text","#), "{text}");
    assert!(matches!(serde_json::from_str(&text), Ok(Line::Result(_))));
}

#[test]
fn a_run_survives_the_way_there_and_back() {
    let EventKind::RunStarted { cells, .. } = events().remove(0).kind else { panic!("the first event") };
    let text = run_json(&cells).to_string();
    assert_eq!(run_from_json(text.as_bytes(), "the run").expect("valid"), cells);
    check("run.json", &(serde_json::to_string_pretty(&run_json(&cells)).expect("JSON") + "\n"));
}

#[test]
fn whole_numbers_may_be_written_with_a_point() {
    let timeout = |text: &str| {
        let run = format!(r#"{{"cells": [{{"language": "py", "code": "1", "timeout": {text}}}]}}"#);
        run_from_json(run.as_bytes(), "the run").map(|cells| cells[0].timeout)
    };
    assert_eq!(timeout("30.0").expect("JSON Schema's integer"), Some(Duration::from_secs(30)));
    assert_eq!(timeout("3e1").expect("JSON Schema's integer"), Some(Duration::from_secs(30)));
    assert_eq!(timeout("1.5").expect("a fraction"), Some(Duration::from_millis(1_500)));
    assert!(timeout("0.05").is_err() && timeout("-0.5").is_err() && timeout("1e300").is_err());
}

/// Any JSON value of a modest size, as its canonical text.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    value.prop_map(|value| value.to_string())
}

fn any_bundle() -> impl Strategy<Value = MimeBundle> {
    let text = |mime_type: &'static str| any::<String>().prop_map(move |text| (mime_type, MimeData::Text(text)));
    let bytes = |mime_type: &'static str| {
        prop::collection::vec(any::<u8>(), 0..64).prop_map(move |bytes| (mime_type, MimeData::Binary(bytes)))
    };
    let json = any_json().prop_map(|text| ("application/json", MimeData::Text(text)));
    let all = (bytes("image/png"), bytes("application/pdf"), json, text("image/svg+xml"), text("text/plain"));
    (all, prop::collection::vec(any::<bool>(), 5)).prop_map(|((a, b, c, d, e), kept)| {
        let pairs = [a, b, c, d, e].into_iter().zip(kept).filter(|(_, is_kept)| *is_kept);
        MimeBundle(pairs.map(|((name, data), _)| (name.to_owned(), data)).collect())
    })
}

proptest! {
    #[test]
    fn any_bundle_survives_the_way_there_and_back(bundle in any_bundle(), id in any::<Option<String>>()) {
        let event = Event { seq: 1, kind: EventKind::Display { index: 0, data: bundle, display_id: id, is_value: false } };
        let text = serde_json::to_string(&EventJson::from(&event)).expect("JSON");
        let read: EventJson = serde_json::from_str(&text).expect("an event");
        prop_assert_eq!(Event::from(read), event);
    }

    /// No sequence of bytes makes the reader of runs do anything but accept or refuse.
    #[test]
    fn any_bytes_are_a_run_or_a_refusal(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = run_from_json(&bytes, "the run");
    }

    /// The same for any JSON in any place of a run.
    #[test]
    fn any_value_in_a_run_is_refused_with_paths(value in any_json(), key in "[a-z]{0,8}") {
        for text in [
            value.clone(),
            format!("{{\"cells\": {value}}}"),
            format!("{{\"cells\": [{value}]}}"),
            format!("{{\"cells\": [{{\"language\": \"py\", \"code\": {value}, \"{key}\": {value}}}]}}"),
        ] {
            if let Err(refused) = run_from_json(text.as_bytes(), "the run") {
                prop_assert!(refused.problems.iter().all(|line| line.starts_with('$') && !line.contains('\n')));
            }
        }
    }
}

#[test]
fn what_json_cannot_say_is_said_otherwise() {
    let odd = MimeBundle(vec![
        ("application/json".to_owned(), MimeData::Text("{not json".to_owned())),
        ("application/pdf".to_owned(), MimeData::Binary(vec![1, 2])),
    ]);
    let fields = vec![("nan".to_owned(), Scalar::Number(f64::NAN)), ("op".to_owned(), Scalar::Integer(1))];
    let display = EventKind::Display { index: 0, data: odd, display_id: None, is_value: false };
    let status = EventKind::Status { index: 0, op: "x".to_owned(), fields };
    let json = |kind| serde_json::to_value(EventJson::from(&Event { seq: 0, kind })).expect("JSON");
    assert_eq!(json(display)["data"]["application/json"], "{not json");
    assert_eq!(json(status)["status"].to_string(), r#"{"op":"x","nan":null}"#);
}
