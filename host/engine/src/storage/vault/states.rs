//! The states of stored sessions, for whoever does not open the sessions.

use std::path::PathBuf;

use cellar_core::files::Durability;

use super::{SessionStore, StoredSession};
use crate::{
    contract::error::Error,
    formats::snapshot::Snapshot,
    storage::{
        states::{self, StateChange, StateInfo, StateList, States, files::Files},
        workspace::OwnFolder,
    },
};

impl SessionStore {
    /// The states of a session that are kept. The session may be live meanwhile.
    ///
    /// # Errors
    /// `SessionUnknown`, `Snapshot` when the list is damaged, `Store`.
    pub fn states(&self, name: &str) -> Result<StateList, Error> {
        self.require(name)?;
        self.vault.states(name)?.map_or_else(|| Ok(StateList::default()), |folder| states::list(&folder))
    }

    /// Takes a session back to one of its states, with its own files. Returns the state.
    ///
    /// # Errors
    /// `SessionUnknown`, `SessionBusy`, `StateUnknown`, `Snapshot` when the state is damaged, `Store`.
    pub fn back(&self, name: &str, state: &str) -> Result<StateInfo, Error> {
        self.claim_existing(name)?.back(state)
    }

    /// Makes the session `to` of a state of `from`, with copies of the files of that instant.
    ///
    /// # Errors
    /// `SessionUnknown`, `SessionBusy`, `SessionExists`, `StateUnknown`, `Snapshot` when the state is damaged, `Store`.
    pub fn branch(&self, from: &str, state: &str, to: &str) -> Result<(), Error> {
        let from = self.claim_existing(from)?;
        let states = from.states()?;
        let (_, snapshot, files) = states.load(state)?;
        self.claim_new(to)?.begin_with(&snapshot, &files, &states)
    }

    /// Names, pins or unpins a state of a session. Returns the state as it is then.
    ///
    /// # Errors
    /// `SessionUnknown`, `SessionBusy`, `StateUnknown`, `Request` for a name that cannot be given, `Store`.
    pub fn change_state(&self, name: &str, state: &str, change: StateChange) -> Result<StateInfo, Error> {
        self.claim_existing(name)?.states()?.change(state, change)
    }

    /// Forgets a state of a session. What only this state has is removed.
    ///
    /// # Errors
    /// `SessionUnknown`, `SessionBusy`, `StateUnknown`, `Store`.
    pub fn forget_state(&self, name: &str, state: &str) -> Result<(), Error> {
        self.claim_existing(name)?.states()?.forget(state)
    }
}

impl StoredSession {
    /// Opens the states of the session.
    pub(crate) fn states(&self) -> Result<States, Error> {
        States::open(self.claim.states(), Durability::Synced)
    }

    /// Own folders, all of which it may have.
    fn own_folders(&self) -> Result<Vec<(OwnFolder, PathBuf)>, Error> {
        OwnFolder::ALL.into_iter().map(|folder| Ok((folder, self.folder(folder)?))).collect()
    }

    fn back(&self, state: &str) -> Result<StateInfo, Error> {
        let mut states = self.states()?;
        let (info, snapshot, files) = states.load(state)?;
        let snapshot = self.beyond(snapshot)?;
        let save = || self.save_latest(|| Ok(snapshot)).map(drop);
        states.go_back(info.number, &files, &self.own_folders()?, save)?;
        Ok(info)
    }

    /// A state to go back to, in which no number of a cell is used twice.
    fn beyond(&self, snapshot: Snapshot) -> Result<Snapshot, Error> {
        let last = self.load()?.map_or(0, |last| last.next_cell);
        Ok(Snapshot { next_cell: snapshot.next_cell.max(last), ..snapshot })
    }

    /// Finishes going back to a state, if the process that did it has ended meanwhile.
    pub(super) fn finish_going_back(&self) -> Result<(), Error> {
        if !states::is_cut_short(&self.claim.states()) {
            return Ok(());
        }
        let states = self.states()?;
        match states.going().map(|number| self.back(&number.to_string())) {
            Some(Err(Error::StateUnknown(_))) | None => states.give_up(),
            Some(done) => drop(done?),
        }
        Ok(())
    }

    /// Has the session begin with a state of another one, and with the files of that instant.
    ///
    /// # Errors
    /// `Store`.
    pub(crate) fn begin_with(&self, snapshot: &Snapshot, files: &Files, of: &States) -> Result<(), Error> {
        let folders = self.own_folders()?;
        let path = folders.first().map(|(_, path)| path.clone()).unwrap_or_default();
        let failed = |source| Error::Store { doing: "copy files to", path, source };
        files.restore(&folders, &of.contents()).map_err(failed)?;
        self.save(&snapshot.forked().named(self.name()))
    }
}
