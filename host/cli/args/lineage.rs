//! Arguments that describe a run's lineage, and those of `cellar dataset`.

use std::path::PathBuf;

use cellar_engine::config::RunOptions;
use clap::{Args, Subcommand};

/// What a run says of itself.
#[derive(Debug, Args)]
pub(crate) struct LineageArguments {
    /// Who makes the run, such as the path of a notebook: the names that its cells bind get an origin
    #[arg(long, value_name = "NAME")]
    pub(crate) producer: Option<String>,
    /// Give no name an origin although there is a producer, and publish no datasets
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Let cells load this dataset, and no other that is not given too: `dataset:NAME`; repeatable; `none` for none at all
    #[arg(long, value_name = "KIND:NAME", value_parser = seen, add = crate::completion::seen())]
    pub(crate) seen: Vec<(String, String)>,
}

impl LineageArguments {
    pub(crate) fn options(self) -> RunOptions {
        let LineageArguments { producer, dry_run, seen } = self;
        RunOptions { producer, dry_run, seen: (!seen.is_empty()).then_some(seen) }
    }
}

fn seen(text: &str) -> Result<(String, String), &'static str> {
    if text == "none" {
        return Ok((text.to_owned(), String::new()));
    }
    let (kind, name) = text.split_once(':').ok_or("expected a kind and a name, as in `dataset:inflation_monthly`")?;
    Ok((kind.to_owned(), name.to_owned()))
}

#[derive(Debug, Args)]
pub(crate) struct DatasetArguments {
    #[command(subcommand)]
    pub(crate) command: DatasetCommand,
    /// File whose `[artifacts]` says how much may be kept, and where else
    #[arg(long, global = true, value_name = "cellar.toml")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DatasetCommand {
    /// Publish a Parquet file as the next version of a dataset
    Publish(DatasetPublish),
    /// List them, each with its latest version
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell the versions of one, the oldest first
    Show {
        /// The dataset
        #[arg(value_name = "NAME", add = crate::completion::datasets())]
        name: String,
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print or save the rows of one, a Parquet file
    Get {
        /// The dataset
        #[arg(value_name = "NAME", add = crate::completion::datasets())]
        name: String,
        /// File to write; `-` for standard output
        #[arg(value_name = "FILE|-", default_value = "-")]
        file: PathBuf,
        /// Number of the version [default: the latest]
        #[arg(long, value_name = "NUMBER")]
        version_number: Option<u64>,
    },
    /// Remove some with all of their versions
    #[command(visible_alias = "rm")]
    Delete {
        /// The datasets
        #[arg(value_name = "NAME", required = true, add = crate::completion::datasets())]
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DatasetPublish {
    /// The dataset, which is made when there is none: small letters, digits, `_` and `-`
    #[arg(value_name = "NAME", add = crate::completion::datasets())]
    pub(crate) name: String,
    /// Parquet file; `-` for standard input
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
    /// Who publishes it
    #[arg(long, value_name = "NAME", default_value = "cli")]
    pub(crate) publisher: String,
    /// How many of the latest versions stay [default: 1000]
    #[arg(long, value_name = "COUNT")]
    pub(crate) keep: Option<usize>,
    /// Print the version as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
