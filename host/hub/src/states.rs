//! Documents of the states of sessions that are kept.

use cellar_engine::states::{StateDiff, StateInfo, StateList};
use cellar_wire::{FileChangeJson, NameChangeJson, StateDiffJson, StateJson, StatesJson, unix_seconds};

/// The document of a list of states.
pub fn states_json(list: &StateList) -> StatesJson {
    StatesJson {
        states: list.states.iter().map(state_json).collect(),
        current: list.current,
        bytes: list.bytes,
        outside: list.outside.clone(),
    }
}

/// The document of a state.
pub fn state_json(info: &StateInfo) -> StateJson {
    StateJson {
        state: info.number,
        parent: info.parent,
        time: unix_seconds(info.taken_at()),
        run: info.run.clone(),
        cell: info.cell,
        language: info.language().map(|language| language.code()),
        languages: info.languages().iter().map(|language| language.code()).collect(),
        bytes: info.bytes,
        added_bytes: info.added_bytes,
        name: info.name.clone(),
        pinned: info.is_pinned,
    }
}

/// The document of what differs between two states.
pub fn state_diff_json(diff: &StateDiff) -> StateDiffJson {
    StateDiffJson {
        names: diff
            .names
            .iter()
            .map(|each| NameChangeJson {
                language: each.language.code(),
                name: each.name.clone(),
                change: each.change.as_str(),
            })
            .collect(),
        files: diff
            .files
            .iter()
            .map(|each| FileChangeJson { path: each.path.clone(), change: each.change.as_str() })
            .collect(),
    }
}
