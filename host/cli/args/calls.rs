//! `cellar calls`, as types.

use clap::{Args, Subcommand};

/// Calls of cells that wait for a person.
#[derive(Debug, Args)]
pub(crate) struct CallsArguments {
    #[command(subcommand)]
    pub(crate) command: CallsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CallsCommand {
    /// List the calls that wait, the oldest first, those of all tenants of the store included
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a call carried out
    Approve {
        /// Id of the call
        #[arg(value_name = "ID", add = crate::completion::calls())]
        id: String,
        /// JSON object to carry it out with, instead of its own arguments
        #[arg(long, value_name = "JSON")]
        arguments: Option<String>,
        /// Name of whoever decides, for the audit log [default: the user of this process]
        #[arg(long, value_name = "NAME")]
        by: Option<String>,
    },
    /// Have a call fail
    Reject {
        /// Id of the call
        #[arg(value_name = "ID", add = crate::completion::calls())]
        id: String,
        /// Reason, which the cell is told
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Name of whoever decides, for the audit log [default: the user of this process]
        #[arg(long, value_name = "NAME")]
        by: Option<String>,
    },
}
