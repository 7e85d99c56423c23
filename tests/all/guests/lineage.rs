//! Gates and lineage of runs, whatever makes their calls: processes, forks, tasks that go on, agents.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use cellar_engine::{
    Bridges, Cell, GuestName, Language, RunResult, Session, SessionConfig,
    artifacts::{ArtifactQuota, ArtifactStore, datasets::Publication},
    bridges::{
        Call, CallError, CallErrorKind, CallFuture, Caller, ConnectorSpec, FetchFuture, FetchName, FetchSpec, Response,
        ToolSpec, ToolsFuture, denied,
    },
    config::{KernelOptions, OutputOptions, RunOptions},
    event::Fetch,
    origin::Origin,
};
use cellar_tables::Batches;
use serde_json::{Map, Value, json};

use super::snapshots::{host, on_runtime};
use crate::support::{self, cellar, cellar_with_guests, config};

/// A connector `source` with a fetch `rows`, which counts how often it is asked and fails for a negative number of rows, and a
/// tool `cell`, an agent of the session that runs a cell in it.
#[derive(Clone, Default)]
struct Source(Arc<AtomicUsize>);

fn table(count: i64) -> Batches {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
    Batches::new(schema.clone(), vec![RecordBatch::try_new(schema, vec![column]).expect("rows")])
}

impl Bridges for Source {
    fn tools(&self) -> ToolsFuture {
        let tool = ToolSpec { name: "cell".to_owned(), description: String::new(), schema: None };
        Box::pin(std::future::ready(vec![tool]))
    }

    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        Box::pin(async move {
            let Call::Tool { arguments, .. } = &call else { return Err(denied(&call)) };
            let arguments: Value = serde_json::from_str(arguments).expect("JSON");
            let code = arguments["code"].as_str().expect("code");
            let run = caller.session.run(vec![Cell::new(Language::JavaScript, code)]).expect("a run");
            let text = run.collect_result().await.text();
            Ok(Response::Json(serde_json::to_string(&text).expect("JSON")))
        })
    }

    fn connectors(&self) -> Vec<ConnectorSpec> {
        let fetch = FetchSpec {
            name: "rows".to_owned(),
            description: String::new(),
            schema: json!({"type": "object", "properties": {"count": {"type": "integer"}}}).to_string(),
            columns: Vec::new(),
        };
        vec![ConnectorSpec { name: "source".to_owned(), description: String::new(), fetches: vec![fetch] }]
    }

    fn fetch_arguments(&self, name: &FetchName, given: Map<String, Value>) -> Result<Map<String, Value>, CallError> {
        match given["count"].is_i64() {
            true => Ok(given),
            false => Err(CallError::new(CallErrorKind::Invalid, format!("{name}: `count` is a whole number"))),
        }
    }

    fn fetch(&self, name: &FetchName, arguments: Map<String, Value>, _caller: Caller) -> FetchFuture {
        self.0.fetch_add(1, Ordering::SeqCst);
        let (name, count) = (name.to_string(), arguments["count"].as_i64().expect("a number"));
        Box::pin(async move {
            tokio::task::yield_now().await;
            let failed = || CallError::new(CallErrorKind::Failed, format!("{name}: the source is closed"));
            if count < 0 { Err(failed()) } else { Ok(table(count)) }
        })
    }
}

struct World {
    source: Source,
    store: ArtifactStore,
    session: Session,
    folder: tempfile::TempDir,
}

/// A session with a store in which the dataset `prices` has two versions, of one row and of two.
fn world(guests: Vec<GuestName>) -> World {
    // Files of tables are read in a process.
    cellar_worker::offer(env!("CARGO_BIN_EXE_cellar").into(), vec!["work".into()]);
    let folder = tempfile::tempdir().expect("a folder");
    let store = ArtifactStore::open(folder.path(), ArtifactQuota::default()).expect("a store");
    for count in [1, 2] {
        let mut file = Vec::new();
        table(count).write_parquet(&mut file).expect("Parquet");
        let mut writer = store.datasets().writer("prices").expect("a writer");
        writer.write(&file).expect("written");
        writer.publish(Publication { publisher: "test".to_owned(), ..Publication::default() }).expect("published");
    }
    let source = Source::default();
    let outputs = OutputOptions { artifacts: Some(store.clone()), publish_datasets: true, ..OutputOptions::default() };
    let kernels = KernelOptions { guests, ..KernelOptions::default() };
    let config = SessionConfig { bridges: Arc::new(source.clone()), outputs, kernels, ..SessionConfig::default() };
    World { source, store, session: host().session(config).expect("a session"), folder }
}

fn gate(names: &[&str]) -> RunOptions {
    let seen = names.iter().map(|name| ("dataset".to_owned(), (*name).to_owned())).collect();
    RunOptions { seen: Some(seen), ..RunOptions::default() }
}

fn producer(name: &str) -> RunOptions {
    RunOptions { producer: Some(name.to_owned()), ..RunOptions::default() }
}

async fn run(session: &Session, language: Language, code: &str, options: RunOptions) -> RunResult {
    let run = session.run(vec![Cell::new(language, code)]).expect("a run");
    run.lineage(options).expect("options").collect_result().await
}

async fn origin(session: &Session, name: &str) -> Option<Arc<Origin>> {
    session.origin(PY, name).await.expect("origins")
}

const PY: Language = Language::Python;
const JS: Language = Language::JavaScript;
const REFUSED: &str = "was published elsewhere, and whoever made this run has not seen it";

#[test]
fn a_gate_holds_whatever_loads() {
    on_runtime(async {
        let World { session, folder: _folder, .. } = world(Vec::new());
        let ways = [
            (PY, "load_dataset('prices')"),
            (
                PY,
                "import subprocess, sys\nsubprocess.run(['python', '-c', 'print(load_dataset(\"prices\"))'], stderr=sys.stdout)",
            ),
            (PY, "!python -c 'print(load_dataset(\"prices\"))'"),
            (PY, "import os\nos.system('python -c \"print(load_dataset(\\'prices\\'))\"')"),
            (
                PY,
                "from multiprocessing import Pool\ndef load(name): return load_dataset(name)\nwith Pool(1) as pool: pool.map(load, ['prices'])",
            ),
            (
                PY,
                "fork = runtime.selfref.fork.spawn(code=\"print(load_dataset('prices'))\")\nruntime.selfref.fork.gather_all()",
            ),
            (PY, "print(tool.cell(code=\"print(await loadDataset('prices'))\"))"),
            (JS, "await loadDataset('prices')"),
            (
                JS,
                "import { execSync } from 'node:child_process';\nconsole.log(execSync('python -c \"print(load_dataset(\\'prices\\'))\" 2>&1 || true').toString())",
            ),
        ];
        for (language, code) in ways {
            let closed = run(&session, language, code, gate(&["other"])).await.text();
            assert!(closed.contains(REFUSED), "{code}: {closed}");
            let open = run(&session, language, code, gate(&["prices"])).await.text();
            assert!(!open.contains(REFUSED) && !open.contains("Error"), "{code}: {open}");
        }
        let listed = run(&session, PY, "[each['name'] for each in list_datasets()]", gate(&["other"])).await;
        assert_eq!(listed.text().trim(), "[]");
    });
}

#[test]
fn a_gate_holds_for_tasks_that_go_on() {
    on_runtime(async {
        let World { session, folder: _folder, .. } = world(Vec::new());
        let begins = "import asyncio\ngoes_on = asyncio.Event()\nasync def loads():\n    await goes_on.wait()\n    return \
                      load_dataset('prices')\ntask = asyncio.create_task(loads())";
        run(&session, PY, begins, gate(&[])).await;
        session.hibernate().await.expect("asleep");
        let awaited = run(&session, PY, "goes_on.set()\nawait task", RunOptions::default()).await.text();
        assert!(awaited.contains(REFUSED), "{awaited}");
        // One of a run without a gate is not held up by that of the next.
        run(&session, PY, begins, RunOptions::default()).await;
        let awaited = run(&session, PY, "goes_on.set()\nlen(await task)", gate(&[])).await.text();
        assert_eq!(awaited.trim(), "2");
    });
}

#[test]
fn what_a_run_publishes_it_has_seen_in_its_processes_as_well() {
    on_runtime(async {
        let World { session, store, folder: _folder, .. } = world(vec![GuestName::PythonData]);
        let code = "publish_dataset('mine', pd.DataFrame({'a': [1]}))\n!python -c 'print(len(load_dataset(\"mine\")))'";
        assert_eq!(run(&session, PY, code, gate(&[])).await.text().trim(), "1");
        let dry = RunOptions { dry_run: true, ..producer("x") };
        let number = run(&session, PY, "publish_dataset('mine', pd.DataFrame({'a': [2]}))", dry.clone()).await;
        assert_eq!(number.text().trim(), "2");
        let nested = "!python -c 'publish_dataset(\"mine\", pd.DataFrame({\"a\": [2]}))'";
        run(&session, PY, nested, dry).await;
        assert_eq!(store.datasets().versions("mine").expect("versions").len(), 1);
    });
}

fn log(result: &RunResult) -> Vec<(String, bool, Option<String>)> {
    let entry = |fetch: &Fetch| (fetch.arguments.clone(), fetch.is_cached, fetch.error.clone());
    result.fetches().map(entry).collect()
}

#[test]
fn fetches_of_processes_and_forks_are_those_of_their_run() {
    on_runtime(async {
        let World { session, source, folder: _folder, .. } = world(Vec::new());
        let ways = [
            "made = !python -c 'print(source.rows(count=1))'",
            "from multiprocessing import Pool\ndef fetched(n): return len(source.rows(count=n))\nwith Pool(1) as pool: made = pool.map(fetched, [2])",
            "runtime.selfref.fork.spawn(code='len(source.rows(count=3))')\nmade = runtime.selfref.fork.gather_all()",
            "made = tool.cell(code='(await source.rows({ count: 4 })).length')",
        ];
        for (number, code) in (1..).zip(ways) {
            let result = run(&session, PY, code, producer("nb")).await;
            if number < 4 {
                let expected = vec![(format!("{{\"count\":{number}}}"), false, None)];
                assert_eq!(log(&result), expected, "{code}: {}", result.text());
            }
            let made = origin(&session, "made").await.expect("an origin");
            assert_eq!(made.fetches.len(), 1, "{code}: {}", result.text());
        }
        // What a process fetches is remembered by the kernel whose cell started it.
        let asked = source.0.load(Ordering::SeqCst);
        let again = run(&session, PY, "source.rows(count=1)\n!python -c 'source.rows(count=1)'", producer("nb")).await;
        assert_eq!(log(&again).iter().map(|(_, is_cached, _)| *is_cached).collect::<Vec<_>>(), [true, true]);
        assert_eq!(source.0.load(Ordering::SeqCst), asked);
    });
}

#[test]
fn fetches_that_fail_are_logged() {
    on_runtime(async {
        let World { session, folder: _folder, .. } = world(Vec::new());
        let code = "for count in (-1, 'x'):\n    try: source.rows(count=count)\n    except ToolError: pass\nmade = 1";
        let result = run(&session, PY, code, producer("nb")).await;
        let error = |message: &str| Some(format!("source.rows: {message}"));
        let expected = [
            (r#"{"count":-1}"#.to_owned(), false, error("the source is closed")),
            (r#"{"count":"x"}"#.to_owned(), false, error("`count` is a whole number")),
        ];
        assert_eq!(log(&result), expected);
        // Nothing comes from what failed.
        assert!(origin(&session, "made").await.expect("an origin").fetches.is_empty());
    });
}

#[test]
fn equal_fetches_at_the_same_time_ask_once() {
    on_runtime(async {
        let World { session, source, folder: _folder, .. } = world(Vec::new());
        let code = "import asyncio\nfound = await asyncio.gather(*(source.rows.aio(count=n % 3) for n in range(12)))\n[len(each) for each in found]";
        let result = run(&session, PY, code, RunOptions::default()).await;
        assert_eq!(result.text().trim(), "[0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]");
        assert_eq!(source.0.load(Ordering::SeqCst), 3);
        assert_eq!(result.fetches().filter(|fetch| !fetch.is_cached).count(), 3);
        let failing = "found = await asyncio.gather(*(source.rows.aio(count=-1) for n in range(4)), return_exceptions=True)\nlen(set(map(str, found)))";
        assert_eq!(run(&session, PY, failing, RunOptions::default()).await.text().trim(), "1");
    });
}

#[test]
fn names_lose_the_origin_that_is_not_theirs_any_more() {
    on_runtime(async {
        let World { session, folder: _folder, .. } = world(Vec::new());
        run(&session, PY, "a = b = c = d = 1", producer("nb")).await;
        run(&session, PY, "a = 2\ndel b", RunOptions::default()).await;
        run(&session, PY, "c = 2", RunOptions { dry_run: true, ..producer("nb") }).await;
        let names: Vec<String> = session.origins(PY).await.expect("origins").into_keys().collect();
        assert_eq!(names, ["d"]);
        run(&session, JS, "let x = 1, y = 1", producer("nb")).await;
        run(&session, JS, "x = 2", RunOptions::default()).await;
        let names: Vec<String> = session.origins(JS).await.expect("origins").into_keys().collect();
        assert_eq!(names, ["y"]);
    });
}

#[test]
fn names_know_what_they_derive_from() {
    on_runtime(async {
        let World { session, folder: _folder, .. } = world(Vec::new());
        let cells = [
            ("raw = source.rows(count=2)", vec![]),
            ("other = 5", vec![]),
            ("def clean(): return [each for each in raw]", vec!["raw"]),
            ("made = clean()\nraw = None", vec!["clean", "raw"]),
            ("last = f'{made}' + str(other)", vec!["made", "other"]),
            ("alone = 1\nraw2 = alone", vec![]),
            ("made = 1\nagain = made", vec![]),
        ];
        for (code, expected) in cells {
            let result = run(&session, PY, code, producer("nb")).await;
            let origin = result.origins.values().next().expect(code);
            let names: Vec<&str> = origin.derived_from.iter().map(|each| each.name.as_str()).collect();
            assert_eq!(names, expected, "{code}");
        }
        // That of `raw` goes on as long as something derives from it.
        let former = session.former_origins(PY).await.expect("origins");
        assert!(former.iter().any(|origin| origin.cell.0 == 1 && origin.fetches.len() == 1), "{former:?}");
        let restored = host().restore(&session.snapshot().await.expect("a snapshot"), SessionConfig::default());
        assert_eq!(restored.expect("a session").former_origins(PY).await.expect("origins"), former);
        run(&session, JS, "const a = await source.rows({ count: 1 }), read = () => a", producer("nb")).await;
        let result =
            run(&session, JS, "let b = read().length // other\nlet text = 'a', c = {a: 1}.a", producer("nb")).await;
        let names =
            |name: &str| result.origins[name].derived_from.iter().map(|each| each.name.clone()).collect::<Vec<_>>();
        assert_eq!(names("b"), ["a", "read"]);
    });
}

#[test]
fn what_is_published_has_the_sources_of_what_it_derives_from() {
    on_runtime(async {
        let World { session, store, folder: _folder, .. } = world(vec![GuestName::PythonData]);
        run(&session, PY, "raw = source.rows(count=2)", producer("nb")).await;
        run(&session, PY, "old = load_dataset('prices', 1)", producer("nb")).await;
        run(&session, PY, "made = raw.assign(z=len(old))", producer("nb")).await;
        run(&session, PY, "publish_dataset('made', made)", producer("nb")).await;
        let version = store.datasets().get("made", None).expect("a version");
        let origin = version.origin.expect("an origin");
        assert_eq!(origin.derived_from.iter().map(|each| each.name.as_str()).collect::<Vec<_>>(), ["made"]);
        assert_eq!((origin.fetches.len(), origin.datasets[0].version), (1, 1));
    });
}

#[test]
fn names_without_an_origin_are_told() {
    on_runtime(async {
        let World { session, folder: _folder, .. } = world(Vec::new());
        for (language, code) in [
            (PY, "for n in range(5_000): globals()[f'n{n}'] = n"),
            (JS, "for (let n = 0; n < 5_000; n += 1) globalThis[`n${n}`] = n;"),
        ] {
            let result = run(&session, language, code, producer("nb")).await;
            let told = result.cells[0].statuses.iter().filter(|status| status.op == "origins_left_out").count();
            assert_eq!(told, 1, "{code}");
            assert_eq!(session.origins(language).await.expect("origins").len(), 4_096);
        }
    });
}

#[test]
fn datasets_are_listed_and_read_version_by_version_in_all_guests() {
    on_runtime(async {
        let World { session, folder: _folder, .. } = world(Vec::new());
        let code = "print(load_dataset('prices'), load_dataset('prices', 1), [each['version'] for each in list_datasets('prices')])\n\
                    try: load_dataset('prices', 7)\nexcept LoadDatasetError as error: print(error)\n\
                    [(each['name'], each['version'], each['rows']) for each in list_datasets()]";
        let expected = "[{'n': 0}, {'n': 1}] [{'n': 0}] [1, 2]\ndataset `prices` has no version 7; its latest is 2\n[('prices', 2, 2)]";
        assert_eq!(run(&session, PY, code, RunOptions::default()).await.text().trim(), expected);
        let code = "console.log(await loadDataset('prices'), await loadDataset('prices', { version: 1 }), \
                    loadDataset.sync('prices').length, (await listDatasets('prices')).length)\n\
                    await loadDataset('prices', { version: 7 }).catch((error) => error.message)";
        let text = run(&session, JS, code, RunOptions::default()).await.text();
        assert!(
            text.contains("[ { n: 0 }, { n: 1 } ] [ { n: 0 } ] 2 2") && text.contains("has no version 7"),
            "{text}"
        );
    });
}

#[test]
fn an_agent_says_of_its_runs_who_makes_them_and_what_it_has_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("store");
    let store = ArtifactStore::open(place.join(".artifacts"), ArtifactQuota::default()).expect("a store");
    let mut file = Vec::new();
    table(2).write_parquet(&mut file).expect("Parquet");
    let mut writer = store.datasets().writer("prices").expect("a writer");
    writer.write(&file).expect("written");
    writer.publish(Publication::default()).expect("published");
    let code = "const got = (await loadDataset(\\\"prices\\\")).length; print(got)";
    let command = format!(
        "cat > /dev/null; out=$(\"$CELLAR\" eval -l js --producer agents/task --seen \"$SEEN\" \"{code}\" 2>&1); python3 -c 'import json, sys; \
         print(json.dumps({{\"output\": sys.argv[1]}}))' \"$out\""
    );
    let agent = |name: &str, seen: &str| {
        let program = env!("CARGO_BIN_EXE_cellar");
        format!(
            "[agents.{name}]\ncommand = [\"sh\", \"-c\", '''{command}''']\nenvironment = {{ CELLAR = \"{program}\", SEEN = \"{seen}\" }}\n"
        )
    };
    let (_config, path) = config(&(agent("may", "dataset:prices") + &agent("blind", "none")));
    let eval = |code: &str, more: &[&str]| {
        let mut command = cellar_with_guests(["eval", "-l", "py", code, "--session", "s"]);
        support::run(command.args(more).arg("--store").arg(&place).arg("--config").arg(&path)).stdout
    };
    assert_eq!(eval("print(agent('go', agent_type='may'))", &[]).trim(), "2");
    assert!(eval("print(agent('go', agent_type='blind'))", &[]).contains(REFUSED));
    // Its own gate does not open that of the run that called it.
    assert!(eval("print(agent('go', agent_type='may'))", &["--seen", "none"]).contains(REFUSED));
    // A run with a producer is that of its producer.
    let nested = eval("print(agent('go', agent_type='may'))", &["--producer", "nb"]);
    assert!(nested.contains("nested") || nested.contains("producer"), "{nested}");
    let told = support::run(cellar(["session", "origin", "s", "got", "--store"]).arg(&place)).stdout;
    assert!(told.starts_with("got  agents/task  <cell "), "{told}");
    assert!(told.contains("prices version 1"), "{told}");
}

#[test]
fn the_way_back_is_a_tree() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("store");
    for (code, producer) in
        [("raw = 1", "a"), ("left = raw + 1; right = raw + 2", "b"), ("raw = 5", "a"), ("made = left + right", "c")]
    {
        let mut command = cellar_with_guests(["eval", "-l", "py", code, "--session", "s", "--producer", producer]);
        assert_eq!(support::run(command.arg("--store").arg(&place)).code, 0);
    }
    let told = support::run(cellar(["session", "origin", "s", "made", "--store"]).arg(&place)).stdout;
    let expected = "made  c  <cell 4> in Python\n├─ left  b  <cell 2> in Python\n│  └─ raw  a  <cell 1> in Python\n└─ right  <cell 2>, see above\n";
    assert_eq!(told, expected);
    let json = support::run(cellar(["session", "origin", "s", "made", "--json", "--store"]).arg(&place)).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["origins"][0]["origin"]["derivedFrom"][1], json!({"name": "right", "producer": "b", "cell": 2}));
    assert_eq!(json["former"][0]["cell"], 1);
}

#[test]
fn stdio_has_the_datasets_of_its_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("store");
    let (_config, path) = config("[datasets]\npublish = true\n[session]\nguests = [\"python-data\"]\n");
    let stdio = |code: &str| {
        let open = json!({"type": "open", "id": "o", "session": "s"});
        let run = json!({"type": "run", "id": "r", "session": "s", "cells": [{"language": "py", "code": code}]});
        let mut command = cellar_with_guests(["stdio", "--store"]);
        let command = command.arg(&place).arg("--config").arg(&path);
        support::run_with_input(command, format!("{open}\n{run}\n").as_bytes()).stdout
    };
    let published = stdio("publish_dataset('mine', pd.DataFrame({'a': [1, 2, 3]}))");
    assert!(published.contains("\"type\":\"result\"") && !published.contains("\"isError\":true"), "{published}");
    assert!(stdio("print('rows', len(load_dataset('mine')))").contains("rows 3"));
    let listed = support::run(cellar(["dataset", "list", "--store"]).arg(&place)).stdout;
    assert!(listed.contains("\nmine  1 "), "{listed}");
}
