//! What is asked of the store of packages.

use std::path::PathBuf;

use cellar_packages::Wanted;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct PackagesArguments {
    #[command(subcommand)]
    pub(crate) command: PackagesCommand,
    /// Folder of the packages [default: cellar/packages in the user's data folder]
    #[arg(long, global = true, value_name = "DIR", env = "CELLAR_PACKAGE_STORE", hide_env_values = true)]
    pub(crate) package_store: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PackagesCommand {
    /// Fetch packages and what they need, or newer versions of them, with pip and npm as they are set up here
    ///
    /// Only what has no native code is taken: of Python, wheels for every machine. Nothing of a package is run. A session has
    /// them when it is granted them: `packages = ["tabulate", "npm:lodash"]` in its cellar.toml, or --packages.
    Add {
        /// `tabulate`, `requests[socks]>=2`, `npm:lodash`, `npm:@scope/name@4`
        #[arg(value_name = "NAME", required = true, value_parser = Wanted::parse)]
        names: Vec<Wanted>,
        /// Print what was added as JSON
        #[arg(long)]
        json: bool,
    },
    /// List them, with what others of them need
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove packages, and what nothing else needs; sessions that were granted them lose them
    #[command(visible_alias = "remove")]
    Rm {
        /// `tabulate`, `npm:lodash`
        #[arg(value_name = "NAME", required = true, value_parser = Wanted::parse)]
        names: Vec<Wanted>,
    },
    /// Compare all files with the lock file
    Verify,
    /// Fetch what the lock file names and is not there as it says, in those versions, with those hashes
    Restore,
}
