//! What is asked of the store of artifacts.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct ArtifactArguments {
    #[command(subcommand)]
    pub(crate) command: ArtifactCommand,
    /// Use the place of runs without --session and --store, where nothing is kept for more than a day
    #[arg(long, global = true)]
    pub(crate) temporary: bool,
    /// File whose `[artifacts]` says how much may be kept, and where else
    #[arg(long, global = true, value_name = "cellar.toml")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    /// List them, the most recently used first
    List {
        /// Only those that this session refers to
        #[arg(long, value_name = "NAME")]
        session: Option<String>,
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print or save one
    #[command(visible_alias = "show")]
    Get {
        /// Its id, the start of it, artifact://ID, or agent://NAME with --session
        #[arg(value_name = "ID")]
        id: String,
        /// File to write; `-` for standard output
        #[arg(value_name = "FILE|-", default_value = "-")]
        file: PathBuf,
        /// The session that called the agent
        #[arg(long, value_name = "NAME")]
        session: Option<String>,
        /// Send it to a terminal as it is, with whatever in it steers terminals
        #[arg(long)]
        raw: bool,
    },
    /// Keep a file
    Put(ArtifactPut),
    /// Remove some, whoever refers to them
    #[command(visible_alias = "rm")]
    Delete {
        /// Ids, or the starts of them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Remove what is not wanted any more [default: unused for 30 days, or of no session]
    Gc {
        /// What nobody has stored or read for so many days
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(..=36_500))]
        unused_days: Option<u64>,
        /// What no session refers to
        #[arg(long)]
        unreferenced: bool,
        /// What was used longest ago, until the rest is no larger
        #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(..=1 << 30))]
        max_mib: Option<u64>,
        /// Print what went as JSON
        #[arg(long)]
        json: bool,
    },
    /// Hold what is kept to its digests; put aside what is damaged, and fetch it back from the remote store
    Verify {
        /// Ids, or the starts of them [default: all]
        #[arg(value_name = "ID")]
        ids: Vec<String>,
        /// Read the remote copies as well, and send those again that are missing or damaged
        #[arg(long)]
        remote: bool,
        /// Print what was found as JSON
        #[arg(long)]
        json: bool,
    },
    /// Send what the remote store does not have, and wait until it has it
    Push {
        /// Ids, or the starts of them [default: all, and the datasets]
        #[arg(value_name = "ID")]
        ids: Vec<String>,
        /// Print what was sent as JSON
        #[arg(long)]
        json: bool,
    },
    /// Fetch from the remote store: datasets of others with their rows, and what is missing or damaged here
    Pull {
        /// Whole ids of what to fetch instead
        #[arg(value_name = "ID")]
        ids: Vec<String>,
        /// Fetch everything that is there
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        /// Print what came as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ArtifactPut {
    /// File to keep; `-` for standard input
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
    /// The session that refers to it
    #[arg(long, value_name = "NAME", default_value = "cli")]
    pub(crate) session: String,
    /// What it is [default: application/octet-stream]
    #[arg(long = "type", value_name = "MIME")]
    pub(crate) mime_type: Option<String>,
    /// What it is of
    #[arg(long)]
    pub(crate) title: Option<String>,
    /// Print what was kept as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
