//! Connectors to real databases, which the tests start.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use cellar_connectors::{
    Bounds, ConnectorOptions, Connectors, Database, FetchError, FetchFault, FetchOptions, Kind, Parameter,
    ParameterKind, SQL_FETCH, Secret,
};
use cellar_tables::Batches;
use serde_json::{Map, Value, json};

const PASSWORD: &str = "p4ssw0rd-of-the-test";

/// A server in a folder of its own, which ends with this.
struct Server {
    child: Child,
    folder: tempfile::TempDir,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The user that servers run as: they refuse root.
fn as_nobody(program: &Path) -> Command {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]).arg(program);
    command
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("open to all");
    folder
}

fn run(command: &mut Command) -> String {
    let ended = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

fn postgres_program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("Debian's package `postgresql`");
    let newest = versions.flatten().map(|entry| entry.path()).max().expect("a version of PostgreSQL");
    newest.join("bin").join(name)
}

/// PostgreSQL on a socket of its own, with a role that may read and one that owns all.
fn postgres() -> Server {
    let folder = folder();
    let data = folder.path().join("data");
    let mut init = as_nobody(&postgres_program("initdb"));
    run(init.args(["--no-sync", "--auth=trust", "--username=owner", "--encoding=UTF8", "--locale=C", "-D"]).arg(&data));
    let mut start = as_nobody(&postgres_program("postgres"));
    start.arg("-D").arg(&data).arg("-k").arg(folder.path());
    start.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60"]);
    let child = start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let host = folder.path().to_str().expect("a path").replace('/', "%2F");
    let url = format!("postgresql://reader:{PASSWORD}@/shop?host={host}&sslmode=disable");
    let server = Server { child, folder, url };
    let psql = |database: &str, sql: &str| {
        let mut command = Command::new(postgres_program("psql"));
        command.arg("-h").arg(server.folder.path()).args([
            "-U",
            "owner",
            "-v",
            "ON_ERROR_STOP=1",
            "-q",
            "-d",
            database,
        ]);
        command.args(["-c", sql]).stdin(Stdio::null()).output().expect("psql starts")
    };
    until(|| psql("postgres", "select 1").status.success());
    for (database, sql) in [("postgres", "create database shop"), ("shop", POSTGRES_TABLES)] {
        let ended = psql(database, sql);
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    server
}

const POSTGRES_TABLES: &str = "
create role reader login password 'p4ssw0rd-of-the-test';
create type state as enum ('open', 'paid');
create domain positive as int check (value > 0);
create table orders (id int primary key, day date, state state, total numeric(10, 2), note text);
insert into orders select n, date '2026-01-01' + n, (case when n % 2 = 0 then 'open' else 'paid' end)::state, n / 4.0,
    case when n % 3 = 0 then null else 'zażółć ' || n end from generate_series(1, 1000) n;
create table kinds (a smallint, b bigint, c real, d double precision, e numeric, f bool, g bytea, h timestamp,
    i timestamptz, j time, k uuid, l jsonb, m int[], n text[], o inet, p interval, q positive, r money);
insert into kinds values (1, 9223372036854775807, 0.5, 0.1, 123456789012345678901234567890.123, true, '\\x00ff',
    '2026-01-01 12:00:00.5', '2026-01-01 12:00:00+02', '01:02:03', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
    '{\"x\": [1, null]}', '{{1,2},{3,null}}', '{a,\"b c\"}', '10.0.0.1/8', '1 year 2 days 3.5 seconds', 7, 12.34);
insert into kinds (a) values (null);
create type pair as (a int, b text);
create table odd (day date, at timestamp, moment timestamptz, clock time, n numeric, long numeric, span int4range, place point,
    bits bit(3), pair pair, plain int);
insert into odd values ('2026-01-31', '2026-01-31 12:00:00.5', '2026-01-31 12:00:00+00', '01:02:03', 1.50, 1.5, '[1,5)', '(1,2)',
    '101', '(1,a)', 1);
insert into odd values ('0044-03-15 BC', 'infinity', '-infinity', '24:00', 'NaN', 12345678901234567890123456789012345678901234567890.25,
    'empty', null, null, null, 2);
insert into odd values (null, '10000-01-01', '0001-12-31 23:00:00+00 BC', null, null, -0.00000000000000000000000000000000000000000000000125,
    null, null, null, null, 3);
create function writes() returns int language sql volatile as 'insert into orders (id) values (0) returning id';
grant select on all tables in schema public to reader;
";

/// MariaDB on a socket of its own.
fn mariadb() -> Server {
    let folder = folder();
    let data = folder.path().join("data");
    let program = |name: &str| {
        let places = ["/usr/bin", "/usr/sbin"].map(|place| Path::new(place).join(name));
        places.into_iter().find(|path| path.exists()).expect("Debian's package `mariadb-server`")
    };
    let mut init = as_nobody(&program("mariadb-install-db"));
    run(init
        .arg("--no-defaults")
        .arg(format!("--datadir={}", data.display()))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"]));
    let socket = folder.path().join("socket");
    let mut start = as_nobody(&program("mariadbd"));
    start
        .arg("--no-defaults")
        .arg(format!("--datadir={}", data.display()))
        .arg(format!("--socket={}", socket.display()));
    start.args(["--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--default-time-zone=+00:00"]);
    start.arg("--sql-mode=STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES,ANSI_QUOTES,ALLOW_INVALID_DATES");
    let child = start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let encoded = socket.to_str().expect("a path").replace('/', "%2F");
    let url = format!("mysql://reader:{PASSWORD}@localhost/shop?socket={encoded}");
    let server = Server { child, folder, url };
    let client = |sql: &str| {
        let mut command = Command::new(program("mariadb"));
        command.args(["--no-defaults", "--default-character-set=utf8mb4", "-u", "root", "-e", sql]);
        command.arg(format!("--socket={}", socket.display()));
        command.stdin(Stdio::null()).output().expect("the client starts")
    };
    until(|| client("select 1").status.success());
    let ended = client(MARIADB_TABLES);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    server
}

const MARIADB_TABLES: &str = "
create database shop character set utf8mb4; use shop;
create user reader@localhost identified by 'p4ssw0rd-of-the-test';
set sql_mode = 'ALLOW_INVALID_DATES';
create table orders (id int primary key, day date, state enum('open', 'paid'), total decimal(10, 2), note text);
insert into orders select seq, date_add('2026-01-01', interval seq day), if(seq % 2 = 0, 'open', 'paid'), seq / 4.0,
    if(seq % 3 = 0, null, concat('zażółć ', seq)) from seq_1_to_1000;
create table kinds (a tinyint(1), b bigint unsigned, c float, d double, e decimal(38, 3), f bit(10), g blob, h datetime(6),
    i timestamp null, j time, k year, l json, m date);
insert into kinds values (1, 18446744073709551615, 0.5, 0.1, 12345678901234567890.123, b'1010', x'00ff',
    '2026-01-01 12:00:00.5', '2026-01-01 12:00:00', '-01:02:03', 2026, '{\"x\": [1, null]}', '2026-01-31');
insert into kinds (m) values ('0000-00-00');
grant select on shop.* to reader@localhost;
";

/// Longest time to wait for a server, on a machine with other work as well.
const PATIENCE: Duration = Duration::from_secs(120);

fn until(mut test: impl FnMut() -> bool) {
    let began = Instant::now();
    while !test() {
        assert!(began.elapsed() < PATIENCE, "the server did not come up");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn parameter(name: &str, kind: ParameterKind, default: Value) -> Parameter {
    Parameter {
        name: name.to_owned(),
        kind,
        description: String::new(),
        is_list: false,
        is_required: false,
        default,
        choices: Vec::new(),
        min: None,
        max: None,
    }
}

/// The connector `shop` with a fetch that has a parameter of each kind, and free SQL.
fn shop(url: &str, is_postgres: bool, bounds: Bounds) -> Connectors {
    let fetch = FetchOptions {
        description: String::new(),
        parameters: vec![
            parameter("since", ParameterKind::Date, json!("2026-01-01")),
            parameter("until", ParameterKind::Timestamp, json!("2100-01-01T00:00:00")),
            parameter("state", ParameterKind::String, json!("open")),
            parameter("least", ParameterKind::Number, json!(0)),
            parameter("most", ParameterKind::Integer, json!(10)),
            parameter("noted", ParameterKind::Boolean, json!(true)),
        ],
        columns: Vec::new(),
        asks: "select id, day, state, total, note from orders where day >= :since and day < :until and state = :state
               and total >= :least and (note is not null) = :noted order by id limit :most"
            .to_owned(),
    };
    let fetches = BTreeMap::from([("orders".to_owned(), fetch)]);
    let database = Database { url: Secret::Plain(url.to_owned()), sql: true, fetches };
    let kind = if is_postgres { Kind::Postgres(database) } else { Kind::Mysql(database) };
    let options = ConnectorOptions { description: String::new(), bounds, kind };
    Connectors::new(BTreeMap::from([("shop".to_owned(), options)])).expect("connectors")
}

async fn fetch(connectors: &Connectors, name: &str, arguments: Value) -> Result<Batches, FetchError> {
    let Value::Object(arguments) = arguments else { panic!("no object") };
    let canonical = connectors.check("shop", name, arguments)?;
    connectors.fetch("shop", name, canonical).await
}

async fn sql(connectors: &Connectors, query: &str) -> Result<Batches, FetchError> {
    fetch(connectors, SQL_FETCH, json!({"query": query})).await
}

fn all(rows: &Batches) -> Vec<Map<String, Value>> {
    let (head, tail) = rows.sample(1_000).expect("rows");
    let rows = |value: Value| serde_json::from_value::<Vec<Map<String, Value>>>(value).expect("objects");
    let mut found = rows(head);
    found.extend(rows(tail));
    found
}

fn types(rows: &Batches) -> String {
    rows.columns().into_iter().map(|(name, kind)| format!("{name} {kind}")).collect::<Vec<_>>().join(", ")
}

fn runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test);
}

/// Checks the properties that all databases share.
async fn holds(connectors: &Connectors, slow: &str, writes: &[&str]) {
    let rows = fetch(connectors, "orders", json!({"most": 2})).await.expect("rows");
    let found = all(&rows);
    assert_eq!(
        Value::from(found[0].clone()),
        json!({"id": 2, "day": "2026-01-03", "state": "open", "total": "0.50", "note": "zażółć 2"})
    );
    assert_eq!(found.len(), 2);
    // What is tried to be got in is a value like any other, or none.
    for (name, value) in [
        ("since", json!("2026-01-01'; drop table orders; --")),
        ("until", json!("2026-01-01T00:00:00' or 1=1 --")),
        ("least", json!("0 or 1=1")),
        ("most", json!("1; drop table orders")),
        ("noted", json!("true or true")),
    ] {
        let error = fetch(connectors, "orders", json!({name: value})).await.expect_err(name);
        assert_eq!(error.fault, FetchFault::Invalid, "{error}");
        assert!(error.message.contains(name), "{error}");
    }
    for value in ["open' or 'a' = 'a", "\\' or 1=1 -- ", "open'); drop table orders; --", "open\u{0}"] {
        if let Ok(rows) = fetch(connectors, "orders", json!({"state": value})).await {
            assert_eq!(rows.rows(), 0, "{value}");
        }
    }
    assert_eq!(all(&sql(connectors, "select count(*) as n from orders").await.expect("rows"))[0]["n"], 1_000);
    for query in writes {
        let error = sql(connectors, query).await.expect_err(query);
        assert_eq!(error.fault, FetchFault::Denied, "{query}: {error}");
    }
    assert_eq!(all(&sql(connectors, "select count(*) as n from orders").await.expect("rows"))[0]["n"], 1_000);
    // Lists stand for their values, also where there is none.
    for (test, ids, expected) in [
        ("id in (:ids)", json!([1, 2, 3, 3]), 3),
        ("id not in (:ids)", json!([1, 2]), 998),
        ("id = any(:ids)", json!([5, 6]), 2),
        ("id in (:ids)", json!([]), 0),
        ("id not in (:ids)", json!([]), 1_000),
        ("note in :ids", json!(["open' or 'a' = 'a", "x"]), 0),
        ("day in (:ids)", json!(["2026-01-03", null]), 1),
    ] {
        let query = format!("select id from orders where {test}");
        let asked = json!({"query": query, "parameters": {"ids": ids}});
        let found = fetch(connectors, SQL_FETCH, asked).await.map(|rows| rows.rows());
        let found = found.unwrap_or_else(|error| panic!("{test} {ids}: {error}"));
        assert!(if test.starts_with("day") { found >= expected } else { found == expected }, "{test} {ids}: {found}");
    }
    // A hundred at a time.
    let many = (0..100).map(|n| fetch(connectors, "orders", json!({"least": n})));
    for rows in futures::future::join_all(many).await {
        assert_eq!(rows.expect("rows").rows(), 10);
    }
    // More than a fetch may have.
    let error = sql(connectors, "select a.id from orders a, orders b").await.expect_err("too many");
    assert!(error.fault == FetchFault::Limit && error.message.contains("max_rows"), "{error}");
    let error = sql(connectors, "select repeat('x', 1000000) as x from orders").await.expect_err("too large");
    assert!(error.fault == FetchFault::Limit && error.message.contains("max_mib"), "{error}");
    // A statement that does not end costs its own time, and is ended at the server.
    let error = sql(connectors, slow).await.expect_err("slow");
    assert!(error.fault == FetchFault::Limit && error.message.contains("timeout"), "{error}");
    // One that nobody waits for is ended as well.
    let abandoned = tokio::time::timeout(Duration::from_millis(100), sql(connectors, slow)).await;
    assert!(abandoned.is_err());
    assert_eq!(fetch(connectors, "orders", json!({"most": 1})).await.expect("rows").rows(), 1);
    let error = sql(connectors, "select nothing from orders").await.expect_err("no column");
    assert!(error.message.contains("nothing") && !error.message.contains(PASSWORD), "{error}");
}

fn bounds() -> Bounds {
    Bounds { rows: 100_000, bytes: 16 << 20, timeout: Duration::from_secs(10), concurrency: 8 }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one server, and all that is read of it")]
fn postgres_is_read() {
    let mut server = postgres();
    runtime(async {
        let connectors = shop(&server.url, true, bounds());
        assert!(connectors.probe("shop").await.expect("a server").starts_with("PostgreSQL "));
        let writes = [
            "insert into orders (id) values (0)",
            "with x as (delete from orders returning id) select * from x",
            "select writes()",
            "copy orders to program 'touch /tmp/x'",
            "select 1; drop table orders",
            "select set_config('transaction_read_only', 'off', true), writes()",
            "select pg_read_file('/etc/passwd')",
            "select lo_export(1, '/tmp/x')",
            "create table x (id int)",
        ];
        holds(&connectors, "select pg_sleep(600)", &writes).await;
        let rows = sql(&connectors, "select * from kinds").await.expect("rows");
        assert_eq!(
            types(&rows),
            "a int16, b int64, c float32, d float64, e decimal(38, 3), f bool, g binary, h timestamp[us], i timestamp[us, UTC], j time, k string, l string, m string, n string, o string, p string, q int32, r decimal(38, 2)"
        );
        let first = Value::from(all(&rows)[0].clone());
        assert_eq!(
            first,
            json!({
                "a": 1, "b": i64::MAX, "c": 0.5, "d": 0.1, "e": "123456789012345678901234567890.123", "f": true,
                "g": first["g"], "h": "2026-01-01T12:00:00.500", "i": "2026-01-01T10:00:00Z", "j": "01:02:03",
                "k": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "l": "{\"x\":[1,null]}", "m": "[[1,2],[3,null]]",
                "n": "[\"a\",\"b c\"]", "o": "10.0.0.1/8", "p": "P1Y2DT3.5S", "q": 7, "r": "12.34",
            })
        );
        assert!(all(&rows)[1].values().all(Value::is_null), "{:?}", all(&rows)[1]);
        // What no column of its type has makes texts of the column, as the server writes them, and is not lost.
        let rows = sql(&connectors, "select * from odd order by plain -- all of it").await.expect("rows");
        assert_eq!(
            types(&rows),
            "day string, at string, moment string, clock string, n string, long string, span string, place string, bits string, pair string, plain int32"
        );
        assert_eq!(
            Value::from(all(&rows)),
            json!([
                {"day": "2026-01-31", "at": "2026-01-31 12:00:00.5", "moment": "2026-01-31 12:00:00+00", "clock": "01:02:03", "n": "1.50",
                    "long": "1.5", "span": "[1,5)", "place": "(1,2)", "bits": "101", "pair": "(1,a)", "plain": 1},
                {"day": "0044-03-15 BC", "at": "infinity", "moment": "-infinity", "clock": "24:00:00", "n": "NaN",
                    "long": "12345678901234567890123456789012345678901234567890.25", "span": "empty", "place": null, "bits": null,
                    "pair": null, "plain": 2},
                {"day": null, "at": "10000-01-01 00:00:00", "moment": "0001-12-31 23:00:00+00 BC", "clock": null, "n": null,
                    "long": "-0.00000000000000000000000000000000000000000000000125", "span": null, "place": null, "bits": null,
                    "pair": null, "plain": 3},
            ])
        );
        let said = sql(
            &connectors,
            "select day::text, at::text, moment::text, clock::text, n::text, long::text, span::text, place::text, bits::text, pair::text, plain from odd order by plain",
        );
        assert_eq!(all(&said.await.expect("rows")), all(&rows));
        let ends = "select date '0001-01-01' as a, date '9999-12-31' as b, timestamp '0001-01-01' as c, timestamp '9999-12-31 23:59:59.999999' as d";
        assert_eq!(
            types(&sql(&connectors, ends).await.expect("rows")),
            "a date, b date, c timestamp[us], d timestamp[us]"
        );
        let echoed = fetch(
            &connectors,
            SQL_FETCH,
            json!({
                "query": "select :a::int as a, :b::numeric as b, :c::date as c, :d::timestamptz as d, :e::jsonb as e, :f::uuid as f, :g::state as g, :h::bool as h, :i::text as i, :j::float8 as j",
                "parameters": {
                    "a": -5, "b": "-12345.67", "c": "2026-02-28", "d": "2026-01-01T00:00:00Z", "e": {"x": [1]},
                    "f": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "g": "paid", "h": null, "i": "'; --", "j": 1,
                },
            }),
        );
        assert_eq!(
            Value::from(all(&echoed.await.expect("rows"))[0].clone()),
            json!({
                "a": -5, "b": "-12345.67", "c": "2026-02-28", "d": "2026-01-01T00:00:00Z", "e": "{\"x\":[1]}",
                "f": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "g": "paid", "h": null, "i": "'; --", "j": 1.0,
            })
        );
        // No statement of those that were given up runs on.
        let running = "select count(*) as n from pg_stat_activity where state = 'active' and query like '%pg_sleep(600)' and pid <> pg_backend_pid()";
        let began = Instant::now();
        while all(&sql(&connectors, running).await.expect("rows"))[0]["n"] != 0 {
            assert!(began.elapsed() < PATIENCE, "a statement runs on");
        }
        // A server that dies in the middle.
        let patient = shop(&server.url, true, Bounds { timeout: Duration::from_secs(60), ..bounds() });
        let (died, _) = tokio::join!(sql(&patient, "select pg_sleep(600)"), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let _ = Command::new("kill").arg("-QUIT").arg(server.child.id().to_string()).status();
        });
        let error = died.expect_err("the server died");
        assert!(error.fault == FetchFault::Failed && !error.message.contains(PASSWORD), "{error}");
        let _ = server.child.wait();
        let error = sql(&patient, "select 1").await.expect_err("no server");
        assert!(error.message.contains("the database cannot be reached") && !error.message.contains('/'), "{error}");
    });
}

/// Statements that reach beyond tables are refused also where the role could carry them out: the owner of a server.
#[test]
fn postgres_reaches_no_file_and_no_program_whatever_the_role_may() {
    let server = postgres();
    let owner = server.url.replacen(&format!("reader:{PASSWORD}"), "owner", 1);
    let file = server.folder.path().join("data/written");
    let (to, read) = (file.display(), server.folder.path().join("data/PG_VERSION"));
    let read = read.display();
    runtime(async {
        let connectors = shop(&owner, true, bounds());
        let attacks = [
            format!("copy (select 1) to program 'touch {to}'"),
            format!("copy (select 1) to '{to}'"),
            format!("select 1; copy (select 1) to program 'touch {to}'"),
            format!("select lo_export(lo_from_bytea(0, 'x'), '{to}')"),
            format!("select lo_import('{read}')"),
            format!("select pg_read_file('{read}')"),
            format!("select \"pg_read_file\"('{read}')"),
            format!("select U&\"pg\\005fread_file\"('{read}')"),
            format!("select pg_read_binary_file('{read}')"),
            "select pg_ls_dir('.')".to_owned(),
            format!("select (pg_stat_file('{read}')).size"),
            format!("select query_to_xml('select pg_read_file($x${read}$x$)', true, true, '')"),
            "select set_config('transaction_read_only', 'off', true)".to_owned(),
            "select pg_reload_conf()".to_owned(),
            "do $$ begin end $$".to_owned(),
        ];
        for attack in &attacks {
            let error = sql(&connectors, attack).await.expect_err(attack);
            assert_eq!(error.fault, FetchFault::Denied, "{attack}: {error}");
            assert_eq!(sql(&connectors, "select 1 as a").await.expect("it goes on").rows(), 1, "{attack}");
        }
        assert!(!file.exists());
        // One row that is too large is not read.
        let large = "select repeat('x', 200000000), repeat('y', 200000000), repeat('z', 200000000)";
        let error = sql(&connectors, large).await.expect_err("large");
        assert!(error.fault == FetchFault::Limit && error.message.contains("than a fetch may have"), "{error}");
        assert_eq!(sql(&connectors, "select repeat('x', 1000000) as a").await.expect("small").rows(), 1);
    });
}

#[test]
fn mariadb_reaches_no_file_whatever_the_role_may() {
    let server = mariadb();
    let owner = server.url.replacen(&format!("reader:{PASSWORD}"), "root", 1);
    let file = server.folder.path().join("written");
    let (to, read) = (file.display(), server.folder.path().join("data/aria_log_control"));
    let read = read.display();
    runtime(async {
        let connectors = shop(&owner, false, bounds());
        let attacks = [
            format!("select 1 into outfile '{to}'"),
            format!("select 5--6 into outfile '{to}'"),
            format!("select 'PWNED' --1 into outfile '{to}'"),
            format!("select 5--\u{1}6 into outfile '{to}'"),
            format!("select 1 into/**/dumpfile '{to}'"),
            format!("select 1 into # x\n dumpfile '{to}'"),
            format!("select 1 /*! into outfile '{to}' */"),
            format!("select 1 /*M! into outfile '{to}' */"),
            format!("values (1) into outfile '{to}'"),
            format!("select load_file('{read}')"),
            format!("select `load_file`('{read}')"),
            format!("select Load_File/* */('{read}')"),
            "load data infile '/etc/passwd' into table orders".to_owned(),
            "set global general_log = 1".to_owned(),
        ];
        for attack in &attacks {
            let error = sql(&connectors, attack).await.expect_err(attack);
            assert_eq!(error.fault, FetchFault::Denied, "{attack}: {error}");
            let harmless = sql(&connectors, "select 5--6 as a").await.expect("it goes on");
            assert_eq!(all(&harmless)[0]["a"], 11, "{attack}");
        }
        sql(&connectors, &format!("select 5--\u{a0}' \n into outfile '{to}' -- '")).await.expect_err("a text");
        assert!(!file.exists());
        // Strings end where they seem to, whatever mode the server was started with.
        let mode = sql(&connectors, "select @@sql_mode as mode").await.expect("rows");
        let mode = all(&mode)[0]["mode"].as_str().expect("text").to_owned();
        assert!(!mode.contains("ANSI") && !mode.contains("BACKSLASH") && mode.contains("STRICT"), "{mode}");
        let large = "select repeat('x', 15000000) a, repeat('y', 15000000) b, repeat('z', 15000000) c";
        let error = sql(&connectors, large).await.expect_err("large");
        assert!(error.fault == FetchFault::Limit && error.message.contains("than a fetch may have"), "{error}");
        assert_eq!(sql(&connectors, "select repeat('x', 1000000) as a").await.expect("small").rows(), 1);
    });
}

#[test]
fn mariadb_is_read() {
    let mut server = mariadb();
    runtime(async {
        let connectors = shop(&server.url, false, bounds());
        assert!(connectors.probe("shop").await.expect("a server").contains("MariaDB"));
        let writes = [
            "insert into orders (id) values (0)",
            "select 1 into outfile '/tmp/cellar-outfile'",
            "select 1; drop table orders",
            "load data infile '/etc/passwd' into table orders",
            "select load_file('/etc/passwd') from orders for update",
            "set global general_log = 1",
            "create table x (id int)",
        ];
        holds(&connectors, "select sleep(600)", &writes).await;
        let rows = sql(&connectors, "select * from kinds").await.expect("rows");
        assert_eq!(
            types(&rows),
            "a bool, b uint64, c float32, d float64, e decimal(38, 3), f uint64, g binary, h timestamp[us], i timestamp[us, UTC], j string, k int64, l string, m string"
        );
        let first = Value::from(all(&rows)[0].clone());
        assert_eq!(
            first,
            json!({
                "a": true, "b": u64::MAX, "c": 0.5, "d": 0.1, "e": "12345678901234567890.123", "f": 10, "g": first["g"],
                "h": "2026-01-01T12:00:00.500", "i": "2026-01-01T12:00:00Z", "j": "-01:02:03", "k": 2026,
                "l": first["l"], "m": "2026-01-31",
            })
        );
        assert_eq!(all(&rows)[1]["m"], "0000-00-00");
        let _ = Command::new("kill").arg("-KILL").arg(server.child.id().to_string()).status();
        let _ = server.child.wait();
        let error = sql(&connectors, "select 1").await.expect_err("no server");
        assert!(error.fault == FetchFault::Failed && !error.message.contains(PASSWORD), "{error}");
    });
}
