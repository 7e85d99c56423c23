//! A program that is run straight through, and the same broken off at any place and continued in new processes, cannot
//! be told apart by what they show.

use proptest::{prelude::*, test_runner::Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{cellar_with_guests, run_with_input};

/// Cells of a program: the first one, and those that may follow.
struct Repertoire {
    language: &'static str,
    setup: &'static str,
    steps: &'static [&'static str],
}

const PYTHON: Repertoire = Repertoire {
    language: "py",
    setup: "\
import asyncio, collections, itertools, random, re, sqlite3
random.seed(7)
def counter():
    n = 0
    def up(by=1):
        nonlocal n
        n += by
        return n
    return up
up = counter()
def walk():
    total = 0
    while True:
        total += (yield total) or 1
gen = walk(); next(gen)
words = re.finditer(r'\\w+', 'the quick brown fox jumps over the lazy dog ' * 50)
lines = iter(range(10**6))
db = sqlite3.connect(':memory:')
_ = db.execute('create table t(n, w)')
log = open('log.txt', 'w+')
queue, heard = asyncio.Queue(), []
async def listen():
    while True:
        heard.append(await queue.get())
        queue.task_done()
listener = asyncio.create_task(listen())
gate = asyncio.Event()
async def after():
    await gate.wait()
    return up(100)
waiting = asyncio.create_task(after())
class Node:
    def __init__(self, value, rest=None):
        self.value, self.rest = value, rest
head = None
def broken(n):
    return [1, 2][n + 2]",
    steps: &[
        "up()",
        "gen.send(up())",
        "next(words).group(), words.__length_hint__() if hasattr(words, '__length_hint__') else None",
        "[next(lines) for _ in range(3)]",
        "cur = db.execute('insert into t values (?, ?)', (up(), str(random.random())))\ndb.execute('select count(*), max(n), max(w) from t').fetchall()",
        "rows = db.execute('select * from t order by w')\nrows.fetchone()",
        "rows.fetchone() if 'rows' in globals() else None",
        "log.write(f'line {up()}\\n')",
        "log.flush(); log.seek(0); log.read()",
        "queue.put_nowait(up()); await queue.join(); heard",
        "await asyncio.sleep(0); listener.done(), waiting.done()",
        "gate.set(); await waiting",
        "head = Node(random.randrange(100), head); node, seen = head, []\nwhile node:\n    seen.append(node.value); node = node.rest\nseen",
        "blob = bytearray(random.randbytes(100_000)); hash(bytes(blob)) % 1 or len(blob)",
        "del blob",
        "broken(up())",
        "import decimal; decimal.getcontext().prec = 20 + up() % 7; decimal.Decimal(1) / 7",
        "print(up()); _",
        "big = {i: str(i) * 3 for i in range(up() * 100)}; len(big)",
        "import json; json.dumps(list(itertools.islice(big.items(), 2))) if 'big' in globals() else None",
    ],
};

const JAVASCRIPT: Repertoire = Repertoire {
    language: "js",
    setup: "\
let seed = 7;
const random = () => (seed = (seed * 1103515245 + 12345) % 2147483648);
const up = (() => { let n = 0; return (by = 1) => n += by; })();
function* walk() { let total = 0; while (true) total += (yield total) || 1; }
const gen = walk(); gen.next();
const words = 'the quick brown fox '.repeat(100).matchAll(/\\w+/g);
class Box { #kept = []; put(x) { this.#kept.push(x); return this.#kept; } }
const box = new Box();
const map = new Map(); const weak = new WeakMap(); const keys = [];
let open; const gate = new Promise((done) => { open = done; });
const after = gate.then((x) => x + up(100));
const heard = []; let told;
const listen = async () => { while (true) heard.push(await new Promise((done) => { told = done; })); };
listen();
const sym = Symbol('s'); const obj = { [sym]: 1, get twice() { return this[sym] * 2; } };
function broken(n) { return null[n]; }",
    steps: &[
        "up()",
        "gen.next(up()).value",
        "words.next().value[0]",
        "box.put(random())",
        "map.set(up(), random()); [...map.entries()]",
        "keys.push({}); weak.set(keys.at(-1), up()); keys.map((key) => weak.get(key))",
        "told(up()); await null; await null; heard",
        "open(1); await after",
        "obj[sym] += up(); obj.twice",
        "broken(up())",
        "const bytes = new Uint8Array(100_000).map(() => random() & 255); bytes.reduce((a, b) => a + b)",
        "globalThis.later = new Promise((done) => setTimeout(() => done('rang'), 1)); 1",
        "await globalThis.later",
        "console.log(up()); new Date(0).toISOString()",
        "const big = Array.from({ length: up() * 100 }, (_, i) => ({ i, s: String(i) })); big.length",
        "BigInt(up()) ** 40n",
        "await write('log.txt', String(up())); await read('log.txt')",
        "[1, 2, 3].map(function f(x) { return x < 2 ? x : f(x - 1) * x; })",
    ],
};

fn play(cells: &[Value], flags: &[&str]) -> Vec<Value> {
    let request = json!({ "cells": cells });
    let mut command = cellar_with_guests(["run", "-", "--json", "--keep-going"].iter().chain(flags));
    let ended = run_with_input(&mut command, request.to_string().as_bytes());
    assert!(ended.code <= 1, "exit code {}: {}", ended.code, ended.stderr);
    let result: Value = serde_json::from_str(&ended.stdout).expect("a result");
    let cells = result["details"]["cells"].as_array().expect("cells");
    cells.iter().map(|cell| json!([cell["output"], cell["status"], cell["error"]])).collect()
}

fn check(repertoire: &Repertoire, steps: &[(usize, bool)]) {
    let cell = |code: &str| json!({ "language": repertoire.language, "code": code });
    let mut cells = vec![cell(repertoire.setup)];
    cells.extend(steps.iter().map(|(step, _)| cell(repertoire.steps[step % repertoire.steps.len()])));
    let straight = play(&cells, &[]);

    let store = TempDir::new().expect("a folder");
    let flags = ["--store", store.path().to_str().expect("text"), "--session", "s"];
    let mut broken_off = Vec::new();
    let mut part = vec![cells[0].clone()];
    for (cell, (_, breaks_before)) in cells[1..].iter().zip(steps) {
        if *breaks_before {
            broken_off.extend(play(&part, &flags));
            part.clear();
        }
        part.push(cell.clone());
    }
    broken_off.extend(play(&part, &flags));
    for (number, (one, other)) in straight.iter().zip(&broken_off).enumerate() {
        assert_eq!(one, other, "cell {number}: {}", cells[number]["code"]);
    }
}

/// Each case starts several processes. A failure prints its program, which needs no file to be found again.
fn cases() -> Config {
    Config { cases: 12, failure_persistence: None, ..Config::default() }
}

fn steps() -> impl Strategy<Value = Vec<(usize, bool)>> {
    prop::collection::vec((0_usize..100, prop::bool::weighted(0.4)), 1..16)
}

#[test]
fn a_broken_off_python_program_goes_on_as_if_nothing_had_been() {
    proptest!(cases(), |(steps in steps())| check(&PYTHON, &steps));
}

#[test]
fn a_broken_off_javascript_program_goes_on_as_if_nothing_had_been() {
    proptest!(cases(), |(steps in steps())| check(&JAVASCRIPT, &steps));
}
