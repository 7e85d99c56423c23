//! `cellar calls`: calls of cells that wait for a person.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use cellar_config::Folders;
use cellar_hub::{Approvals, DecideError};
use cellar_server::TENANTS;
use cellar_wire::{Decision, WaitingCallJson, WaitingCallsJson, unix_seconds};
use serde_json::{Map, Value};

use crate::{
    args::{self, CallsArguments, CallsCommand},
    output,
    report::{CliError, EXIT_COMPLETE},
    sessions::age_text,
    table::table,
};

/// Characters of the arguments in a list.
const ARGUMENTS_SHOWN: usize = 80;

/// Runs a command on the calls that wait.
///
/// # Errors
/// The store fails, no such call waits, or the decision is not valid.
pub(crate) fn calls(folders: &args::Folders, arguments: CallsArguments) -> Result<u8, CliError> {
    let folders = &Folders::from(folders);
    match arguments.command {
        CallsCommand::List { json } => {
            let calls = waiting(folders)?;
            match json {
                true => output::print_json(&WaitingCallsJson { calls })?,
                false => output::print(&listed(&calls))?,
            }
        }
        CallsCommand::Approve { id, arguments, by } => {
            let arguments = arguments.as_deref().map(object).transpose()?;
            decide(folders, &id, [("decision", Some("approve".into())), ("arguments", arguments)], by)?;
        }
        CallsCommand::Reject { id, reason, by } => {
            let reason = reason.map(Value::from);
            decide(folders, &id, [("decision", Some("reject".into())), ("reason", reason)], by)?;
        }
    }
    Ok(EXIT_COMPLETE)
}

/// Lists the calls of a store and of its tenants.
///
/// # Errors
/// A folder cannot be read.
pub(crate) fn waiting(folders: &Folders) -> Result<Vec<WaitingCallJson>, CliError> {
    let mut calls = Vec::new();
    for store in stores(folders)? {
        calls.extend(Approvals::of_store(&store).list().map_err(|source| failed(&store, source))?);
    }
    calls.sort_by_key(|call| call.since);
    Ok(calls)
}

/// The store, and those of the tenants in it.
fn stores(folders: &Folders) -> Result<Vec<PathBuf>, CliError> {
    let store = folders.store()?;
    let tenants = store.join(TENANTS);
    let mut stores = vec![store];
    match fs::read_dir(&tenants) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        entries => {
            for entry in entries.map_err(|source| failed(&tenants, source))? {
                stores.push(entry.map_err(|source| failed(&tenants, source))?.path());
            }
        }
    }
    Ok(stores)
}

fn failed(path: &Path, source: io::Error) -> CliError {
    CliError::Read { path: path.to_owned(), source }
}

fn object(text: &str) -> Result<Value, CliError> {
    let value = serde_json::from_str::<Map<String, Value>>(text).map(Value::Object);
    value.map_err(|error| {
        CliError::usage(format!("--arguments is no JSON object: {error}"), "say --arguments '{\"name\": 1}'")
    })
}

fn decide<const N: usize>(
    folders: &Folders,
    id: &str,
    members: [(&str, Option<Value>); N],
    by: Option<String>,
) -> Result<(), CliError> {
    let by = by.unwrap_or_else(cellar_config::user);
    let given = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let text = Value::Object(given.collect()).to_string();
    let decision = Decision::from_json(text.as_bytes(), &by);
    let decision = decision.map_err(|invalid| CliError::usage(invalid.to_string(), "see `cellar calls --help`"))?;
    for store in stores(folders)? {
        match Approvals::of_store(&store).decide(id, &decision) {
            Err(DecideError::Unknown(_)) => {}
            Err(DecideError::Io(source)) => return Err(failed(&store, source)),
            Err(error) => return Err(CliError::usage(error.to_string(), "`cellar calls list` shows what waits")),
            Ok(()) => return Ok(()),
        }
    }
    Err(CliError::usage(format!("no call `{id}` waits for a decision"), "`cellar calls list` shows what waits"))
}

fn listed(calls: &[WaitingCallJson]) -> String {
    let now = unix_seconds(SystemTime::now());
    let row = |call: &WaitingCallJson| {
        let mut arguments = call.arguments.to_string();
        if let Some((end, _)) = arguments.char_indices().nth(ARGUMENTS_SHOWN) {
            arguments.truncate(end);
            arguments.push('…');
        }
        let age = age_text(now.saturating_sub(call.since));
        [call.call.clone(), call.session.clone(), format!("{} {}", call.bridge, call.name), age, arguments]
    };
    let rows: Vec<[String; 5]> = calls.iter().map(row).collect();
    table(["ID", "SESSION", "CALL", "SINCE", "ARGUMENTS"], &rows, "no call waits")
}
