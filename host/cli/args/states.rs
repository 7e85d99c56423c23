//! Arguments of the commands on the states of a session.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// The session
    #[arg(value_name = "NAME", add = crate::completion::sessions())]
    pub(crate) session: String,
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StateArguments {
    /// The session
    #[arg(value_name = "NAME", add = crate::completion::sessions())]
    pub(crate) session: String,
    /// Number or name of the state; `~1` is the one before the present one, and so on
    #[arg(value_name = "STATE")]
    pub(crate) state: String,
}

#[derive(Debug, Args)]
pub(crate) struct BranchArguments {
    #[command(flatten)]
    pub(crate) of: StateArguments,
    /// Name of the session to make
    #[arg(value_name = "NEW")]
    pub(crate) new: String,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArguments {
    /// The session
    #[arg(value_name = "NAME", add = crate::completion::sessions())]
    pub(crate) session: String,
    /// The one state
    #[arg(value_name = "A")]
    pub(crate) before: String,
    /// The other
    #[arg(value_name = "B")]
    pub(crate) after: String,
    /// Print the differences as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    #[command(flatten)]
    pub(crate) of: StateArguments,
    /// Its name; without one, the name that it has is taken away
    #[arg(value_name = "TEXT")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PinArguments {
    #[command(flatten)]
    pub(crate) of: StateArguments,
    /// Unpin it
    #[arg(long)]
    pub(crate) remove: bool,
}
