//! Whole sessions captured, restored, forked and rewound, in both languages.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use cellar_engine::{
    Bridges, Cell, Error, Event, EventKind, Host, HostConfig, HostFolders, Language, Limits, Session, SessionConfig,
    Snapshot,
    bridges::{Call, CallFuture, Caller, Response, denied},
    config::{FolderGrants, Rests},
    snapshot::SnapshotError,
};
use futures::StreamExt;
use tokio::sync::Semaphore;

use crate::support::{root, stops};

const LANGUAGES: [Language; 2] = [Language::Python, Language::JavaScript];

pub(crate) fn cache() -> std::path::PathBuf {
    std::env::var_os("CELLAR_CACHE").map_or_else(|| dirs::cache_dir().expect("a home").join("cellar"), Into::into)
}

pub(crate) fn host() -> Host {
    let config = HostConfig {
        kernels_max: 32,
        stops: stops(),
        ..HostConfig::new(HostFolders { guests: root().join("target/guests"), cache: cache() })
    };
    Host::open(config).expect("a host")
}

fn open(host: &Host) -> Session {
    host.session(SessionConfig::default()).expect("a session")
}

pub(crate) async fn text(session: &Session, language: Language, code: &str) -> String {
    let run = session.run(vec![Cell::new(language, code)]).expect("a run");
    run.collect_result().await.text()
}

pub(crate) fn on_runtime(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test);
}

/// A session of another host, which goes on from this one's bytes as another process would.
async fn elsewhere(session: &Session) -> (Host, Session) {
    elsewhere_with(session, SessionConfig::default()).await
}

async fn elsewhere_with(session: &Session, config: SessionConfig) -> (Host, Session) {
    let bytes = session.snapshot().await.expect("a snapshot").to_bytes();
    let host = host();
    let snapshot = Snapshot::from_bytes(&bytes).expect("a snapshot");
    let session = host.restore(&snapshot, config).expect("a session");
    (host, session)
}

/// State that no pickle holds: how it is made, and what it answers once and twice.
const STATES: &[(Language, &str, &str, [&str; 2])] = &[
    (
        Language::Python,
        "def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n        return n\n    return up\nup = counter()\nup()",
        "up()",
        ["2", "3"],
    ),
    (
        Language::Python,
        "def numbers():\n    for n in range(9):\n        yield n\nit = numbers()\nnext(it), next(it)",
        "next(it)",
        ["2", "3"],
    ),
    (Language::Python, "rest = iter([1, 2, 3, 4])\nnext(rest)", "next(rest)", ["2", "3"]),
    (
        Language::Python,
        "import sqlite3\ndb = sqlite3.connect(':memory:')\n_ = db.execute('create table t(x)')",
        "_ = db.execute('insert into t values (1)')\ndb.execute('select count(*) from t').fetchone()[0]",
        ["1", "2"],
    ),
    (
        Language::Python,
        "import random\nrandom.seed(7)\n_ = random.random()",
        "random.randrange(10**6)",
        ["158176", "414002"],
    ),
    (
        Language::Python,
        "import asyncio\nlog = []\nasync def tick():\n    while True:\n        await asyncio.sleep(0.001)\n        log.append(1)\ntask = asyncio.create_task(tick())",
        "seen = len(log)\nwhile len(log) < seen + 3:\n    await asyncio.sleep(0.001)\ntask.done()",
        ["False", "False"],
    ),
    (Language::JavaScript, "const up = (() => { let n = 1; return () => ++n; })();", "up()", ["2", "3"]),
    (
        Language::JavaScript,
        "function* f() { let n = 0; while (true) yield n++; }\nconst it = f(); it.next(); it.next();",
        "it.next().value",
        ["2", "3"],
    ),
    (Language::JavaScript, "class P { #n = 1; up() { return ++this.#n; } }\nconst p = new P();", "p.up()", ["2", "3"]),
    (
        Language::JavaScript,
        "const m = new Map([[1, {a: 1}]]).entries(); let k = 1;",
        "k = [...m].length + k",
        ["2", "2"],
    ),
    (
        Language::JavaScript,
        "let go; let n = 0; const gate = new Promise((resolve) => { go = resolve; });\nconst after = gate.then((x) => n += x);",
        "go(5); await after; n",
        ["5", "5"],
    ),
];

#[test]
fn closures_iterators_tasks_and_databases_survive() {
    on_runtime(async {
        let host = host();
        for (language, make, probe, expected) in STATES {
            let session = open(&host);
            let made = text(&session, *language, make).await;
            assert!(!made.contains("Error"), "{make}\n{made}");
            let (_there, restored) = elsewhere(&session).await;
            assert_eq!(text(&restored, *language, probe).await, expected[0], "{make}");
            let (_there, again) = elsewhere(&restored).await;
            assert_eq!(text(&again, *language, probe).await, expected[1], "{make}");
            assert_eq!(text(&session, *language, probe).await, expected[0], "the original of {make}");
        }
    });
}

#[test]
fn both_kernels_of_a_session_are_in_one_snapshot() {
    on_runtime(async {
        let host = host();
        let session = open(&host);
        for language in LANGUAGES {
            text(&session, language, "x = 41").await;
        }
        let snapshot = session.snapshot().await.expect("a snapshot");
        assert_eq!(snapshot.languages(), LANGUAGES);
        let (_there, restored) = elsewhere(&session).await;
        assert_eq!(restored.id(), session.id());
        for language in LANGUAGES {
            assert_eq!(text(&restored, language, "x + 1").await, "42");
        }
        // One kernel is used, the other sleeps: both are in the next snapshot.
        let (_there, restored) = elsewhere(&restored).await;
        text(&restored, Language::Python, "x += 1").await;
        let (_there, again) = elsewhere(&restored).await;
        assert_eq!(text(&again, Language::JavaScript, "x").await, "41");
        assert_eq!(text(&again, Language::Python, "x").await, "42");
    });
}

#[test]
fn a_session_that_did_little_is_small() {
    on_runtime(async {
        let session = open(&host());
        for (language, bytes_max) in [(Language::JavaScript, 8_000), (Language::Python, 40_000)] {
            text(&session, language, "1 + 1").await;
            let bytes = session.snapshot().await.expect("a snapshot").to_bytes();
            assert!(bytes.len() < bytes_max, "{language}: {}", bytes.len());
        }
        let empty = open(&host()).snapshot().await.expect("a snapshot").to_bytes();
        assert!(empty.len() < 200, "{}", empty.len());
    });
}

#[test]
fn cells_keep_their_numbers_and_sources() {
    on_runtime(async {
        let session = open(&host());
        text(&session, Language::Python, "def broken():\n    return 1 / 0").await;
        let (_there, restored) = elsewhere(&session).await;
        let traceback = text(&restored, Language::Python, "broken()").await;
        assert!(traceback.contains("<cell 1>\", line 2") && traceback.contains("<cell 2>\", line 1"), "{traceback}");
        assert!(traceback.contains("return 1 / 0"), "{traceback}");
    });
}

#[test]
fn open_files_are_opened_again_by_path_and_offset() {
    on_runtime(async {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.txt"), "one\ntwo\nthree\n").expect("written");
        let host = host();
        let config = || SessionConfig {
            folders: FolderGrants { workspace: Some(folder.path().to_owned()), ..FolderGrants::default() },
            ..SessionConfig::default()
        };
        let session = host.session(config()).expect("a session");
        text(&session, Language::Python, "a = open('a.txt'); a.readline()").await;
        text(&session, Language::Python, "b = open('b.txt', 'w'); b.write('kept'); b.flush(); b.write(' late')").await;
        let (_there, restored) = elsewhere_with(&session, config()).await;
        assert_eq!(text(&restored, Language::Python, "a.readline()").await, "'two\\n'");
        text(&restored, Language::Python, "b.close()").await;
        assert_eq!(std::fs::read_to_string(folder.path().join("b.txt")).expect("read"), "kept late");

        // Where the file is not, the next cell is told, and using it is an error.
        let (_there, elsewhere) = elsewhere(&session).await;
        let run = elsewhere.run(vec![Cell::new(Language::Python, "a.readline(); a.readline(); a.buffer.raw.read(1)")]);
        let events: Vec<Event> = run.expect("a run").collect().await;
        let lost = events.iter().filter(|event| {
            matches!(&event.kind, EventKind::Status { op, fields, .. } if op == "file_lost"
                && fields.iter().any(|(name, value)| name == "path" && format!("{value:?}").contains("/workspace/")))
        });
        assert_eq!(lost.count(), 2, "{events:?}");
        assert!(text(&elsewhere, Language::Python, "open('c.txt', 'w').write('x')").await == "1");
    });
}

#[test]
fn a_fork_goes_its_own_way() {
    on_runtime(async {
        let host = host();
        for language in LANGUAGES {
            let session = open(&host);
            let (write, read, random) = match language {
                Language::Python => ("open('f', 'w').write('a')", "open('f').read()", "import random; random.random()"),
                _ => ("await write('f', 'a'); 1", "await read('f')", "Math.random()"),
            };
            text(&session, language, "x = [1]").await;
            assert_eq!(text(&session, language, write).await, "1");
            let fork = session.fork(Some("child".to_owned())).await.expect("a fork");
            assert_eq!((fork.id(), fork.disk_usage()), ("child", session.disk_usage()));
            text(
                &fork,
                language,
                match language {
                    Language::Python => "x.append(2)",
                    _ => "x.push(2)",
                },
            )
            .await;
            text(&fork, language, &write.replace("'a'", "'b'")).await;
            let length = match language {
                Language::Python => "len(x)",
                _ => "x.length",
            };
            assert_eq!(
                (text(&session, language, length).await, text(&fork, language, length).await),
                ("1".into(), "2".into())
            );
            assert!(text(&session, language, read).await.contains('a'));
            assert!(text(&fork, language, read).await.contains('b'));
            assert_ne!(text(&session, language, random).await, text(&fork, language, random).await);
        }
    });
}

/// State of a kernel besides its values: code that sets it, code that reads it and its answer (a clock must not start
/// anew), and code that draws random numbers.
const SETTINGS: [(Language, &str, &str, &str, &str); 2] = [
    (
        Language::Python,
        "import os, random, time\nos.makedirs('deep')\nos.chdir('deep')\nos.environ['MOOD'] = 'calm'",
        "os.getcwd(), os.environ['MOOD']",
        "('/workspace/deep', 'calm')",
        "str([random.random() for _ in range(3)])",
    ),
    (
        Language::JavaScript,
        "process.env.MOOD = 'calm'; const begun = performance.now(); await new Promise((done) => setTimeout(done, 20));",
        "`${process.env.MOOD} ${performance.now() - begun > 15}`",
        "calm true",
        "`${Math.random()} ${Math.random()}`",
    ),
];

#[test]
fn a_fork_knows_what_cells_set_and_draws_numbers_of_its_own() {
    on_runtime(async {
        let host = host();
        for (language, set, ask, expected, draw) in SETTINGS {
            let session = open(&host);
            assert_eq!(text(&session, language, set).await, "(no output)");
            let forks = [session.fork(None).await.expect("a fork"), session.fork(None).await.expect("a fork")];
            let restored = host.restore(&session.snapshot().await.expect("a snapshot"), SessionConfig::default());
            let restored = restored.expect("a session");
            let mut drawn = Vec::new();
            for session in forks.iter().chain([&session, &restored]) {
                assert_eq!(text(session, language, ask).await, expected);
                drawn.push(text(session, language, draw).await);
            }
            // What is no fork goes on with the numbers that were to come.
            assert_eq!(drawn.pop().as_ref(), drawn.last());
            drawn.sort();
            drawn.dedup();
            assert_eq!(drawn.len(), 3, "{drawn:?}");
        }
    });
}

#[test]
fn rewinding_undoes_what_cells_did_to_memory() {
    on_runtime(async {
        let session = open(&host());
        for language in LANGUAGES {
            text(&session, language, "x = 1").await;
        }
        let snapshot = session.snapshot().await.expect("a snapshot");
        for language in LANGUAGES {
            text(&session, language, "x = 2").await;
        }
        session.rewind(&snapshot).expect("rewound");
        for language in LANGUAGES {
            assert_eq!(text(&session, language, "x").await, "1");
        }
        session.reset(Language::Python);
        assert!(text(&session, Language::Python, "x").await.contains("NameError"));
    });
}

/// Tools that answer when they are let.
#[derive(Clone)]
pub(crate) struct Gate(pub(crate) Arc<Semaphore>);

impl Bridges for Gate {
    fn call(&self, call: Call, _caller: Caller) -> CallFuture {
        let gate = self.0.clone();
        match &call {
            Call::Tool { name, .. } if name == "wait" => Box::pin(async move {
                gate.acquire().await.expect("open").forget();
                Ok(Response::Json("7".to_owned()))
            }),
            _ => {
                let error = denied(&call);
                Box::pin(async { Err(error) })
            }
        }
    }

    fn tools(&self) -> cellar_engine::bridges::ToolsFuture {
        let wait =
            cellar_engine::bridges::ToolSpec { name: "wait".to_owned(), description: String::new(), schema: None };
        Box::pin(std::future::ready(vec![wait]))
    }
}

static AWAITING: LazyLock<[(Language, &str, &str); 2]> = LazyLock::new(|| {
    [
        (
            Language::Python,
            "x = 'waiting'\ntry:\n    x = await tool.wait.aio()\nexcept Exception as error:\n    x = str(error)",
            "import asyncio\nwhile x == 'waiting':\n    await asyncio.sleep(0.001)\nx",
        ),
        (
            Language::JavaScript,
            "x = 'waiting'; try { x = await tool.wait(); } catch (error) { x = error.message; }",
            "while (x === 'waiting') await new Promise((done) => setTimeout(done, 1)); x",
        ),
    ]
});

#[test]
fn a_cell_that_awaits_goes_on_in_both_and_its_call_fails_in_the_fork() {
    on_runtime(async {
        let host = host();
        for (language, waits, after) in AWAITING.iter() {
            let gate = Gate(Arc::new(Semaphore::new(0)));
            let limits = Limits { timeout: Duration::from_secs(60), ..Limits::default() };
            let config = SessionConfig { bridges: Arc::new(gate.clone()), limits, ..SessionConfig::default() };
            let session = host.session(config).expect("a session");
            let mut run = session.run(vec![Cell::new(*language, *waits)]).expect("a run");
            while let Some(event) = run.next().await {
                if matches!(event.kind, EventKind::CallStarted { .. }) {
                    break;
                }
            }
            let fork = session.fork(None).await.expect("a fork");
            let answer = text(&fork, *language, after).await;
            assert!(answer.contains("restored while the call was under way"), "{answer}");
            gate.0.add_permits(1);
            assert!(!run.collect_result().await.is_error);
            assert_eq!(text(&session, *language, after).await, "7");
        }
    });
}

#[test]
fn what_cannot_be_restored_is_refused_with_the_reason() {
    on_runtime(async {
        let host = host();
        let session = open(&host);
        text(&session, Language::JavaScript, "x = new Uint8Array(8 << 20).fill(1); 1").await;
        let snapshot = session.snapshot().await.expect("a snapshot");
        let limits = Limits { memory_bytes: 4 << 20, ..Limits::default() };
        let config = SessionConfig { limits, ..SessionConfig::default() };
        let error = host.restore(&snapshot, config).expect_err("too large");
        assert!(matches!(error, Error::Snapshot(SnapshotError::Memory { limit_bytes: 4_194_304, .. })), "{error}");

        let mut bytes = snapshot.to_bytes();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        assert_eq!(
            Snapshot::from_bytes(&bytes).expect_err("damaged").to_string(),
            "the snapshot is damaged: its checksum does not match"
        );
        assert_eq!(text(&session, Language::JavaScript, "x.length").await, (8 << 20).to_string());
    });
}

#[test]
fn a_sleeping_session_gives_its_memory_back_and_wakes_for_what_it_awaits() {
    on_runtime(async {
        // Room for one kernel only.
        let config = HostConfig {
            kernels_max: 1,
            stops: stops(),
            ..HostConfig::new(HostFolders { guests: root().join("target/guests"), cache: cache() })
        };
        let host = Host::open(config).expect("a host");
        let mut asleep = Vec::new();
        for (language, waits, after) in AWAITING.iter().cycle().take(6) {
            let gate = Gate(Arc::new(Semaphore::new(0)));
            let config = SessionConfig { bridges: Arc::new(gate.clone()), ..SessionConfig::default() };
            let session = host.session(config).expect("a session");
            let mut run = session.run(vec![Cell::new(*language, *waits)]).expect("a run");
            while let Some(event) = run.next().await {
                assert!(!matches!(event.kind, EventKind::CellFinished { .. }), "{event:?}");
                if matches!(event.kind, EventKind::CallStarted { .. }) {
                    break;
                }
            }
            session.hibernate().await.expect("asleep");
            asleep.push((session, run, gate, *language, *after));
        }
        for (session, run, gate, language, after) in asleep {
            // What a snapshot of a sleeping session holds is what it fell asleep with.
            assert_eq!(session.snapshot().await.expect("a snapshot").languages(), [language]);
            gate.0.add_permits(1);
            assert!(!run.collect_result().await.is_error);
            assert_eq!(text(&session, language, after).await, "7");
            session.hibernate().await.expect("asleep");
            assert_eq!(text(&session, language, "x").await, "7");
            session.hibernate().await.expect("asleep");
        }
    });
}

#[test]
fn idle_sessions_fall_asleep_by_themselves() {
    on_runtime(async {
        let rests = Rests { hibernate_after: Some(Duration::from_millis(1)), ..Rests::default() };
        let config = HostConfig {
            rests,
            kernels_max: 2,
            stops: stops(),
            ..HostConfig::new(HostFolders { guests: root().join("target/guests"), cache: cache() })
        };
        let host = Host::open(config).expect("a host");
        let sessions: Vec<Session> = (0..6).map(|_| open(&host)).collect();
        for round in ["x = 1", "x += 1", "x"] {
            for session in &sessions {
                // A kernel that is not yet asleep may be in the way.
                let mut answer = text(session, Language::Python, round).await;
                while answer.contains("every kernel of this host is in use") {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    answer = text(session, Language::Python, round).await;
                }
                assert_eq!(answer, if round == "x" { "2" } else { "(no output)" });
            }
        }
    });
}
