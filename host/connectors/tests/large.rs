//! Rows that are large, in a process of their own whose memory is looked at.

use std::collections::BTreeMap;

use cellar_connectors::{Bounds, ConnectorOptions, Connectors, FetchError, FetchFault, Kind};
use cellar_tables::Batches;
use serde_json::{Value, json};

#[tokio::test]
async fn a_row_of_sqlite_is_bounded_before_it_is_made_wherever_its_values_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ledger.db");
    rusqlite::Connection::open(&file).and_then(|made| made.execute_batch("create table t (id)")).expect("a table");
    let bounds = Bounds { bytes: 16 << 20, ..Bounds::default() };
    let kind = Kind::Sqlite { file, sql: true, fetches: BTreeMap::new() };
    let options = ConnectorOptions { description: String::new(), bounds, kind };
    let connectors = Connectors::new(BTreeMap::from([("lite".to_owned(), options)])).expect("connectors");
    let sql = |query: &str| fetch(connectors.clone(), query.to_owned());
    let made = |count: usize| {
        (0..count).map(|n| format!("printf('%.*c', 60000000, 'x') as c{n}")).collect::<Vec<_>>().join(", ")
    };
    let sum = (0..200).map(|n| format!("length(c{n})")).collect::<Vec<_>>().join(" + ");
    for query in [
        format!("select {}", made(36)),
        format!("select {sum} as n from (select {0} union all select {0})", made(200)),
        "select group_concat(hex(zeroblob(30000000))) as a from (with recursive n(i) as \
         (select 1 union all select i + 1 from n limit 40) select i from n)"
            .to_owned(),
    ] {
        let error = sql(&query).await.expect_err("too large");
        assert!(matches!(error.fault, FetchFault::Failed | FetchFault::Limit), "{error}");
        assert_eq!(sql("select 1 as a").await.expect("it goes on").rows(), 1);
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak").trim();
    let peak: u64 = peak.split(' ').next().and_then(|kib| kib.parse().ok()).expect("KiB");
    assert!(peak < 2_500_000, "{peak} KiB");
}

async fn fetch(connectors: Connectors, query: String) -> Result<Batches, FetchError> {
    let Value::Object(arguments) = json!({ "query": query }) else { panic!("an object") };
    let arguments = connectors.check("lite", "sql", arguments)?;
    connectors.fetch("lite", "sql", arguments).await
}
