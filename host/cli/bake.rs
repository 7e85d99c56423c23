//! `cellar bake`: makes guests ready to start.

use cellar_engine::{GuestState, HostConfig, Language, bake, guest_status};

use crate::{
    args::{BakeArguments, Folders},
    output,
    report::{CliError, EXIT_COMPLETE, print_progress},
    setup,
};

/// Bakes the languages that were named, or all whose guests are there, and prints where each lies.
///
/// # Errors
/// A guest that was named is missing, or cannot be baked.
pub(crate) fn bake_guests(folders: &Folders, arguments: &BakeArguments) -> Result<u8, CliError> {
    let config = setup::host_config(folders)?;
    let mut languages: Vec<Language> = arguments.languages.iter().map(|code| (*code).into()).collect();
    if languages.is_empty() {
        languages = present(&config);
    }
    if languages.is_empty() {
        let path = config.guests.join(Language::Python.guest_name());
        return Err(CliError::Engine(cellar_engine::Error::GuestMissing { language: Language::Python, path }));
    }
    for language in languages {
        let name = language.guest_name();
        let report = bake(&config, language, arguments.force, &mut |doing| {
            print_progress(&format!("{name}: {doing}"));
        })?;
        if !report.fresh {
            print_progress(&format!("{name}: ready already"));
        }
        output::print(format!("{}\n", report.path.display()).as_bytes())?;
    }
    Ok(EXIT_COMPLETE)
}

fn present(config: &HostConfig) -> Vec<Language> {
    let is_present = |language: &Language| !matches!(guest_status(config, *language).state, GuestState::Missing);
    Language::ALL.into_iter().filter(is_present).collect()
}
