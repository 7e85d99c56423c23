//! Looking into sessions: what is told, and that nothing a value does when it is looked at harms its session.

use std::time::Duration;

use cellar_engine::{
    Cell, CellId, Error, EventKind, Host, Language, Limits, Run, Session, SessionConfig,
    guests::{BakeOptions, bake},
    limits,
    looks::{Completeness, Completions},
    mime::MimeBundle,
    outcome::FailureKind,
};

use futures::StreamExt;

use crate::{
    sessions::{config, host, kind, on_one_thread, open, outcome, result, run, text, until_started},
    support::PATIENCE,
};

/// A host on which a language is ready.
fn host_for(language: Language) -> Host {
    let config = config(8);
    bake(&config, language.guest(), BakeOptions::default()).expect("the guest; run `make guests`");
    Host::open(config).expect("a host")
}

/// Limits under which what does not end is soon ended.
fn short() -> SessionConfig {
    let limits = Limits { timeout: Duration::from_secs(1), grace: Duration::from_millis(500), ..Limits::default() };
    SessionConfig { limits, ..SessionConfig::default() }
}

async fn do_cell(session: &Session, language: Language, code: &str) -> String {
    let result = session.run(vec![Cell::new(language, code)]).expect("a run").collect_result().await;
    assert!(!result.is_error, "{}", result.text());
    result.text()
}

/// Returns the output of a run from now until its end.
async fn printed(mut run: Run) -> String {
    let mut text = String::new();
    while let Some(event) = run.next().await {
        if let EventKind::Stdout { text: more, .. } = event.kind {
            text += &more;
        }
    }
    text
}

fn plain(bundle: Option<MimeBundle>) -> String {
    bundle.expect("an answer").text("text/plain").expect("plain text").to_owned()
}

fn texts(completions: &Completions) -> Vec<&str> {
    completions.items.iter().map(|item| item.text.as_str()).collect()
}

fn reason(error: &Error) -> String {
    assert_eq!(error.code(), "look");
    error.to_string()
}

#[test]
fn python_tells_its_names_values_completions_and_help() {
    on_one_thread(async {
        let py = Language::Python;
        let session = open(&host_for(py), SessionConfig::default());
        let code =
            "def area(side):\n    'Of a square.'\n    return side * side\nnumbers = list(range(1000))\nnumbers[0]";
        do_cell(&session, py, code).await;
        let variables = session.variables(py).await.expect("names");
        let told: Vec<_> = variables.iter().map(|each| (&*each.name, &*each.type_name, each.size)).collect();
        assert_eq!(told, [("area", "function", None), ("numbers", "list", Some(1000))]);
        assert!(variables[1].preview.starts_with("[0, 1, 2") && variables[1].preview.len() < 200);
        assert!(plain(session.value(py, "numbers").await.expect("a value")).starts_with("[0,"));
        assert_eq!(session.value(py, "missing").await.expect("an answer"), None);
        let completions = session.complete(py, "x = 'é'; numb", 13).await.expect("completions");
        assert_eq!((completions.start, completions.end, texts(&completions)), (9, 13, vec!["numbers"]));
        let help = plain(session.inspect(py, "area(", 4).await.expect("help"));
        assert!(help.contains("area(side)") && help.contains("Of a square."), "{help}");
        assert_eq!(session.inspect(py, "no_such_name", 3).await.expect("an answer"), None);
    });
}

#[test]
fn javascript_tells_its_names_values_completions_and_help() {
    on_one_thread(async {
        let js = Language::JavaScript;
        let session = open(&host_for(js), SessionConfig::default());
        do_cell(&session, js, "function area(side) { return side * side }\nconst numbers = [1, 2, 3];").await;
        let variables = session.variables(js).await.expect("names");
        let mut told: Vec<_> = variables.iter().map(|each| (&*each.name, &*each.type_name, each.size)).collect();
        told.sort_unstable();
        assert_eq!(told, [("area", "function", None), ("numbers", "Array", Some(3))]);
        let value = session.value(js, "numbers").await.expect("a value").expect("a bundle");
        assert_eq!(value.text("application/json").map(str::to_owned).as_deref(), Some("[1,2,3]"));
        assert_eq!(session.value(js, "missing").await.expect("an answer"), None);
        let completions = session.complete(js, "'é'; numb", 9).await.expect("completions");
        assert_eq!((completions.start, completions.end, texts(&completions)), (5, 9, vec!["numbers"]));
        let help = plain(session.inspect(js, "area(", 2).await.expect("help"));
        assert!(help.contains("area: function"), "{help}");
    });
}

/// Code that makes hostile values, and whether their kernel survives a query of them.
const PYTHON_HAUNTS: &[(&str, bool)] = &[
    ("class H:\n    def __repr__(self):\n        while True: pass\nh = H()", true),
    ("class H:\n    def __repr__(self): raise SystemExit\nh = H()", true),
    ("class H:\n    def __repr__(self): return 7\nh = H()", true),
    ("class H:\n    def __repr__(self): return 'x' * (40 << 20)\nh = H()", true),
    ("class H:\n    def __getattr__(self, name): raise KeyboardInterrupt\nh = H()", true),
    ("class H:\n    def __len__(self):\n        import time; time.sleep(100)\nh = H()", true),
    ("class H:\n    def __repr__(self): print('unasked'); tool.nothing(); return 'h'\nh = H()", true),
    (
        "class H:\n    def __repr__(self):\n        while True:\n            try:\n                while True: pass\n            \
         except BaseException: pass\nh = H()",
        false,
    ),
];

const JAVASCRIPT_HAUNTS: &[(&str, bool)] = &[
    ("var h = { get x() { for (;;); }, toJSON() { for (;;); } };", true),
    ("var h = new Proxy({}, { ownKeys() { for (;;); }, get() { for (;;); } });", true),
    ("var h = new Proxy({}, { ownKeys() { throw 1 }, get() { throw 2 }, getPrototypeOf() { throw 3 } });", true),
    ("var h = { toJSON() { console.log('unasked'); tool.nothing(); return 1 } };", true),
    ("var h = 'x'.repeat(40 << 20);", true),
];

/// Looks in every way into a session that holds `h`; then a cell runs and finds what another left.
async fn look_at_haunted(language: Language, code: &str, keep: &str, kept: &str, survives: bool) {
    let session = open(&host_for(language), short());
    do_cell(&session, language, keep).await;
    do_cell(&session, language, code).await;
    // Whatever the answers are, they come.
    let answers = tokio::time::timeout(PATIENCE, async {
        let _ = session.variables(language).await;
        let _ = session.value(language, "h").await;
        let _ = session.complete(language, "h.x", 3).await;
        let _ = session.inspect(language, "h", 1).await;
    });
    answers.await.unwrap_or_else(|_| panic!("wedged by {code}"));
    let run = session.run(vec![Cell::new(language, kept)]).expect("a run");
    let result = run.collect_result().await;
    // A kernel that had to be killed may be back at a checkpoint, or have lost its names.
    if survives {
        assert_eq!(result.text(), "kept", "after {code}");
    }
}

#[test]
fn hostile_python_values_do_not_wedge_their_session() {
    on_one_thread(async {
        for (code, survives) in PYTHON_HAUNTS {
            look_at_haunted(Language::Python, code, "keep = 'kept'", "print(keep)", *survives).await;
        }
    });
}

#[test]
fn hostile_javascript_values_do_not_wedge_their_session() {
    on_one_thread(async {
        for (code, survives) in JAVASCRIPT_HAUNTS {
            look_at_haunted(Language::JavaScript, code, "const keep = 'kept'", "print(keep)", *survives).await;
        }
    });
}

#[test]
fn a_look_that_takes_too_long_is_stopped_and_the_cells_live_on() {
    on_one_thread(async {
        let session = open(&host(), short());
        text(&session, "set kept yes").await;
        // In nobody's name, or in that of a cell with time to spare: it is stopped all the same.
        let mut patient = Cell::new(Language::Probe, "sleep 8000\nget kept");
        patient.timeout = Some(Duration::from_secs(600));
        let mut waiting = session.run(vec![patient]).expect("a run");
        until_started(&mut waiting).await;
        let waiting = tokio::spawn(printed(waiting));
        for how in ["loop", "loop 2"] {
            text(&session, &format!("haunt {how}")).await;
            let error = session.variables(Language::Probe).await.expect_err("it never ends");
            let reason = reason(&error);
            assert!(reason.contains("took longer than 1s and was stopped"), "`{how}`: {reason}");
        }
        text(&session, "haunt nothing").await;
        assert_eq!(session.variables(Language::Probe).await.expect("names").len(), 1);
        assert_eq!(waiting.await.expect("no panic"), "yes\n");
    });
}

#[test]
fn a_look_that_kills_its_kernel_says_so_to_all() {
    on_one_thread(async {
        for (how, said) in [("loop-deaf", "a value that was looked at ran past its deadline"), ("trap", "crashed")] {
            let session = open(&host(), short());
            text(&session, &format!("haunt {how}")).await;
            let mut waiting = Cell::new(Language::Probe, "sleep 100000");
            waiting.timeout = Some(Duration::from_secs(600));
            let mut waiting = session.run(vec![waiting]).expect("a run");
            until_started(&mut waiting).await;
            let waiting = tokio::spawn(outcome(waiting));
            let error = session.variables(Language::Probe).await.expect_err("the kernel died");
            assert!(reason(&error).contains(said), "{error}");
            let ended = waiting.await.expect("no panic");
            assert_eq!(kind(&ended), Some(FailureKind::Interrupted), "{ended:?}");
            assert_eq!(text(&session, "emit alive").await, "alive");
        }
    });
}

#[test]
fn what_a_value_says_and_calls_when_it_is_looked_at_is_dropped() {
    on_one_thread(async {
        let session = open(&host(), short());
        let mut waiting = run(&session, "haunt chatter\nsleep 500\nemit done");
        until_started(&mut waiting).await;
        let waiting = tokio::spawn(printed(waiting));
        tokio::task::yield_now().await;
        session.variables(Language::Probe).await.expect("names");
        assert_eq!(waiting.await.expect("no panic"), "done\n");
    });
}

#[test]
fn answers_are_bounded() {
    on_one_thread(async {
        let session = open(&host(), short());
        text(&session, "haunt crowd").await;
        let names = session.variables(Language::Probe).await.expect("names");
        assert_eq!(names.len(), limits::NAMES_MAX);
        let session = open(&host(), short());
        text(&session, "haunt long").await;
        let names = session.variables(Language::Probe).await.expect("names");
        assert_eq!(names[0].preview.len() as u64, limits::PREVIEW_BYTES_MAX);
        let error = session.value(Language::Probe, "long").await.expect_err("too large");
        assert!(reason(&error).contains("20971530 bytes, at most 16777216 are allowed"), "{error}");
    });
}

#[test]
fn a_look_at_a_kernel_that_computes_waits_for_its_turn() {
    on_one_thread(async {
        let session = open(&host(), SessionConfig::default());
        let mut busy = run(&session, "spin 200\nset late yes");
        until_started(&mut busy).await;
        let busy = tokio::spawn(outcome(busy));
        tokio::task::yield_now().await;
        let names = session.variables(Language::Probe).await.expect("names");
        assert_eq!(names.iter().map(|each| each.name.as_str()).collect::<Vec<_>>(), ["late"]);
        assert!(busy.is_finished());
    });
}

#[test]
fn sources_of_cells_are_kept_over_resets() {
    on_one_thread(async {
        let session = open(&host(), SessionConfig::default());
        assert_eq!(text(&session, "emit one").await, "one");
        session.reset(Language::Probe);
        assert!(result(&session, "raise two").await.is_error);
        let source = session.source(CellId(1)).expect("it is kept");
        assert_eq!((&*source.code, source.language), ("emit one", Language::Probe));
        assert_eq!(session.source(CellId(3)), None);
        let all: Vec<_> = session.sources().into_iter().map(|cell| (cell.id.0, cell.code.to_string())).collect();
        assert_eq!(all, [(1, "emit one".to_owned()), (2, "raise two".to_owned())]);
    });
}

/// Returns the answer for each text: `ok`, `no`, or the indentation of the next line, in quotes.
async fn completeness(session: &Session, language: Language, texts: &[&str]) -> Vec<String> {
    let mut told = Vec::new();
    for text in texts {
        told.push(match session.is_complete(language, text).await.expect("an answer") {
            Completeness::Complete => "ok".to_owned(),
            Completeness::Incomplete(indent) => format!("{indent:?}"),
            Completeness::Invalid => "no".to_owned(),
        });
    }
    told
}

#[test]
fn a_prompt_learns_whether_a_python_text_is_a_whole_cell() {
    on_one_thread(async {
        let session = open(&host_for(Language::Python), SessionConfig::default());
        let texts = [
            "1 + 1",
            "",
            "f(1,",
            "'''open",
            "for n in x:",
            "if a:\n    b",
            "if a:\n    b\n",
            "def f():\n    return 1",
            "1 +* 2",
            "x = )",
            "await task",
            "%timeit f()",
            "print?",
            "class A:\n    def f(self):",
        ];
        let told = completeness(&session, Language::Python, &texts).await;
        let expected = [
            "ok",
            "ok",
            "\"\"",
            "\"\"",
            "\"    \"",
            "\"    \"",
            "ok",
            "\"\"",
            "no",
            "no",
            "ok",
            "ok",
            "ok",
            "\"        \"",
        ];
        assert_eq!(told, expected);
        assert!(session.variables(Language::Python).await.expect("names").is_empty(), "none of it ran");
    });
}

#[test]
fn a_prompt_learns_whether_a_javascript_text_is_a_whole_cell() {
    on_one_thread(async {
        let session = open(&host_for(Language::JavaScript), SessionConfig::default());
        let texts = [
            "1 + 1",
            "",
            "f(1,",
            "`open",
            "/* open",
            "if (a) {",
            "const f = () =>",
            "x = )",
            "1 +",
            "await task",
            "import fs from 'fs'",
            "let n: number = 1",
            "'a' + /[)}]/.source",
            "`${a}` + `${{b: 1}",
            "return 1",
        ];
        let told = completeness(&session, Language::JavaScript, &texts).await;
        let expected = [
            "ok", "ok", "\"  \"", "\"  \"", "\"  \"", "\"  \"", "\"\"", "no", "\"\"", "ok", "ok", "ok", "ok", "\"  \"",
            "ok",
        ];
        assert_eq!(told, expected);
    });
}

#[test]
fn only_the_value_of_the_last_expression_is_marked_as_the_value() {
    on_one_thread(async {
        for language in [Language::Python, Language::JavaScript] {
            let session = open(&host_for(language), SessionConfig::default());
            let mut run = session.run(vec![Cell::new(language, "display(1)\n2")]).expect("a run");
            let mut marks = Vec::new();
            while let Some(event) = run.next().await {
                if let EventKind::Display { data, is_value, .. } = event.kind {
                    marks.push((plain(Some(data)), is_value));
                }
            }
            assert_eq!(marks, [("1".to_owned(), false), ("2".to_owned(), true)], "{language}");
        }
    });
}
