//! `cellar session log`, `back`, `branch`, `diff`, `name`, `pin` and `forget`: the states of sessions that `--session` keeps.

use std::{fmt::Write as _, time::SystemTime};

use cellar_config::{Overrides, SessionRequest};
use cellar_engine::{
    config::HistoryOptions,
    states::{Change, StateChange, StateDiff, StateInfo, StateList},
};
use cellar_hub::{state_diff_json, states_json};

use crate::{
    args::{BranchArguments, DiffArguments, Folders, LogArguments, NameArguments, PinArguments, StateArguments},
    on_runtime, output,
    report::{CliError, EXIT_COMPLETE, print_hint},
    sessions::{age_text, size_text, store},
    setup,
    table::table,
    terminal::escaped,
};

/// Lists the states of a session.
///
/// # Errors
/// The session is not there, or the store fails.
pub(crate) fn log(folders: &Folders, arguments: &LogArguments) -> Result<(), CliError> {
    let list = store(folders)?.states(&arguments.session)?;
    match arguments.json {
        true => output::print_json(&states_json(&list)),
        false => output::print(&listed(&list, SystemTime::now())),
    }
}

fn listed(list: &StateList, now: SystemTime) -> String {
    let row = |state: &StateInfo| {
        let mark = if list.current == Some(state.number) { "*" } else { "" };
        let parent = state.parent.map(|parent| parent.to_string()).unwrap_or_default();
        let cell = state.cell.map(|cell| cell.to_string()).unwrap_or_default();
        let cell = format!("{} {cell}", state.language().map_or("", |language| language.code()));
        let age = age_text(now.duration_since(state.taken_at()).unwrap_or_default().as_secs());
        let pinned = if state.is_pinned { "pinned" } else { "" };
        let name = state.name.as_deref().map(escaped).unwrap_or_default();
        let sizes = [size_text(state.bytes), size_text(state.added_bytes)];
        let [size, added] = sizes;
        [format!("{}{mark}", state.number), parent, cell, age, size, added, name.to_string(), pinned.to_owned()]
    };
    let rows: Vec<_> = list.states.iter().map(row).collect();
    table(["STATE", "PARENT", "CELL", "TAKEN", "SIZE", "ADDED", "NAME", ""], &rows, "no states are kept of the session")
}

/// Takes a session back to a state.
///
/// # Errors
/// The session or the state is not there, or is in use, or the store fails.
pub(crate) fn back(folders: &Folders, arguments: &StateArguments) -> Result<(), CliError> {
    let store = store(folders)?;
    let outside = store.states(&arguments.session)?.outside;
    let state = store.back(&arguments.session, &arguments.state)?;
    if !outside.is_empty() {
        print_hint(&format!("granted folders stay as they are: {}", outside.join(", ")));
    }
    output::print(&format!("session `{}` is at state {}\n", escaped(&arguments.session), state.number))
}

/// Makes a session of a state of another one.
///
/// # Errors
/// As [`back`]; or the new session is there.
pub(crate) fn branch(folders: &Folders, arguments: &BranchArguments) -> Result<(), CliError> {
    let BranchArguments { of: StateArguments { session, state }, new } = arguments;
    Ok(store(folders)?.branch(session, state, new)?)
}

/// Names or unnames a state.
///
/// # Errors
/// As [`back`]; or it cannot have that name.
pub(crate) fn name(folders: &Folders, arguments: &NameArguments) -> Result<(), CliError> {
    let change = StateChange { name: Some(arguments.name.clone()), ..StateChange::default() };
    change_state(folders, &arguments.of, change)
}

/// Pins or unpins a state.
///
/// # Errors
/// As [`back`].
pub(crate) fn pin(folders: &Folders, arguments: &PinArguments) -> Result<(), CliError> {
    change_state(folders, &arguments.of, StateChange { is_pinned: Some(!arguments.remove), ..StateChange::default() })
}

fn change_state(folders: &Folders, of: &StateArguments, change: StateChange) -> Result<(), CliError> {
    store(folders)?.change_state(&of.session, &of.state, change)?;
    Ok(())
}

/// Forgets a state.
///
/// # Errors
/// As [`back`].
pub(crate) fn forget(folders: &Folders, arguments: &StateArguments) -> Result<(), CliError> {
    Ok(store(folders)?.forget_state(&arguments.session, &arguments.state)?)
}

/// Compares two states.
///
/// # Errors
/// As [`back`]; or a guest cannot tell its names.
pub(crate) fn diff(folders: &Folders, arguments: &DiffArguments) -> Result<(), CliError> {
    let DiffArguments { session, before, after, json } = arguments;
    on_runtime(async {
        // One that is not there is not made.
        store(folders)?.find(session)?;
        let overrides = Overrides { history: Some(HistoryOptions::default()), ..Overrides::default() };
        let request = SessionRequest { name: Some(session.clone()), overrides, ..SessionRequest::default() };
        let own = setup::open_session(folders, request).await?;
        let diff = own.session().compare(before, after).await?;
        match json {
            true => output::print_json(&state_diff_json(&diff))?,
            false => output::print(&told(&diff))?,
        }
        Ok(EXIT_COMPLETE)
    })?;
    Ok(())
}

fn told(diff: &StateDiff) -> String {
    let sign = |change: Change| match change {
        Change::Added => '+',
        Change::Removed => '-',
        Change::Changed => '~',
    };
    let mut text = String::new();
    for each in &diff.names {
        let _ = writeln!(text, "{} {} {}", sign(each.change), each.language.code(), escaped(&each.name));
    }
    for each in &diff.files {
        let _ = writeln!(text, "{} {}", sign(each.change), escaped(&each.path));
    }
    if text.is_empty() { "the two states have the same names and files\n".to_owned() } else { text }
}
