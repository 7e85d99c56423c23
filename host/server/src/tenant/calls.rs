//! Tools that callers answer for over HTTP: their calls wait here, are sent by the streams of their runs, and may be
//! answered over any connection.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::{Arc, Mutex, OnceLock},
};

use cellar_core::sync::lock;
use cellar_engine::CellId;
use cellar_hub::{Answerer, Ask, RunHandle};
use cellar_wire::{Answer as Line, CallJson};
use tokio::sync::watch;

use crate::tenant::minted;

/// Cancelled calls that are remembered, so that streams can report them.
const CANCELLED_KEPT: usize = 1_024;

/// The calls of a tenant's sessions that wait for an answer. A cheap handle.
#[derive(Clone, Debug)]
pub(crate) struct Calls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    answerer: OnceLock<Answerer>,
    table: Mutex<Table>,
    /// Counts the changes of the table.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Table {
    /// Waiting calls, by a name that cannot be guessed.
    waiting: BTreeMap<String, Waiting>,
    /// Calls that came.
    count: u64,
    cancelled: VecDeque<String>,
}

#[derive(Debug)]
struct Waiting {
    /// Name of the call for the answerer, and its number in the order of arrival.
    call: String,
    number: u64,
    json: CallJson,
}

impl Calls {
    pub(crate) fn new() -> Calls {
        let calls = Calls(Arc::new(Inner {
            answerer: OnceLock::new(),
            table: Mutex::default(),
            changed: watch::Sender::new(0),
        }));
        let asked = Arc::downgrade(&calls.0);
        let answerer = Answerer::new(move |ask| {
            let asked = asked.upgrade();
            Box::pin(async move {
                let Some(inner) = asked else { return false };
                inner.hear(ask);
                true
            })
        });
        // It is set once, here.
        let _ = calls.0.answerer.set(answerer);
        calls
    }

    /// Answerer of the tools of a session.
    pub(crate) fn answerer(&self) -> Option<Answerer> {
        self.0.answerer.get().cloned()
    }

    /// Calls that wait and are such, in the order in which they came.
    fn waiting(&self, is_such: impl Fn(&CallJson) -> bool) -> Vec<CallJson> {
        let table = lock(&self.0.table);
        let mut found: Vec<&Waiting> = table.waiting.values().filter(|waiting| is_such(&waiting.json)).collect();
        found.sort_by_key(|waiting| waiting.number);
        found.into_iter().map(|waiting| waiting.json.clone()).collect()
    }

    /// Waiting calls of a run.
    pub(crate) fn of_run(&self, run: &RunHandle) -> Vec<CallJson> {
        self.waiting(|call| call.session == run.session_name() && run.has_cell(CellId(call.cell)))
    }

    /// Waiting calls of a session.
    pub(crate) fn of_session(&self, session: &str) -> Vec<CallJson> {
        self.waiting(|call| call.session == session)
    }

    /// Receiver that hears of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Answers a call of a session; whether it was waiting.
    pub(crate) fn reply(&self, session: &str, call: &str, result: Result<String, String>) -> bool {
        let taken = {
            let mut table = lock(&self.0.table);
            match table.waiting.get(call) {
                Some(waiting) if waiting.json.session == session => table.waiting.remove(call),
                _ => None,
            }
        };
        let Some(taken) = taken else { return false };
        self.0.changed.send_modify(|count| *count = count.wrapping_add(1));
        self.answerer().is_some_and(|answerer| answerer.reply(&taken.call, result))
    }
}

impl Inner {
    fn hear(&self, ask: Ask) {
        let mut table = lock(&self.table);
        match ask {
            Ask::Call { call, session, cell, tool, arguments } => {
                let name = minted("call");
                let json = CallJson { call: name.clone(), session, cell: cell.0, tool, arguments };
                table.count = table.count.wrapping_add(1);
                let number = table.count;
                table.waiting.insert(name, Waiting { call, number, json });
            }
            Ask::Cancelled { call } => {
                let name = table.waiting.iter().find(|(_, waiting)| waiting.call == call).map(|(name, _)| name.clone());
                if let Some(name) = name {
                    table.waiting.remove(&name);
                    table.cancelled.push_back(name);
                }
                if table.cancelled.len() > CANCELLED_KEPT {
                    table.cancelled.pop_front();
                }
            }
        }
        drop(table);
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// Calls that a stream has sent.
#[derive(Debug, Default)]
pub(crate) struct SentCalls(HashSet<String>);

impl SentCalls {
    /// Lines to send now, of the calls that wait.
    pub(crate) fn news(&mut self, calls: &Calls, waiting: Vec<CallJson>) -> Vec<Line> {
        let mut lines = Vec::new();
        let gone: Vec<String> =
            self.0.iter().filter(|name| waiting.iter().all(|call| call.call != **name)).cloned().collect();
        if !gone.is_empty() {
            let table = lock(&calls.0.table);
            for call in gone {
                self.0.remove(&call);
                // One that was answered needs no word.
                if table.cancelled.contains(&call) {
                    lines.push(Line::CallCancelled { call });
                }
            }
        }
        for call in waiting {
            if self.0.insert(call.call.clone()) {
                let CallJson { call, session, cell, tool, arguments } = call;
                lines.push(Line::Call { call, session, cell, tool, arguments });
            }
        }
        lines
    }
}
