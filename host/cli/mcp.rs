//! `cellar mcp`: sessions and runs for a client of the Model Context Protocol that started this program. The server is
//! `cellar_server`; here it is given standard input and output.

use std::sync::Arc;

use cellar_config::Overrides;
use cellar_server::{ServerConfig, serve_mcp};

use crate::{
    args::{Folders, McpArguments},
    report::{CliError, EXIT_COMPLETE, print_progress},
    socket::SessionDoors,
};

/// Serves until the client has gone.
///
/// # Errors
/// The configuration is not valid, or what is kept cannot be opened.
pub(crate) async fn mcp(folders: &Folders, arguments: McpArguments) -> Result<u8, CliError> {
    let overrides = Overrides::from(&arguments.granted);
    let config = ServerConfig::for_one(&folders.into(), &overrides, print_progress)?;
    serve_mcp(config, Arc::new(SessionDoors)).await?;
    Ok(EXIT_COMPLETE)
}
