//! `cellar bake`: makes guests ready to start.

use cellar_engine::{
    GuestName, HostConfig,
    guests::{BakeOptions, GuestState, bake, guest_status},
};

use crate::{
    args::{BakeArguments, Folders},
    output,
    report::{CliError, EXIT_COMPLETE, print_progress},
    setup,
    terminal::escaped,
};

/// Bakes the guests that were named, or all that are there, and prints where each lies.
///
/// # Errors
/// A guest that was named is missing, or cannot be baked.
pub(crate) fn bake_guests(folders: &Folders, arguments: &BakeArguments) -> Result<u8, CliError> {
    let config = setup::host_config(folders, arguments.stops.into())?;
    let mut guests: Vec<GuestName> = arguments.names.iter().map(|code| (*code).into()).collect();
    if guests.is_empty() {
        guests = present(&config);
    }
    if guests.is_empty() {
        let guest = GuestName::Python;
        let path = config.guests.join(guest.name());
        return Err(CliError::Engine(cellar_engine::Error::GuestMissing { guest, path }));
    }
    for name in guests {
        let report = bake(
            &config,
            name,
            BakeOptions {
                force: arguments.force,
                progress: Some(&mut |doing| {
                    print_progress(&format!("{name}: {doing}"));
                }),
            },
        )?;
        if !report.fresh {
            print_progress(&format!("{name}: ready already"));
        }
        output::print(&format!("{}\n", escaped(&report.path.to_string_lossy())))?;
    }
    Ok(EXIT_COMPLETE)
}

fn present(config: &HostConfig) -> Vec<GuestName> {
    let is_present = |guest: &GuestName| !matches!(guest_status(config, *guest).state, GuestState::Missing);
    GuestName::ALL.into_iter().filter(is_present).collect()
}
