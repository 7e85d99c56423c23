//! `cellar describe`: what a model is told that cells may call.

use cellar_bridges::HostBridges;
use cellar_config::{Granted, Overrides};
use cellar_engine::{Language, bridges::catalog};

use crate::{
    args::DescribeArguments,
    output,
    report::{CliError, EXIT_COMPLETE},
};

/// Prints signatures.
///
/// # Errors
/// The configuration is not valid, or there is no function of the name.
pub(crate) async fn describe(arguments: DescribeArguments) -> Result<u8, CliError> {
    let DescribeArguments { name, language, all, search, config } = arguments;
    let language = Language::from(language);
    let overrides = Overrides { config, ..Overrides::default() };
    let granted = Granted::new(&overrides, overrides.file()?)?;
    let catalog = catalog(&HostBridges::new(granted.bridges)).await;
    let text = match (name, search) {
        (Some(name), _) => {
            catalog.describe(&name, language).map_err(|message| CliError::Usage { message, hint: None })?
        }
        (None, Some(text)) => catalog.search(&text, language, None).into_iter().map(|line| line + "\n").collect(),
        (None, None) if all => catalog.stubs(language),
        (None, None) if catalog.is_empty() => "# no tools, packs or connectors are granted\n".to_owned(),
        (None, None) => catalog.description(language).trim_end().to_owned() + "\n",
    };
    output::print(&text)?;
    Ok(EXIT_COMPLETE)
}
