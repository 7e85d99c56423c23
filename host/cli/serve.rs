//! `cellar serve`: sessions and runs over HTTP. The server is `cellar_server`; here it is told when to stop.

use std::sync::Arc;

use cellar_server::{Server, ServerConfig};
use cellar_setup::Overrides;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    args::{Folders, ServeArguments},
    output,
    report::{CliError, EXIT_COMPLETE, print_progress},
    socket::SessionDoors,
};

/// Serves until it is told to stop.
///
/// # Errors
/// The configuration is not valid, or the address is in use.
pub(crate) async fn serve(folders: &Folders, arguments: ServeArguments) -> Result<u8, CliError> {
    let (folders, overrides) = (folders.into(), Overrides::from(&arguments.granted));
    let (mut config, token) = ServerConfig::new(&folders, &overrides, print_progress)?;
    config.listen = arguments.listen.unwrap_or(config.listen);
    let store = folders.store()?;
    let tenants: Vec<String> = config.tenants.iter().map(|tenant| tenant.name.clone()).collect();
    let mut reload = signal(SignalKind::hangup()).map_err(CliError::Start)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::Start)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::Start)?;
    let (server, listener) = Server::open(config, Arc::new(SessionDoors)).await?;
    let address = listener.local_addr().map_err(CliError::Start)?;
    let reach =
        if address.ip().is_loopback() { "from this machine alone" } else { "from wherever this address is reached" };
    let whom = match &token {
        Some(token) => format!("token: {token}"),
        None => format!("tenants: {}; `cellar token new` makes their tokens", tenants.join(", ")),
    };
    let told = format!("serving on http://{address}, {reach}\n{whom}\nsessions are kept in {}\n", store.display());
    output::print(&told)?;
    let reloaded = server.clone();
    let reloading = async move {
        while reload.recv().await.is_some() {
            match reloaded.reload() {
                Ok(()) => print_progress("the tokens were read again"),
                Err(error) => tracing::error!(%error, "the tokens stay as they were"),
            }
        }
    };
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    tokio::select! {
        () = server.serve(listener, stop) => {}
        () = reloading => {}
    }
    Ok(EXIT_COMPLETE)
}
