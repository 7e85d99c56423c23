//! Origins of names: the cells that bind them, the names that get one, and how the state of a session keeps them.

use std::{collections::BTreeMap, sync::Arc};

use cellar_engine::{
    Bridges, Cell, Error, Host, Language, RunResult, Session, SessionConfig, Snapshot,
    bridges::{Call, CallFuture, Caller, Response, ToolSpec, ToolsFuture},
    config::RunOptions,
    store::SessionStore,
};

use super::snapshots::{host, on_runtime, text};

fn producer(name: &str) -> RunOptions {
    RunOptions { producer: Some(name.to_owned()), ..RunOptions::default() }
}

async fn run(session: &Session, language: Language, cells: &[&str], options: RunOptions) -> RunResult {
    let cells = cells.iter().map(|code| Cell::new(language, *code)).collect();
    session.run(cells).expect("a run").lineage(options).expect("options").collect_result().await
}

fn open(host: &Host) -> Session {
    host.session(SessionConfig::default()).expect("a session")
}

/// Names with their producer and the number of their cell.
async fn known(session: &Session, language: Language) -> BTreeMap<String, (String, u32)> {
    let origins = session.origins(language).await.expect("origins");
    origins.into_iter().map(|(name, origin)| (name, (origin.producer.clone(), origin.cell.0))).collect()
}

async fn names(session: &Session, language: Language) -> String {
    known(session, language).await.into_keys().collect::<Vec<_>>().join(" ")
}

const PY: Language = Language::Python;
const JS: Language = Language::JavaScript;

#[test]
fn python_names_are_stamped_however_they_are_bound() {
    on_runtime(async {
        let session = open(&host());
        let code = "import math, os.path as p\nfrom string import *\na = b, (c, *d) = 1, (2, 3)\ne: int = 1\nf: int\n\
                    def g(): inner = 1\nclass H: attribute = 1\nfor i in (1,): pass\nwith open('n', 'w') as j: pass\n\
                    try: 1 / 0\nexcept ZeroDivisionError as gone: pass\n(k := 1)\nexec('l = 1')\nglobals()['m'] = 1\n\
                    def n():\n    global o\n    o = 1\nn()\n[q for q in (1,)]\nmatch [1]:\n    case [r]: pass\n_ = 1";
        run(&session, PY, &[code], producer("a")).await;
        let all = names(&session, PY).await;
        for name in "a b c d e g H i j k l m math n o p r ascii_letters".split(' ') {
            assert!(all.split(' ').any(|known| known == name), "{name}: {all}");
        }
        for name in "f inner attribute gone q _ os In Out __annotations__".split(' ') {
            assert!(all.split(' ').all(|known| known != name), "{name}: {all}");
        }
    });
}

#[test]
fn a_name_is_stamped_anew_when_it_is_bound_anew() {
    on_runtime(async {
        let session = open(&host());
        let cells = ["a = []; b = 1; c = 1; d = 1; e = 1; f = 1", "a.append(1)", "a = a; b += 1; del c", "d = 1"];
        run(&session, PY, &cells, producer("x")).await;
        // What may not run binds nothing, and an equal value that is bound is bound.
        run(&session, PY, &["if False: e = 1\ntry: pass\nexcept Exception: f = 1\n1 / 0\nd = 2"], producer("y")).await;
        let found = known(&session, PY).await;
        let cell = |name: &str| found.get(name).map(|(producer, cell)| (producer.as_str(), *cell));
        assert_eq!(
            ["a", "b", "c", "d", "e", "f"].map(cell),
            [Some(("x", 3)), Some(("x", 3)), None, Some(("x", 4)), Some(("x", 1)), Some(("x", 1))]
        );
    });
}

#[test]
fn javascript_names_are_stamped_however_they_are_bound() {
    on_runtime(async {
        let session = open(&host());
        let first = "let a = 1; const b = 2; var c = 3; function d() {} class E {}\nf = 4; globalThis.g = 5;\n\
                     const {h, i: [j]} = {h: 1, i: [2]};\nimport path from 'path';\n{ let inner = 1; }";
        run(&session, JS, &[first, "a = 7; delete globalThis.g; await 1; let q = 1; c = 3"], producer("n.js")).await;
        assert_eq!(names(&session, JS).await, "E a b c d f h j path q");
        let found = known(&session, JS).await;
        assert_eq!((found["a"].1, found["b"].1, found["q"].1), (2, 1, 2));
    });
}

#[test]
fn cells_that_interleave_are_told_apart() {
    on_runtime(async {
        let session = open(&host());
        let waits = "import asyncio\nwoken = asyncio.Event()\nfirst = 1\nawait woken.wait()\nlast = 1";
        let cells = vec![Cell::new(PY, waits)];
        let waiting = session.run(cells).expect("a run").lineage(producer("one")).expect("options");
        let wakes = async {
            while text(&session, PY, "'woken' in globals()").await.trim() != "True" {}
            run(&session, PY, &["other = 1; woken.set()"], producer("two")).await;
        };
        tokio::join!(waiting.collect_result(), wakes);
        let found = known(&session, PY).await;
        assert_eq!(
            (found["first"].0.as_str(), found["last"].0.as_str(), found["other"].0.as_str()),
            ("one", "one", "two")
        );
    });
}

#[test]
fn nothing_is_stamped_without_a_producer() {
    on_runtime(async {
        let session = open(&host());
        for language in [PY, JS] {
            let (dry, none) = (RunOptions { dry_run: true, ..producer("a") }, RunOptions::default());
            for options in [dry, none] {
                let result = run(&session, language, &["x = 1"], options).await;
                assert!(result.origins.is_empty() && known(&session, language).await.is_empty());
            }
            let result = run(&session, language, &["x = 2", "y = 1"], producer("a")).await;
            assert_eq!(result.origins.keys().collect::<Vec<_>>(), ["x", "y"]);
            assert_eq!(session.origin(language, "y").await.expect("an answer").expect("y").language, language);
            assert_eq!(session.origin(language, "z").await.expect("an answer"), None);
        }
        let refused = |options| session.run(vec![Cell::new(PY, "1")]).expect("a run").lineage(options);
        assert!(matches!(refused(producer("")), Err(Error::Request(_))));
        assert!(matches!(refused(producer(&"p".repeat(1_001))), Err(Error::Request(_))));
    });
}

/// A tool whose work is a run with a producer in the session of the cell that calls it.
struct Nests;

impl Bridges for Nests {
    fn tools(&self) -> ToolsFuture {
        let tool = ToolSpec { name: "nest".to_owned(), description: String::new(), schema: None };
        Box::pin(std::future::ready(vec![tool]))
    }

    fn call(&self, _call: Call, caller: Caller) -> CallFuture {
        Box::pin(async move {
            let run = caller.session.run(vec![Cell::new(JS, "inner = 1")]).expect("a run").lineage(producer("inner"));
            let told = match run {
                Ok(run) => format!("{:?}", run.collect_result().await.origins.keys().collect::<Vec<_>>()),
                Err(error) => error.code().to_owned(),
            };
            Ok(Response::Json(serde_json::to_string(&told).expect("JSON")))
        })
    }
}

#[test]
fn a_producer_within_a_producer_is_refused() {
    on_runtime(async {
        let config = SessionConfig { bridges: Arc::new(Nests), ..SessionConfig::default() };
        let session = host().session(config).expect("a session");
        let code = &["print(tool.nest())"];
        assert_eq!(run(&session, PY, code, producer("outer")).await.text().trim(), "nested-producer");
        let dry = RunOptions { dry_run: true, ..producer("outer") };
        assert_eq!(run(&session, PY, code, dry).await.text().trim(), "[\"inner\"]");
    });
}

#[test]
fn origins_go_with_the_state_of_a_session() {
    on_runtime(async {
        let host = host();
        for (language, reset) in [(PY, "x"), (JS, "x")] {
            let session = open(&host);
            run(&session, language, &["x = 1"], producer("a")).await;
            let before = session.snapshot().await.expect("a snapshot");
            run(&session, language, &["x = 2; y = 1"], producer("b")).await;
            let snapshot =
                Snapshot::from_bytes(&session.snapshot().await.expect("a snapshot").to_bytes()).expect("it is one");
            let restored = host.restore(&snapshot, SessionConfig::default()).expect("a session");
            // As it was stored, before a kernel starts, and after.
            for _ in 0..2 {
                assert_eq!(known(&restored, language).await, known(&session, language).await);
                text(&restored, language, reset).await;
            }
            session.hibernate().await.expect("asleep");
            assert_eq!(names(&session, language).await, "x y");
            let fork = session.fork(None).await.expect("a fork");
            assert_eq!(known(&fork, language).await, known(&session, language).await);
            session.rewind(&before).expect("back");
            assert_eq!(known(&session, language).await, BTreeMap::from([("x".to_owned(), ("a".to_owned(), 1))]));
            session.clear(language).await.expect("cleared");
            assert!(known(&session, language).await.is_empty());
            restored.reset(language);
            assert!(known(&restored, language).await.is_empty());
        }
    });
}

#[test]
fn a_stored_session_keeps_its_origins() {
    on_runtime(async {
        let folder = tempfile::TempDir::new().expect("a folder");
        let store = SessionStore::open(folder.path()).expect("a store");
        let host = host();
        let open = || {
            // Kernels that are gone hold it for a moment.
            loop {
                match store.claim("s") {
                    Ok(home) => break host.open_stored(home, SessionConfig::default()).expect("a session"),
                    Err(Error::SessionBusy(_)) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let session = open();
        run(&session, PY, &["x = 1"], producer("a")).await;
        session.save().await.expect("stored");
        drop(session);
        let session = open();
        assert_eq!(names(&session, PY).await, "x");
        let stored = store.load("s").expect("read").expect("a state");
        assert_eq!(stored.origins().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["x"]);
    });
}
