//! Arguments of `cellar describe`.

use std::path::PathBuf;

use clap::Args;

use super::LanguageCode;

#[derive(Debug, Args)]
pub(crate) struct DescribeArguments {
    /// Function to describe, such as `tool.add` [default: all, or how to search where they are many]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Language of the signatures
    #[arg(long, value_name = "LANGUAGE", default_value = "py")]
    pub(crate) language: LanguageCode,
    /// Print all of them, however many they are
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
    /// Print those that fit this text best, each in a line
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["name", "all"])]
    pub(crate) search: Option<String>,
    /// File that grants tools, packs and connectors
    #[arg(long, value_name = "cellar.toml")]
    pub(crate) config: Option<PathBuf>,
}
