//! Completions of Python code.

use cellar_engine::{Language, Session};

use crate::guests::snapshots::{host, on_runtime, text};

/// Run before anything is completed. `calls` tells what was run since.
const NAMES: &str = "\
class Person:
    def __init__(self, name, age): self.name = name
    def greet(self, greeting='hi', *, loud=False): return greeting
person = Person('Ada', 36)
rows = [{'city': 'Paris'}]
settings = {'timeout': 3, 'nested': {'deep_key': 1}}
calls = []
def fetch_all(url, *, concurrency=4) -> dict: calls.append(url)
class Loud:
    def __call__(self): calls.append('called')
    def __getitem__(self, key): calls.append(key)
    def __len__(self): calls.append('len')
    def keys(self): calls.append('keys')
    def __add__(self, other): calls.append('add')
loud = Loud()
open('data.csv', 'w').close()
text = 'abc'";

/// Code up to the cursor, with a completion that must be offered.
const OFFERED: &[(&str, &str)] = &[
    ("person.na", "name"),
    ("import os\nos.path.joi", "join"),
    ("x = fet", "fetch_all"),
    ("fetch_all('x', conc", "concurrency="),
    ("person.greet(lo", "loud="),
    ("sorted(rows, ke", "key="),
    ("Person(na", "name="),
    ("settings['ti", "timeout"),
    ("settings[", "'timeout'"),
    ("rows[0][\"ci", "city"),
    ("settings['nested']['de", "deep_key"),
    ("import collec", "collections"),
    ("import json.dec", "decoder"),
    ("from os import path as p, getc", "getcwd"),
    ("total_count = 3\ntotal_", "total_count"),
    ("import functools as ft\nft.par", "partial"),
    ("def f(alpha):\n    return alp", "alpha"),
    ("x = 'é'\nx.upp", "upper"),
    ("text.strip().spl", "split"),
    ("fetch_all('x').ite", "items"),
    ("def broken(:\n    pass\nperson.na", "name"),
    ("with open('data.csv') as handle:\n    handle.readl", "readline"),
    ("for row in rows:\n    row.ke", "keys"),
    ("open('dat", "data.csv"),
    ("f'{person.na", "name"),
];

/// Code at whose end nothing may be offered: comments, texts, names that only running something would tell, and text that is no code.
const SILENT: &[&str] = &[
    "# pri",
    "'hello per",
    "loud().",
    "loud['a'].",
    "(loud + 1).",
    "loud[",
    "1.",
    "fetch_all(1)(2).",
    "'''\n\n",
    ")))((([",
];

async fn complete(session: &Session, code: &str) -> (u32, u32, Vec<String>) {
    let cursor = u32::try_from(code.chars().count()).expect("a short text");
    let found = session.complete(Language::Python, code, cursor).await.expect("completions");
    (found.start, found.end, found.items.into_iter().map(|item| item.text).collect())
}

#[test]
fn python_offers_what_fits_and_runs_nothing() {
    on_runtime(async {
        let session = host().session(cellar_engine::SessionConfig::default()).expect("a session");
        text(&session, Language::Python, NAMES).await;
        for (code, wanted) in OFFERED {
            let (start, end, items) = complete(&session, code).await;
            assert!(items.iter().any(|item| item == wanted), "`{code}` offers {items:?}");
            let typed: String =
                code.chars().take(end as usize).skip(start as usize).filter(|each| *each != '\'').collect();
            assert!(wanted.trim_start_matches('\'').starts_with(&typed), "`{code}` would replace `{typed}`");
        }
        for code in SILENT {
            let (_, _, items) = complete(&session, code).await;
            assert!(items.is_empty(), "`{code}` offers {items:?}");
        }
        assert_eq!(text(&session, Language::Python, "len(calls)").await, "0");
    });
}

#[test]
fn python_completes_long_and_broken_code_soon() {
    on_runtime(async {
        let session = host().session(cellar_engine::SessionConfig::default()).expect("a session");
        let hostile = [
            "(".repeat(200_000),
            "a ".repeat(100_000),
            "\n".repeat(200_000),
            "x.".repeat(50_000),
            "'\\".repeat(99_999),
        ];
        for mut code in hostile {
            code.push_str("\npri");
            let began = std::time::Instant::now();
            complete(&session, &code).await;
            // Ten times the two seconds that the guest allows itself.
            let start = code.get(..10).unwrap_or_default();
            assert!(began.elapsed().as_secs() < 20, "{:?} for `{start}…`", began.elapsed());
        }
        assert_eq!(text(&session, Language::Python, "1 + 1").await, "2");
    });
}
