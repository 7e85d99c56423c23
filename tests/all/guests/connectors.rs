//! Connectors: what cells fetch, how it reaches them, and what is told of it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float64Array, Int8Array,
    Int64Array, ListArray, RecordBatch, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray, UInt64Array,
    types::{Int32Type, Int64Type},
};
use arrow_schema::{Field, Schema};
use cellar_engine::{
    Bridges, Cell, EventKind, Language, RunResult, Session, SessionConfig,
    artifacts::{ArtifactQuota, ArtifactStore},
    bridges::{
        Call, CallError, CallErrorKind, CallFuture, Caller, ConnectorSpec, FetchFuture, FetchName, FetchSpec, denied,
    },
    config::{KernelOptions, OutputOptions},
    event::Fetch,
    replay::Replayed,
};
use cellar_tables::Batches;
use futures::StreamExt;
use serde_json::{Map, Value, json};

use super::snapshots::{host, on_runtime, text};

/// A connector `store` with two fetches: `orders`, which takes a number of rows, and `kinds`, which has a column of each
/// sort. It counts how often it is asked.
#[derive(Clone, Default)]
struct Store(Arc<AtomicUsize>);

fn rows(columns: Vec<(&str, ArrayRef)>) -> Batches {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(schema.clone(), arrays).expect("columns of one length");
    // In two batches, as rows come from a source.
    let middle = batch.num_rows() / 2;
    let batches = vec![batch.slice(0, middle), batch.slice(middle, batch.num_rows() - middle)];
    Batches::new(schema, batches)
}

fn orders(count: i64) -> Batches {
    let state = |n: i64| (n % 5 != 4).then_some(if n % 2 == 0 { "open" } else { "paid" });
    rows(vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..count))),
        ("total", Arc::new(Float64Array::from_iter((0..count).map(|n| (n % 3 != 2).then_some(n as f64 / 4.0))))),
        ("state", Arc::new(StringArray::from_iter((0..count).map(state)))),
    ])
}

fn kinds() -> Batches {
    let moments = vec![Some(1_767_225_600_000_000), None, Some(-1)];
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
    rows(vec![
        ("small", Arc::new(Int8Array::from(vec![Some(-1), None, Some(127)]))),
        ("large", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(0)]))),
        ("float", Arc::new(Float64Array::from(vec![Some(0.1), None, Some(f64::NAN)]))),
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("text", Arc::new(StringArray::from(vec![Some("zażółć 🦀"), None, Some("")]))),
        ("day", Arc::new(Date32Array::from(vec![Some(20_454), None, Some(-1)]))),
        ("local", Arc::new(TimestampMicrosecondArray::from(moments.clone()))),
        ("moment", Arc::new(TimestampMicrosecondArray::from(moments).with_timezone("Europe/Warsaw"))),
        ("time", Arc::new(Time64MicrosecondArray::from(vec![Some(3_723_000_000), None, Some(0)]))),
        (
            "money",
            Arc::new(
                Decimal128Array::from(vec![Some(12_345), None, Some(-5)])
                    .with_precision_and_scale(38, 2)
                    .expect("fits"),
            ),
        ),
        ("kind", Arc::new(DictionaryArray::<Int32Type>::from_iter([Some("a"), None, Some("a")]))),
        ("bytes", Arc::new(BinaryArray::from_opt_vec(vec![Some(b"\0\xff"), None, Some(b"")]))),
        ("list", Arc::new(list)),
    ])
}

impl Bridges for Store {
    fn call(&self, call: Call, _caller: Caller) -> CallFuture {
        let error = denied(&call);
        Box::pin(async { Err(error) })
    }

    fn connectors(&self) -> Vec<ConnectorSpec> {
        let schema = json!({"type": "object", "properties": {"count": {"type": "integer", "default": 3}, "since": {}}});
        let fetch = |name: &str, columns: &[(&str, &str)]| FetchSpec {
            name: name.to_owned(),
            description: format!("all {name}"),
            schema: schema.to_string(),
            columns: columns.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect(),
        };
        let fetches = vec![fetch("orders", &[("id", "int64")]), fetch("kinds", &[])];
        vec![ConnectorSpec { name: "store".to_owned(), description: "a store".to_owned(), fetches }]
    }

    fn fetch_arguments(
        &self,
        name: &FetchName,
        mut arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, CallError> {
        let invalid = |message: &str| Err(CallError::new(CallErrorKind::Invalid, format!("{name}: {message}")));
        if name.connector != "store" || !["orders", "kinds"].contains(&&*name.fetch) {
            return Err(denied(&Call::Fetch { name: name.clone(), arguments: String::new(), refresh: false }));
        }
        arguments.entry("count").or_insert(json!(3));
        if !arguments["count"].is_u64() {
            return invalid("`count` is a whole number");
        }
        arguments.sort_keys();
        Ok(arguments)
    }

    fn fetch(&self, name: &FetchName, arguments: Map<String, Value>, _caller: Caller) -> FetchFuture {
        self.0.fetch_add(1, Ordering::SeqCst);
        let rows = if name.fetch == "kinds" { kinds() } else { orders(arguments["count"].as_i64().expect("a number")) };
        Box::pin(async move { Ok(rows) })
    }
}

impl Store {
    fn asked(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn config(&self) -> SessionConfig {
        SessionConfig { bridges: Arc::new(self.clone()), ..SessionConfig::default() }
    }
}

async fn result(session: &Session, language: Language, code: &str) -> RunResult {
    session.run(vec![Cell::new(language, code)]).expect("a run").collect_result().await
}

fn log(result: &RunResult) -> Vec<(String, bool, u64)> {
    let entry = |fetch: &Fetch| (fetch.arguments.clone(), fetch.is_cached, fetch.rows);
    result.fetches().map(entry).collect()
}

#[test]
fn rows_are_dicts_and_objects_with_the_values_of_their_columns() {
    on_runtime(async {
        let store = Store::default();
        let session = host().session(store.config()).expect("a session");
        let orders = "[{'id': 0, 'total': 0.0, 'state': 'open'}, {'id': 1, 'total': 0.25, 'state': 'paid'}, {'id': 2, 'total': None, 'state': 'open'}]";
        assert_eq!(text(&session, Language::Python, "print(store.orders())").await, orders);
        assert_eq!(
            text(&session, Language::Python, "store['orders'](3) == connectors.store.orders(count=3)").await,
            "True"
        );
        let in_a_function = "def fetched():\n    return len(store.orders(count=7))\nfetched()";
        assert_eq!(text(&session, Language::Python, in_a_function).await, "7");
        let columns = "for name in store.kinds()[0]:\n    print(name, [row[name] for row in store.kinds()])";
        let expected = "small [-1, None, 127]
large [18446744073709551615, None, 0]
float [0.1, None, nan]
flag [True, None, False]
text ['zażółć 🦀', None, '']
day [datetime.date(2026, 1, 1), None, datetime.date(1969, 12, 31)]
local [datetime.datetime(2026, 1, 1, 0, 0), None, datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)]
moment [datetime.datetime(2026, 1, 1, 1, 0, tzinfo=zoneinfo.ZoneInfo(key='Europe/Warsaw')), None, datetime.datetime(1970, 1, 1, 0, 59, 59, 999999, tzinfo=zoneinfo.ZoneInfo(key='Europe/Warsaw'))]
time [datetime.time(1, 2, 3), None, datetime.time(0, 0)]
money [Decimal('123.45'), None, Decimal('-0.05')]
kind ['a', None, 'a']
bytes [b'\\x00\\xff', None, b'']
list [[1, None], None, []]";
        assert_eq!(text(&session, Language::Python, columns).await, expected);
        let columns = "const kinds = await store.kinds(); for (const name of Object.keys(kinds[0])) console.log(name, kinds.map((row) => row[name]))";
        let expected = "small [ -1, null, 127 ]
large [ 18446744073709551615n, null, 0 ]
float [ 0.1, null, NaN ]
flag [ true, null, false ]
text [ 'zażółć 🦀', null, '' ]
day [ '2026-01-01', null, '1969-12-31' ]
local [ 2026-01-01T00:00:00.000Z, null, 1969-12-31T23:59:59.999Z ]
moment [ 2026-01-01T00:00:00.000Z, null, 1969-12-31T23:59:59.999Z ]
time [ '01:02:03', null, '00:00:00' ]
money [ '123.45', null, '-0.05' ]
kind [ 'a', null, 'a' ]
bytes [ Uint8Array(2) [ 0, 255 ], null, Uint8Array(0) [] ]
list [ [ 1, null ], null, [] ]";
        assert_eq!(text(&session, Language::JavaScript, columns).await, expected);
        assert_eq!(text(&session, Language::JavaScript, "store.orders.sync({ count: 2 }).length").await, "2");
    });
}

#[test]
fn connectors_tell_what_they_have() {
    on_runtime(async {
        let session = host().session(Store::default().config()).expect("a session");
        let listed = "{'orders': {'name': 'orders', 'description': 'all orders', 'parameters': {'count': {'type': 'integer', 'default': 3, 'required': False}, 'since': {'required': False}}, 'columns': {'id': 'int64'}}";
        let said = text(&session, Language::Python, "print(connectors()['store']['fetches'])").await;
        assert!(said.starts_with(listed), "{said}");
        assert_eq!(
            text(&session, Language::Python, "store, dir(store)").await,
            "(<connector store: orders, kinds>, ['kinds', 'orders', 'spec'])"
        );
        assert_eq!(
            text(&session, Language::JavaScript, "connectors().store.fetches.orders.columns").await,
            "{ id: 'int64' }"
        );
        assert_eq!(text(&session, Language::JavaScript, "Object.keys(store)").await, "[ 'orders', 'kinds' ]");
        // They are no tools, and no names of cells' own.
        assert_eq!(text(&session, Language::Python, "dir(tool)").await, "['read']");
        assert!(session.variables(Language::Python).await.expect("a look").is_empty());
        // A name that a cell has taken is given back by a reset.
        assert_eq!(text(&session, Language::Python, "store = 1; store").await, "1");
        session.reset(Language::Python);
        assert_eq!(text(&session, Language::Python, "store").await, "<connector store: orders, kinds>");
        for (language, code, message) in [
            (Language::Python, "store.order()", "no connector has a fetch named `store.order`"),
            (Language::Python, "store.orders(count='many')", "store.orders: `count` is a whole number"),
            (Language::Python, "connectors.stores", "no connector 'stores' is granted"),
            (Language::JavaScript, "await store.order()", "no connector has a fetch named `store.order`"),
            (
                Language::JavaScript,
                "await store.orders(3, null, 1)",
                "takes one object of named arguments, or 2 in the order",
            ),
        ] {
            let said = text(&session, language, code).await;
            assert!(said.contains(message), "{code}: {said}");
        }
        assert_eq!(text(&session, Language::Python, "len(store.orders())").await, "3");
        assert_eq!(text(&session, Language::JavaScript, "(await store.orders()).length").await, "3");
        // Arguments in order, in both languages, and options behind them.
        assert_eq!(text(&session, Language::Python, "len(store.orders(2))").await, "2");
        let code =
            "[await store.orders(2), await store.orders(1, { refresh: true })].map((rows) => rows.length).join()";
        assert_eq!(text(&session, Language::JavaScript, code).await, "2,1");
    });
}

#[test]
fn what_was_fetched_is_remembered_until_it_is_asked_again_or_reset() {
    on_runtime(async {
        let store = Store::default();
        let host = host();
        let session = host.session(store.config()).expect("a session");
        let three = "{\"count\":3}".to_owned();
        let first = result(&session, Language::Python, "store.orders(); store.orders(count=3)").await;
        assert_eq!((log(&first), store.asked()), (vec![(three.clone(), false, 3), (three.clone(), true, 3)], 1));
        let again = result(&session, Language::Python, "store.orders(refresh=True)").await;
        assert_eq!((log(&again), store.asked()), (vec![(three.clone(), false, 3)], 2));
        // Each kernel remembers its own.
        let other =
            result(&session, Language::JavaScript, "await store.orders(); await store.orders({}, { refresh: false })")
                .await;
        assert_eq!((log(&other), store.asked()), (vec![(three.clone(), false, 3), (three.clone(), true, 3)], 3));
        // Sleep, forks and snapshots keep it.
        session.hibernate().await.expect("it falls asleep");
        assert_eq!(log(&result(&session, Language::Python, "store.orders()").await), [(three.clone(), true, 3)]);
        let fork = session.fork(None).await.expect("a fork");
        assert_eq!(text(&fork, Language::Python, "len(store.orders())").await, "3");
        assert_eq!(store.asked(), 3);
        session.reset(Language::Python);
        assert_eq!(log(&result(&session, Language::Python, "store.orders()").await), [(three, false, 3)]);
        assert_eq!(store.asked(), 4);
    });
}

#[test]
fn texts_that_repeat_come_back_from_the_file_that_is_kept_of_them() {
    on_runtime(async {
        let (host, store) = (host(), Store::default());
        let plain = host.session(store.config()).expect("a session");
        let guests = vec![cellar_engine::GuestName::PythonData];
        let kernels = KernelOptions { guests, ..KernelOptions::default() };
        let data = host.session(SessionConfig { kernels, ..store.config() }).expect("a session");
        for (session, language, first, again, expected) in [
            (
                &plain,
                Language::Python,
                "first = store.orders(count=1000)",
                "print(first == store.orders(count=1000), first[2]['state'], first[4]['state'])",
                "True open None",
            ),
            (
                &plain,
                Language::JavaScript,
                "const first = await store.orders({ count: 1000 })",
                "const again = await store.orders({ count: 1000 })\nconsole.log(JSON.stringify(first) === JSON.stringify(again), again[2].state, again[4].state)",
                "true open null",
            ),
            (
                &data,
                Language::Python,
                "first = store.orders(count=1000)",
                "again = store.orders(count=1000)\nprint(first.equals(again), again.state.dtype, again.state[2], again.state[4])",
                "True str open nan",
            ),
        ] {
            // A run ends when what it fetched is kept.
            result(session, language, first).await;
            assert_eq!(text(session, language, again).await.trim(), expected, "{language:?}");
        }
        assert_eq!(store.asked(), 3);
    });
}

#[test]
fn a_fetch_is_told_with_its_columns_samples_and_artifact() {
    on_runtime(async {
        let store = Store::default();
        let folder = tempfile::tempdir().expect("a folder");
        let artifacts = ArtifactStore::open(folder.path(), ArtifactQuota::default()).expect("a store");
        let outputs = OutputOptions { artifacts: Some(artifacts), ..OutputOptions::default() };
        let config = SessionConfig { outputs, ..store.config() };
        let session = host().session(config).expect("a session");
        let told = result(&session, Language::Python, "len(store.orders(count=12))").await;
        let fetch = told.fetches().next().expect("a fetch");
        assert_eq!((fetch.connector.as_str(), fetch.fetch.as_str(), fetch.rows), ("store", "orders", 12));
        let columns: Vec<_> = fetch.columns.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
        assert_eq!(columns, ["id int64", "total float64", "state string"]);
        let sample = |text: &str| serde_json::from_str::<Vec<Value>>(text).expect("rows");
        let (head, tail) = (sample(&fetch.head), sample(&fetch.tail));
        assert_eq!((head.len(), &head[1]), (5, &json!({"id": 1, "total": 0.25, "state": "paid"})));
        assert_eq!((tail.len(), &tail[4]["id"]), (5, &json!(11)));
        let id = fetch.artifact.clone().expect("an artifact");
        let file = session.artifacts().expect("artifacts").read(&id).expect("a file");
        assert_eq!(Batches::read_parquet(file).expect("Parquet").rows(), 12);
        // The same rows are the same artifact.
        let again = result(&session, Language::Python, "len(store.orders(count=12, refresh=True))").await;
        assert_eq!(again.fetches().next().and_then(|fetch| fetch.artifact.clone()), Some(id));
    });
}

#[test]
fn a_large_fetch_is_told_where_it_ended_though_its_rows_are_kept_later() {
    on_runtime(async {
        let store = Store::default();
        let session = host().session(store.config()).expect("a session");
        let code =
            "print('before')\nfor _ in range(2):\n    found = store.orders(count=200_000)\n    print(len(found))";
        let run = session.run(vec![Cell::new(Language::Python, code)]).expect("a run");
        let word = |kind: &EventKind| {
            Some(match kind {
                EventKind::Stdout { text, .. } => text.trim().to_owned(),
                EventKind::CallStarted { .. } => "called".to_owned(),
                EventKind::Fetched { fetch, .. } => {
                    assert!(fetch.artifact.is_some() && fetch.notice.is_none(), "{fetch:?}");
                    format!("fetched, cached: {}", fetch.is_cached)
                }
                EventKind::CallFinished { error: None, .. } => "answered".to_owned(),
                _ => return None,
            })
        };
        let events: Vec<_> = run.filter_map(|event| async move { word(&event.kind) }).collect().await;
        let fetch = |cached: bool| ["called".to_owned(), format!("fetched, cached: {cached}"), "answered".to_owned()];
        let expected = [&["before".to_owned()][..], &fetch(false), &["200000".to_owned()], &fetch(true)].concat();
        assert_eq!(events, [expected, vec!["200000".to_owned()]].concat());
        assert_eq!(store.asked(), 1);
        // One that ends its cell is told all the same.
        let last = result(&session, Language::Python, "kept = store.orders(count=200_001)").await;
        assert!(last.fetches().all(|fetch| fetch.artifact.is_some()) && last.fetches().count() == 1, "{last:?}");
    });
}

#[test]
fn rows_that_are_lost_are_fetched_again() {
    on_runtime(async {
        let store = Store::default();
        let folder = tempfile::tempdir().expect("a folder");
        let artifacts = ArtifactStore::open(folder.path(), ArtifactQuota::default()).expect("a store");
        let outputs = OutputOptions { artifacts: Some(artifacts), ..OutputOptions::default() };
        let config = SessionConfig { outputs, ..store.config() };
        let session = host().session(config).expect("a session");
        text(&session, Language::Python, "len(store.orders())").await;
        remove_objects(folder.path());
        assert_eq!(text(&session, Language::Python, "len(store.orders())").await, "3");
        assert_eq!(store.asked(), 2);
    });
}

fn remove_objects(folder: &Path) {
    for entry in std::fs::read_dir(folder.join("objects")).expect("a folder") {
        std::fs::remove_file(entry.expect("an entry").path()).expect("removed");
    }
}

#[test]
fn a_replay_has_the_rows_without_the_source() {
    on_runtime(async {
        let store = Store::default();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("recording");
        let session =
            host().session(SessionConfig { record: Some(file.clone()), ..store.config() }).expect("a session");
        let mut heard = Vec::new();
        for (language, code) in [
            (Language::Python, "print(store.orders(), store.orders())"),
            (Language::JavaScript, "console.log(await store.orders(), store.kinds.sync())"),
        ] {
            let run = session.run(vec![Cell::new(language, code)]).expect("a run");
            heard.push(run.collect::<Vec<_>>().await);
        }
        session.end_recording().expect("a recording");
        drop(session);
        let asked = store.asked();
        let mut replay = host().replay(&file).expect("a recording");
        let mut played = vec![Vec::new(); 2];
        while let Some(Replayed { run, event }) = replay.next().await.expect("a replay that does not diverge") {
            played[run as usize - 1].push(event);
        }
        assert_eq!(played, heard);
        let fetched = heard.iter().flatten().filter(|event| matches!(event.kind, EventKind::Fetched { .. }));
        assert_eq!((fetched.count(), store.asked()), (4, asked));
    });
}

#[test]
fn the_data_guest_makes_frames_with_the_right_types() {
    on_runtime(async {
        let kernels = KernelOptions { guests: vec![cellar_engine::GuestName::PythonData], ..KernelOptions::default() };
        let session = host().session(SessionConfig { kernels, ..Store::default().config() }).expect("a session");
        let types = "{name: str(kind) for name, kind in store.kinds().dtypes.items()}";
        let expected = "{'small': 'Int8', 'large': 'UInt64', 'float': 'float64', 'flag': 'boolean', 'text': 'str', 'day': 'object', 'local': 'datetime64[us]', 'moment': 'datetime64[us, Europe/Warsaw]', 'time': 'object', 'money': 'object', 'kind': 'category', 'bytes': 'object', 'list': 'object'}";
        assert_eq!(text(&session, Language::Python, &format!("print({types})")).await, expected);
        let code = "df = store.orders(count=100_001)\nprint(len(df), df.total.sum(), df.total.isna().sum(), df.state.nunique())";
        assert_eq!(text(&session, Language::Python, code).await, "100001 833350000.0 33333 2");
        let lists = "store.kinds(count=4).list.tolist()";
        assert_eq!(text(&session, Language::Python, lists).await, "[[1, None], None, []]");
    });
}
