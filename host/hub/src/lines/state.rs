//! Names of a caller's sessions and runs, and requests about the state of a session. The state is captured between two
//! steps of its cells, which may take as long as a cell computes; so requests that wait for it are tasks of their own.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::PathBuf,
    sync::Mutex,
};

use cellar_core::sync::lock;
use cellar_engine::Session;
use cellar_wire::Answer;

use crate::{Hub, HubError, LineError, Place, lines::TASKS_MAX};

/// Runs whose ids are kept, those under way included.
const RUNS_KEPT: usize = 2 * TASKS_MAX;

/// Request that an answer belongs to.
pub(super) struct Asked {
    pub(super) id: Option<String>,
    pub(super) line: u64,
}

/// Saves the state of a session.
pub(super) async fn save(place: &impl Place, session: &Session, file: PathBuf) -> Result<(), LineError> {
    let snapshot = session.snapshot().await.map_err(HubError::from)?;
    place.write_snapshot(snapshot, file).await
}

/// Opens a session with a state of another one, the present one unless named, and returns its name.
pub(super) async fn fork(
    place: &impl Place,
    names: &Names,
    from: &str,
    new: Option<String>,
    state: Option<String>,
) -> Result<String, LineError> {
    let (from, unnamed) = (names.session(from)?, names.new_session(new.clone())?);
    let (own, name) = place.fork(&from, state.as_deref(), new, unnamed).await?;
    names.opened(&own, name);
    Ok(own)
}

/// Names of sessions and runs, as a caller and the hub know them.
#[derive(Debug)]
pub(super) struct Names {
    /// The session of requests that name none, as the caller calls it.
    pub(super) usual: String,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Hub's names, by the caller's.
    sessions: BTreeMap<String, String>,
    /// Caller's names, by the hub's.
    own_sessions: HashMap<String, String>,
    unnamed: u64,
    /// The hub's ids by the caller's, of those under way and of the latest that have ended.
    runs: HashMap<String, String>,
    /// The caller's ids, the oldest first.
    oldest: VecDeque<String>,
}

impl Names {
    pub(super) fn new((usual, name): (String, Option<String>)) -> Names {
        let names = Names { usual: usual.clone(), table: Mutex::default() };
        if let Some(name) = name {
            names.opened(&usual, name);
        }
        names
    }

    /// Returns the hub's name of a session.
    pub(super) fn session(&self, own: &str) -> Result<String, HubError> {
        lock(&self.table).sessions.get(own).cloned().ok_or_else(|| HubError::SessionUnknown(own.to_owned()))
    }

    /// Returns the caller's name of a session.
    pub(super) fn of_session(&self, name: String) -> String {
        lock(&self.table).own_sessions.get(&name).cloned().unwrap_or(name)
    }

    pub(super) fn is_open(&self, own: &str) -> bool {
        lock(&self.table).sessions.contains_key(own)
    }

    /// Returns the caller's name for a session to open; makes one up if need be.
    pub(super) fn new_session(&self, own: Option<String>) -> Result<String, HubError> {
        let mut table = lock(&self.table);
        let own = own.unwrap_or_else(|| {
            table.unnamed = table.unnamed.saturating_add(1);
            format!("session-{}", table.unnamed)
        });
        if table.sessions.contains_key(&own) { Err(HubError::SessionOpen(own)) } else { Ok(own) }
    }

    pub(super) fn opened(&self, own: &str, name: String) {
        let mut table = lock(&self.table);
        table.own_sessions.insert(name.clone(), own.to_owned());
        table.sessions.insert(own.to_owned(), name);
    }

    /// The answer that a session is open.
    pub(super) fn opened_answer(&self, id: Option<String>, own: String) -> Answer {
        let name = lock(&self.table).sessions.get(&own).filter(|name| **name != own).cloned();
        Answer::Opened { id, session: own, name }
    }

    pub(super) fn closed(&self, own: &str) {
        let mut table = lock(&self.table);
        if let Some(name) = table.sessions.remove(own) {
            table.own_sessions.remove(&name);
        }
    }

    /// The caller's sessions, by name, each with its runs that are under way, of all that the hub has.
    pub(super) fn list(&self, open: &[(String, Vec<String>)]) -> Vec<(String, Vec<String>)> {
        let table = lock(&self.table);
        let own_runs: HashMap<&str, &str> = table.runs.iter().map(|(own, id)| (&**id, &**own)).collect();
        let open: HashMap<&str, &Vec<String>> = open.iter().map(|(name, runs)| (&**name, runs)).collect();
        let listed = table.sessions.iter().map(|(own, name)| {
            let runs = open.get(&**name).into_iter().copied().flatten();
            let mut runs: Vec<String> =
                runs.filter_map(|run| own_runs.get(&**run)).map(|own| (*own).to_owned()).collect();
            runs.sort_unstable();
            (own.clone(), runs)
        });
        listed.collect()
    }

    /// Returns the hub's id of a run; an id that the caller has given to no run is returned as it is, for the hub to
    /// look up.
    pub(super) fn run(&self, own: &str) -> String {
        lock(&self.table).runs.get(own).cloned().unwrap_or_else(|| own.to_owned())
    }

    /// Makes sure that no run under way has this id.
    pub(super) fn check_run(&self, own: &str, hub: &Hub) -> Result<(), HubError> {
        let id = lock(&self.table).runs.get(own).cloned();
        match id.and_then(|id| hub.run(&id).ok()) {
            Some(run) if !run.is_ended() => Err(HubError::RunUnderWay(own.to_owned())),
            _ => Ok(()),
        }
    }

    pub(super) fn run_started(&self, own: &str, id: String) {
        let mut table = lock(&self.table);
        if table.runs.insert(own.to_owned(), id).is_some() {
            return;
        }
        table.oldest.push_back(own.to_owned());
        if table.oldest.len() > RUNS_KEPT
            && let Some(oldest) = table.oldest.pop_front()
        {
            table.runs.remove(&oldest);
        }
    }
}
