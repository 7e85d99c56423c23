//! Python cells of one session that wait in the middle of their code: none holds up another.

use std::time::Duration;

use cellar_engine::{Cell, Error, EventKind, Language, Limits, Outcome, Run, Session, outcome::FailureKind};
use futures::StreamExt;

use super::snapshots::{host, on_runtime, text};
use crate::{
    interleaving::{Gate, until_it_calls},
    sessions::{kind, outcome},
    support::PATIENCE,
};

/// Limits with which no cell ends of itself while a test waits.
fn unhurried() -> Limits {
    Limits { timeout: 5 * PATIENCE, timeout_max: 5 * PATIENCE, ..Limits::default() }
}

fn start(session: &Session, code: &str) -> Run {
    session.run(vec![Cell::new(Language::Python, code)]).expect("a run")
}

async fn python(session: &Session, code: &str) -> String {
    tokio::time::timeout(PATIENCE, text(session, Language::Python, code)).await.expect("it is not held up")
}

/// Reads a run until its cell prints.
async fn until_it_prints(run: &mut Run) {
    while let Some(event) = run.next().await {
        match event.kind {
            EventKind::Stdout { .. } => return,
            EventKind::CellFinished { .. } => panic!("it has ended: {event:?}"),
            _ => {}
        }
    }
}

/// Returns what a run that was read in part still prints and shows.
async fn rest(mut run: Run) -> String {
    let mut shown = String::new();
    let all = async {
        while let Some(event) = run.next().await {
            match event.kind {
                EventKind::Stdout { text, .. } => shown += &text,
                EventKind::Display { data, .. } => shown += &data.shown_text().unwrap_or_default(),
                EventKind::CellFinished { outcome, .. } => assert_eq!(outcome, Outcome::Complete),
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("it goes on");
    shown.trim_end().to_owned()
}

/// Ways in which code waits for the tool `wait`, whose value is 7, without any `await`.
const CALLS: [&str; 8] = [
    "def f():\n    return tool.wait()\nprint(f())",
    "class C:\n    @property\n    def value(self):\n        return tool.wait()\nprint(C().value)",
    "print(sorted([1], key=lambda n: tool.wait())[0] * 7)",
    "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as pool:\n    print(*pool.map(lambda _: tool.wait(), [0]))",
    "import threading\ngot = []\nt = threading.Thread(target=lambda: got.append(tool.wait()))\nt.start()\nt.join()\nprint(*got)",
    "import functools\nprint(functools.partial(tool.wait)())",
    "exec('print(tool.wait())')",
    "import asyncio\nawait asyncio.sleep(0)\ndef f():\n    return [tool.wait() for _ in range(1)]\nprint(*f())",
];

#[test]
fn a_cell_that_waits_for_a_call_in_a_function_holds_up_no_other() {
    on_runtime(async {
        let gate = Gate::of(Language::Python);
        let session = gate.session(&host(), unhurried());
        for code in CALLS {
            let mut waiting = start(&session, code);
            until_it_calls(&mut waiting).await;
            // Synchronous, with awaits, and one that waits itself.
            assert_eq!(python(&session, "shared = 1\nshared").await, "1", "{code}");
            assert_eq!(python(&session, "import asyncio\nawait asyncio.sleep(0.01)\n'awaited'").await, "'awaited'");
            assert_eq!(python(&session, "import time\ntime.sleep(0.01)\n'slept'").await, "'slept'");
            gate.let_through(1);
            assert_eq!(rest(waiting).await, "7", "{code}");
        }
    });
}

#[test]
fn cells_wait_for_one_another() {
    on_runtime(async {
        let session = Gate::of(Language::Python).session(&host(), unhurried());
        let waits = "import threading, time, queue\nset_by_other, items = threading.Event(), queue.Queue()\n\
                     print('waits', flush=True)\nset_by_other.wait(1e6)\nitems.get(timeout=1e6)";
        let mut waiting = start(&session, waits);
        until_it_prints(&mut waiting).await;
        assert_eq!(python(&session, "set_by_other.set(); items.put('sent')").await, "(no output)");
        assert_eq!(rest(waiting).await, "'sent'");
        // What nobody can end is told as before, once the others have ended.
        let mut first = start(&session, "print('one', flush=True)\ntime.sleep(0.2)\n'slept'");
        until_it_prints(&mut first).await;
        let locked = start(&session, "lock = threading.Lock()\nlock.acquire()\nlock.acquire()");
        let Outcome::Failed(failure) = outcome(locked).await else { panic!("nobody releases it") };
        assert!(failure.message.contains("deadlock"), "{failure:?}");
        assert_eq!(rest(first).await, "'slept'");
    });
}

/// Calls of `agent` that share the session, as models write them.
const ASKS: [&str; 9] = [
    "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as pool:\n    print(list(pool.map(agent, qs)))",
    "from concurrent.futures import ThreadPoolExecutor, as_completed\nwith ThreadPoolExecutor() as pool:\n    print([f.result() for f in as_completed([pool.submit(agent, q) for q in qs])])",
    "import threading\nts = [threading.Thread(target=agent, args=(q,)) for q in qs]\nfor t in ts: t.start()\nfor t in ts: t.join()",
    "import functools\nprint([functools.partial(agent, q)() for q in qs])",
    "print([(lambda: agent(q))() for q in qs])",
    "fs = [lambda q=q: agent(q) for q in qs]\nprint([f() for f in fs])",
    "exec('for q in qs: print(agent(q))')",
    "class Asker:\n    def __getitem__(self, q): return agent(q)\n    def __iter__(self): return (agent(q) for q in qs)\nprint(list(Asker()))\nseen = sorted(set(seen))",
    "import asyncio\nawait asyncio.sleep(0)\nasync def all():\n    return [agent(q) for q in qs]\nprint(await all())",
];

#[test]
fn an_agent_shares_the_state_of_the_cell_that_called_it_from_wherever() {
    on_runtime(async {
        let session = Gate::of(Language::Python).session(&host(), unhurried());
        let questions = "seen = []\nqs = ['seen.append(1)', 'import asyncio; await asyncio.sleep(0); seen.append(2)']";
        for code in ASKS {
            let told = python(&session, &format!("{questions}\n{code}")).await;
            assert_eq!(python(&session, "sorted(seen)").await, "[1, 2]", "{code}: {told}");
        }
        // At second hand.
        let code = "def ask(q): return agent(q)\nprint(ask('def again(): return agent(\"seen.append(3)\")\\nagain()'))";
        let told = python(&session, code).await;
        assert_eq!(python(&session, "seen[-1]").await, "3", "{told}");
    });
}

#[test]
fn a_cell_that_waits_in_its_code_ends_at_its_limit_and_keeps_its_names() {
    on_runtime(async {
        let session = Gate::of(Language::Python).session(&host(), unhurried());
        for waits in ["import time\ntime.sleep(1e6)", "def f():\n    return tool.wait()\nf()"] {
            let code =
                format!("kept = 1\nprint('waits', flush=True)\ntry:\n    exec({waits:?})\nfinally:\n    kept += 1");
            let mut cell = Cell::new(Language::Python, code);
            cell.timeout = Some(Duration::from_secs(1));
            let mut waiting = session.run(vec![cell]).expect("a run");
            until_it_prints(&mut waiting).await;
            let mut beside = start(&session, "print('spins', flush=True)\nwhile True: pass");
            until_it_prints(&mut beside).await;
            let ended = tokio::time::timeout(PATIENCE, outcome(waiting)).await;
            let ended = ended.unwrap_or_else(|_| panic!("its deadline is its own: {waits}"));
            assert_eq!(kind(&ended), Some(FailureKind::Timeout), "{waits}");
            beside.canceller().cancel();
            assert_eq!(kind(&outcome(beside).await), Some(FailureKind::Interrupted));
            assert_eq!(python(&session, "kept").await, "2", "{waits}");
        }
    });
}

#[test]
fn a_reset_ends_what_waits_in_the_middle_of_its_code() {
    on_runtime(async {
        let session = Gate::of(Language::Python).session(&host(), unhurried());
        assert_eq!(python(&session, "import time\nkept = 1").await, "(no output)");
        let mut waiting = start(&session, "print('waits', flush=True)\ntime.sleep(1e6)");
        until_it_prints(&mut waiting).await;
        assert!(matches!(session.snapshot().await, Err(Error::Threads { language: Language::Python, .. })));
        let waiting = tokio::spawn(outcome(waiting));
        session.clear(Language::Python).await.expect("cleared");
        let ended = tokio::time::timeout(PATIENCE, waiting).await.expect("at once").expect("no panic");
        assert_eq!(kind(&ended), Some(FailureKind::Interrupted));
        assert_eq!(python(&session, "'kept' in globals()").await, "False");
        session.snapshot().await.expect("nothing is left");
    });
}

#[test]
fn more_cells_than_can_wait_so_take_their_turns() {
    on_runtime(async {
        let gate = Gate::of(Language::Python);
        let session = gate.session(&host(), unhurried());
        let mut runs: Vec<Run> =
            (0..40).map(|n| start(&session, &format!("def f():\n    return tool.wait()\n(f(), {n})"))).collect();
        until_it_calls(&mut runs[31]).await;
        gate.let_through(40);
        for (n, run) in runs.into_iter().enumerate() {
            assert_eq!(rest(run).await, format!("(7, {n})"));
        }
    });
}

#[test]
fn a_cell_that_will_not_stop_is_given_up_and_lost_when_its_kernel_sleeps() {
    on_runtime(async {
        let session =
            Gate::of(Language::Python).session(&host(), Limits { grace: Duration::from_millis(200), ..unhurried() });
        let code = "import time\nkept = 1\nwhile True:\n    try:\n        time.sleep(1e6)\n    except BaseException:\n        pass";
        let mut cell = Cell::new(Language::Python, code);
        cell.timeout = Some(Duration::from_secs(1));
        let ended = outcome(session.run(vec![cell]).expect("a run")).await;
        assert_eq!(kind(&ended), Some(FailureKind::Timeout));
        assert_eq!(python(&session, "kept += 1\nkept").await, "2");
        session.hibernate().await.expect("asleep");
        assert_eq!(python(&session, "import threading\n(kept, threading.active_count())").await, "(2, 1)");
        assert_eq!(python(&session, "time.sleep(0.01)\ndef deep(n): return n and deep(n - 1)\ndeep(500)").await, "0");
        session.snapshot().await.expect("nothing is left of it");
    });
}
