//! Beginning and lifetime of kernels: seeds, resets, per-call mode.

use std::{collections::HashMap, time::Duration};

use cellar_engine::{
    Cell, Host, HostConfig, Language, Limits, Outcome, Session, SessionConfig,
    config::{KernelMode, KernelOptions, Seed},
    guests::{BakeOptions, bake},
    limits,
    outcome::{FailureCode, FailureKind},
};

use crate::sessions::{config, host, kind, on_one_thread, open, outcome, result, run, text, until_started};

const PROBE: Language = Language::Probe;

/// Names and JSON values.
type Bindings<'a> = &'a [(&'a str, &'a str)];

fn seeded(language: Language, bindings: Bindings<'_>, source: &str) -> SessionConfig {
    let bindings = bindings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let seed = Seed { bindings, source: source.to_owned() };
    let kernels = KernelOptions { seeds: HashMap::from([(language, seed)]), ..KernelOptions::default() };
    SessionConfig { kernels, ..SessionConfig::default() }
}

fn host_for(language: Language) -> Host {
    let config = config(8);
    bake(&config, language.guest(), BakeOptions::default()).expect("the guest; run `make guests`");
    Host::open(config).expect("a host")
}

async fn run_text(session: &Session, language: Language, code: &str) -> String {
    session.run(vec![Cell::new(language, code)]).expect("a run").collect_result().await.text()
}

#[test]
fn a_python_seed_is_there_after_a_reset_and_leaves_no_trace_of_a_cell() {
    on_one_thread(async {
        let py = Language::Python;
        let bindings = [("limit", "{\"deep\": [1, null, \"é\"]}"), ("café", "1.5")];
        let source = "import math\nprint('not seen')\nasync def later():\n    return 2\ntwo = await later()\n42";
        let session = open(&host_for(py), seeded(py, &bindings, source));
        for _ in 0..2 {
            assert_eq!(
                run_text(&session, py, "print(limit, café, two, math.pi > 3)").await.lines().next(),
                Some("{'deep': [1, None, 'é']} 1.5 2 True")
            );
            assert_eq!(run_text(&session, py, "print(_ == '', Out)").await, "True {}");
            assert!(run_text(&session, py, "limit = None; 1/0").await.contains("<cell "));
            session.reset(py);
        }
        let names = session.variables(py).await.expect("names");
        assert!(names.iter().any(|each| each.name == "limit"));
    });
}

#[test]
fn a_javascript_seed_is_there_after_a_reset() {
    on_one_thread(async {
        let js = Language::JavaScript;
        let source =
            "console.log('not seen'); const two = await Promise.resolve(2); function half(n) { return n / 2 }\n42";
        let session = open(&host_for(js), seeded(js, &[("limit", "{\"deep\": [1, null]}"), ("$é", "1.5")], source));
        for _ in 0..2 {
            let code = "print(JSON.stringify(limit), $é, two, half(two)); let limit2 = limit; limit = 0; let two = 3;";
            assert_eq!(run_text(&session, js, code).await, "{\"deep\":[1,null]} 1.5 2 1");
            session.reset(js);
        }
    });
}

#[test]
fn a_seed_that_fails_is_named_by_the_cells_that_need_it() {
    on_one_thread(async {
        let cases: &[(Language, Bindings, &str, &[&str])] = &[
            (
                Language::Python,
                &[],
                "x = 1\nmissing",
                &["the session's Python seed failed", "NameError", "<seed>", "missing"],
            ),
            (Language::Python, &[("for", "1")], "", &["Python seed failed", "'for' is not a name"]),
            (Language::Python, &[("x", "{")], "", &["Python seed failed", "'x' is not JSON"]),
            (
                Language::JavaScript,
                &[],
                "let x = 1;\nmissing",
                &["JavaScript seed failed", "missing is not defined", "<seed>:2"],
            ),
            (Language::JavaScript, &[("new", "1")], "", &["JavaScript seed failed", "'new' is not a name"]),
            (Language::JavaScript, &[("x", "{")], "", &["JavaScript seed failed", "'x' is not JSON"]),
        ];
        for (language, bindings, source, said) in cases {
            let session = open(&host_for(*language), seeded(*language, bindings, source));
            // The next cell tries again, and hears the same.
            for _ in 0..2 {
                let result = session.run(vec![Cell::new(*language, "1")]).expect("a run").collect_result().await;
                assert!(result.is_error);
                let text = result.text();
                assert!(said.iter().all(|word| text.contains(word)), "{text}");
            }
        }
    });
}

#[test]
fn a_seed_has_the_time_of_a_cell_and_costs_the_first_cell_none() {
    on_one_thread(async {
        let limits = Limits { timeout: Duration::from_secs(3), grace: Duration::from_millis(300), ..Limits::default() };
        let with = |source: &str| SessionConfig { limits: limits.clone(), ..seeded(PROBE, &[], source) };
        for (source, said) in [
            ("spin", FailureKind::Timeout),
            ("sleep 10000", FailureKind::Timeout),
            ("spin-hard", FailureKind::Timeout),
            ("trap", FailureKind::Trap),
            ("lie finish-twice", FailureKind::Trap),
        ] {
            let session = open(&host(), with(source));
            let result = result(&session, "emit never").await;
            let failure = result.cells[0].failure.as_ref().expect("a failure");
            assert_eq!(failure.kind, said, "{failure:?}");
            assert!(failure.message.contains("the session's probe seed failed"), "{failure:?}");
            let error = session.variables(PROBE).await.expect_err("no kernel");
            assert!(error.to_string().contains("the session's probe seed failed"), "{error}");
        }
        let session = open(&host(), with("sleep 1600"));
        assert_eq!(text(&session, "sleep 1600\nemit done").await, "done");
    });
}

#[test]
fn a_seed_is_planted_again_after_clearing_and_after_a_loss() {
    on_one_thread(async {
        let session = open(&host(), seeded(PROBE, &[("a", "1")], "set b 2\nemit not seen"));
        let both = "get a\nget b";
        assert_eq!(text(&session, both).await, "1\n2");
        text(&session, "set a 9").await;
        session.clear(PROBE).await.expect("cleared");
        assert_eq!(text(&session, both).await, "1\n2");
        assert!(result(&session, "trap").await.is_error);
        assert_eq!(text(&session, both).await, "1\n2");
    });
}

#[test]
fn a_seed_that_is_too_large_is_refused() {
    let large = "x".repeat(limits::SEED_BYTES_MAX + 1);
    let error = host().session(seeded(PROBE, &[], &large)).expect_err("a refusal");
    assert!(error.to_string().contains("at most 1000 and 16777216 are allowed"), "{error}");
}

fn per_call() -> SessionConfig {
    let mut config = seeded(PROBE, &[("a", "1")], "");
    config.kernels.mode = KernelMode::PerCall;
    config
}

#[test]
fn per_call_cells_share_nothing_but_the_seed_and_the_folder() {
    on_one_thread(async {
        let session = open(&host(), per_call());
        assert_eq!(text(&session, "get a\nset b 2\nwrite note.txt mine\nset a 9").await, "1");
        assert!(text(&session, "get b").await.contains("NameError"));
        assert_eq!(text(&session, "get a\nread note.txt").await, "1\nmine");
        let names = session.variables(PROBE).await.expect("names");
        assert_eq!(names.iter().map(|each| each.name.as_str()).collect::<Vec<_>>(), ["a"]);
    });
}

#[test]
fn per_call_cells_run_beside_each_other_and_a_reset_ends_them() {
    on_one_thread(async {
        let session = open(&host(), per_call());
        let mut waiting = run(&session, "sleep 100000");
        until_started(&mut waiting).await;
        let mut busy = run(&session, "spin");
        until_started(&mut busy).await;
        let (waiting, busy) = (tokio::spawn(outcome(waiting)), tokio::spawn(outcome(busy)));
        assert_eq!(text(&session, "emit alive").await, "alive");
        session.reset(PROBE);
        for ended in [waiting, busy] {
            assert_eq!(kind(&ended.await.expect("no panic")), Some(FailureKind::Interrupted));
        }
        assert_eq!(text(&session, "emit alive").await, "alive");
    });
}

#[test]
fn per_call_kernels_end_with_their_cells() {
    on_one_thread(async {
        let config = HostConfig { kernels_max: 1, ..config(1) };
        let session = open(&Host::open(config).expect("a host"), per_call());
        for code in ["emit x", "trap", "raise no", "exit 3"].repeat(10) {
            let mut run = run(&session, code);
            until_started(&mut run).await;
            let ended = outcome(run).await;
            let is_refused = matches!(&ended, Outcome::Failed(failure) if failure.message.contains("in use"));
            assert!(!is_refused, "{ended:?}");
        }
    });
}

#[test]
fn what_a_python_cell_leaves_running_ends_with_its_kernel_in_per_call_mode() {
    on_one_thread(async {
        let py = Language::Python;
        let session = open(
            &host_for(py),
            SessionConfig {
                kernels: KernelOptions { mode: KernelMode::PerCall, ..KernelOptions::default() },
                ..SessionConfig::default()
            },
        );
        let code = "import asyncio\nasync def later():\n    await asyncio.sleep(0.3)\n    write('late.txt', 'x')\n\
                    task = asyncio.create_task(later())";
        assert_eq!(run_text(&session, py, code).await, "(no output)");
        let code = "import os, asyncio\nawait asyncio.sleep(1)\nprint(os.listdir(), 'task' in globals())";
        assert_eq!(run_text(&session, py, code).await, "[] False");
    });
}

#[test]
fn a_reset_finds_a_kernel_although_all_are_in_use() {
    on_one_thread(async {
        let session = open(&Host::open(config(1)).expect("a host"), SessionConfig::default());
        for code in ["emit x", "sleep 100000", "spin"].repeat(5) {
            let mut run = run(&session, code);
            until_started(&mut run).await;
            let ended = tokio::spawn(outcome(run));
            tokio::task::yield_now().await;
            session.reset(PROBE);
            assert_eq!(text(&session, "emit alive").await, "alive", "after `{code}`");
            ended.await.expect("no panic");
        }
    });
}

#[test]
fn a_host_whose_kernels_are_all_in_use_says_so() {
    on_one_thread(async {
        let host = Host::open(config(1)).expect("a host");
        // One that awaits would make room by falling asleep.
        let holder = open(&host, SessionConfig::default());
        let mut busy = run(&holder, "spin");
        until_started(&mut busy).await;
        let _busy = tokio::spawn(outcome(busy));
        let mut cell = Cell::new(PROBE, "emit never");
        cell.timeout = Some(Duration::from_secs(1));
        let waiting = open(&host, SessionConfig::default()).run(vec![cell]).expect("a run");
        let Outcome::Failed(failure) = outcome(waiting).await else { panic!("there was room") };
        assert_eq!(failure.code, Some(FailureCode::Busy), "{}", failure.message);
    });
}

#[test]
fn cells_that_wait_for_a_kernel_that_is_killed_run_on_the_next_in_their_order() {
    on_one_thread(async {
        let limits = Limits { grace: Duration::from_millis(20), ..Limits::default() };
        let session = open(&host(), SessionConfig { limits, ..SessionConfig::default() });
        let mut hard = run(&session, "spin-hard");
        until_started(&mut hard).await;
        let waiting: Vec<_> = ["set order 1", "get order\nset order 2", "get order"]
            .map(|code| tokio::spawn(run(&session, code).collect_result()))
            .into();
        // Each has its place in the line when its run was polled.
        tokio::task::yield_now().await;
        hard.canceller().cancel();
        assert_eq!(kind(&outcome(hard).await), Some(FailureKind::Interrupted));
        let mut texts = Vec::new();
        for result in waiting {
            texts.push(result.await.expect("a result").text());
        }
        assert_eq!(texts, ["(no output)", "1", "2"]);
    });
}
