//! `cellar kernel`: what is typed to install a kernel for Jupyter, and what starts it.

use std::{ffi::OsString, path::PathBuf};

use clap::{ArgGroup, Args, Subcommand};

use super::GrantArguments;

#[derive(Debug, Args)]
pub(crate) struct KernelArguments {
    #[command(subcommand)]
    pub(crate) command: KernelCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KernelCommand {
    /// Have Jupyter's clients find kernels: one for each guest that is there, or the one that --guest names
    ///
    /// What is said of a session is granted to every notebook that uses the kernel.
    Install(KernelInstall),
    /// Serve the clients of a connection file; Jupyter starts this
    Run(KernelRun),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("place").args(["user", "prefix", "sys_prefix"])))]
pub(crate) struct KernelInstall {
    /// For this user, which is the default
    #[arg(long)]
    pub(crate) user: bool,
    /// For the programs below this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) prefix: Option<PathBuf>,
    /// For the virtual environment that is active
    #[arg(long)]
    pub(crate) sys_prefix: bool,
    /// Name of the kernel, which notebooks have in their files [default: cellar-GUEST]
    #[arg(long, value_name = "NAME", requires = "chosen")]
    pub(crate) name: Option<String>,
    /// Name that people see
    #[arg(long, value_name = "TEXT", requires = "chosen")]
    pub(crate) display_name: Option<String>,
    /// Let cells read and write the folder of their notebook, as /workspace
    #[arg(long, conflicts_with = "workspace")]
    pub(crate) notebook_folder: bool,
    #[command(flatten)]
    pub(crate) granted: GrantArguments,
}

#[derive(Debug, Args)]
pub(crate) struct KernelRun {
    /// The file that says where to listen and how messages are signed
    #[arg(value_name = "CONNECTION_FILE")]
    pub(crate) connection: PathBuf,
    /// Further arguments, which clients add for a kernel that is configured by them: `jupyter run` the files that it runs
    #[arg(hide = true)]
    _ignored: Vec<OsString>,
    #[command(flatten)]
    pub(crate) granted: GrantArguments,
}

/// Returns a command line without the settings that clients of Jupyter add for IPython's kernel, `--Class.trait=value`.
pub(crate) fn without_traits(line: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let line: Vec<OsString> = line.collect();
    let is_kernel = line.iter().skip(1).zip(["kernel", "run"]).filter(|(word, known)| word == known).count() == 2;
    let is_trait = |word: &OsString| {
        let name = word.to_str().and_then(|word| word.strip_prefix("--")?.split('=').next()?.split_once('.'));
        name.is_some_and(|(class, _)| class.starts_with(|first: char| first.is_ascii_uppercase()))
    };
    line.into_iter().filter(|word| !(is_kernel && is_trait(word))).collect()
}
