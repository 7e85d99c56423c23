//! Conversion of arguments of the command line to the configuration of sessions.

use std::sync::Arc;

use cellar_config::{Overrides, SessionRequest};
use cellar_engine::{
    HostConfig,
    config::{HistoryOptions, Stops},
    results::OutputPolicy,
};
use cellar_hub::OwnSession;

use crate::{
    args::{Folders, GrantArguments, SessionArguments},
    report::{CliError, print_progress},
    socket::SessionDoors,
};

/// Live kernels of each flavour: one a language, and some that are being given back.
const KERNELS_MAX: u32 = 16;

impl From<&Folders> for cellar_config::Folders {
    fn from(folders: &Folders) -> cellar_config::Folders {
        let Folders { guests, cache, store } = folders.clone();
        cellar_config::Folders { guests, cache, store }
    }
}

impl From<&GrantArguments> for Overrides {
    fn from(arguments: &GrantArguments) -> Overrides {
        let GrantArguments { workspace, mounts, packages, package_store, config, environment, audit, .. } =
            arguments.clone();
        Overrides {
            config,
            workspace,
            mounts,
            packages,
            package_store,
            limits: arguments.limits.0.clone(),
            untimed: false,
            guests: arguments.chosen.iter().map(|guest| (*guest).into()).collect(),
            no_charts: arguments.no_charts,
            per_call: arguments.per_call,
            input: arguments.input,
            output: arguments.output_policy.map(OutputPolicy::from),
            environment,
            audit,
            history: None,
        }
    }
}

impl From<&SessionArguments> for SessionRequest {
    fn from(arguments: &SessionArguments) -> SessionRequest {
        let mut overrides = Overrides::from(&arguments.granted);
        // What is kept by name can be taken back.
        overrides.history = arguments.name.is_some().then(HistoryOptions::default);
        SessionRequest { name: arguments.name.clone(), record: arguments.record.clone(), overrides }
    }
}

/// Returns the configuration of a host: the folders of the guests and of their caches.
///
/// # Errors
/// No folder was named and the user has none.
pub(crate) fn host_config(folders: &Folders, stops: Stops) -> Result<HostConfig, CliError> {
    Ok(cellar_config::Folders::from(folders).host_config(KERNELS_MAX, stops)?)
}

/// Opens a session as the command line describes it, on a host of its own.
///
/// # Errors
/// The configuration is not valid, the session is in use, a folder cannot be granted.
pub(crate) async fn open_session(folders: &Folders, request: SessionRequest) -> Result<OwnSession, CliError> {
    let doors = Arc::new(SessionDoors);
    Ok(OwnSession::open(&folders.into(), request, doors, KERNELS_MAX, print_progress).await?)
}
