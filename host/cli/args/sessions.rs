//! Arguments of `cellar session`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    LanguageCode,
    states::{BranchArguments, DiffArguments, LogArguments, NameArguments, PinArguments, StateArguments},
};

#[derive(Debug, Args)]
pub(crate) struct KeptSessionArguments {
    #[command(subcommand)]
    pub(crate) command: SessionCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List them, by name
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove some, with their state and their private workspaces
    #[command(visible_alias = "rm")]
    Remove {
        /// The sessions
        #[arg(value_name = "NAME", required = true, add = crate::completion::sessions())]
        names: Vec<String>,
    },
    /// Write the state of one into a file
    Snapshot(SnapshotArguments),
    /// Make one from a snapshot, or take one back to it
    Restore(RestoreArguments),
    /// Make one that begins with the state of another
    Fork(ForkArguments),
    /// Tell where the names of one come from
    Origin(OriginArguments),
    /// List the states of one that are kept, the oldest first: every end of a cell is one, with the files of that instant
    Log(LogArguments),
    /// Take one back to one of its states, with its files
    Back(StateArguments),
    /// Make one that begins with a state of another, with the files of that instant
    Branch(BranchArguments),
    /// Compare two states of one: names of variables, and files
    Diff(DiffArguments),
    /// Name a state of one, which is kept from then on
    Name(NameArguments),
    /// Keep a state of one whatever comes after
    Pin(PinArguments),
    /// Forget a state of one
    Forget(StateArguments),
    /// Move one on to the guests of now, from former builds of them
    Upgrade(UpgradeArguments),
}

/// The commands of `cellar session` as they were called before, which work as they did.
#[derive(Debug, Subcommand)]
pub(crate) enum FormerCommand {
    /// List or remove kept sessions: `cellar session list` and `remove`
    #[command(hide = true)]
    Sessions {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
        /// Remove a session, its state and its private workspace
        #[arg(long, value_name = "NAME", conflicts_with = "json")]
        delete: Vec<String>,
    },
    /// Write the state of a kept session into a file: `cellar session snapshot`
    #[command(hide = true)]
    Snapshot(SnapshotArguments),
    /// Make a session from a snapshot, or take one back to it: `cellar session restore`
    #[command(hide = true)]
    Restore(RestoreArguments),
    /// Make a session that begins with the state of another: `cellar session fork`
    #[command(hide = true)]
    Fork(ForkArguments),
    /// Tell where the names of a kept session come from: `cellar session origin`
    #[command(hide = true)]
    Origin(OriginArguments),
}

impl From<FormerCommand> for SessionCommand {
    fn from(former: FormerCommand) -> SessionCommand {
        match former {
            FormerCommand::Sessions { json, delete } if delete.is_empty() => SessionCommand::List { json },
            FormerCommand::Sessions { delete, .. } => SessionCommand::Remove { names: delete },
            FormerCommand::Snapshot(arguments) => SessionCommand::Snapshot(arguments),
            FormerCommand::Restore(arguments) => SessionCommand::Restore(arguments),
            FormerCommand::Fork(arguments) => SessionCommand::Fork(arguments),
            FormerCommand::Origin(arguments) => SessionCommand::Origin(arguments),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeArguments {
    /// The session
    #[arg(value_name = "NAME", add = crate::completion::sessions())]
    pub(crate) session: String,
    /// Do it, and lose what is told otherwise
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotArguments {
    /// The session, as it was last stored
    #[arg(value_name = "NAME", add = crate::completion::sessions())]
    pub(crate) session: String,
    /// File to write, without the session's own files; `-` for standard output
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// A snapshot; `-` for standard input
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
    /// Name of the session to make [default: the one that the snapshot was taken of]
    #[arg(value_name = "NAME", add = crate::completion::sessions())]
    pub(crate) session: Option<String>,
    /// Take a session that is there back to the snapshot; its files stay as they are
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArguments {
    /// The session to begin with, as it was last stored
    #[arg(value_name = "NAME", add = crate::completion::sessions())]
    pub(crate) session: String,
    /// Name of the session to make; it gets a copy of the private workspace
    #[arg(value_name = "NEW")]
    pub(crate) new: String,
}

#[derive(Debug, Args)]
pub(crate) struct OriginArguments {
    /// The session, as it was last stored
    #[arg(value_name = "SESSION", add = crate::completion::sessions())]
    pub(crate) session: String,
    /// One name [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only names of this language [default: all]
    #[arg(short, long, value_name = "LANGUAGE")]
    pub(crate) language: Option<LanguageCode>,
    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
