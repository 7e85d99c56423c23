//! `cellar bake`: makes guests ready to start.

use std::sync::{Mutex, PoisonError};

use cellar_engine::{
    Error, GuestName, HostConfig,
    guests::{BakeOptions, BakeReport, GuestState, bake, guest_status},
};

use crate::{
    args::{BakeArguments, Folders},
    output,
    report::{CliError, EXIT_COMPLETE, print_progress},
    setup,
    terminal::escaped,
};

/// Bakes the guests that were named, or all that are there, as many at once as there are cores, and prints where each lies.
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
        return Err(CliError::Engine(Error::GuestMissing { guest, path }));
    }
    for report in bake_all(&config, &guests, arguments) {
        let report = report?;
        for path in if arguments.files { report.files } else { vec![report.path] } {
            output::print(&format!("{}\n", escaped(&path.to_string_lossy())))?;
        }
    }
    Ok(EXIT_COMPLETE)
}

/// Bakes guests side by side. The outcomes are in the order of the names; none is begun after one has failed.
fn bake_all(config: &HostConfig, guests: &[GuestName], arguments: &BakeArguments) -> Vec<Result<BakeReport, Error>> {
    let left = Mutex::new(guests.iter().enumerate());
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, name)) = next else { break };
            let outcome = bake_one(config, *name, arguments);
            if outcome.is_err() {
                left.lock().unwrap_or_else(PoisonError::into_inner).by_ref().for_each(drop);
            }
            done.lock().unwrap_or_else(PoisonError::into_inner).push((place, outcome));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(guests.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

fn bake_one(config: &HostConfig, name: GuestName, arguments: &BakeArguments) -> Result<BakeReport, Error> {
    let mut progress = |doing: &str| print_progress(doing);
    let BakeArguments { force, fuel, target, .. } = *arguments;
    let options = BakeOptions { force, fuel, target: target.into(), progress: Some(&mut progress) };
    let report = bake(config, name, options)?;
    if !report.fresh {
        print_progress(&format!("{name}: ready already"));
    }
    Ok(report)
}

fn present(config: &HostConfig) -> Vec<GuestName> {
    let is_present = |guest: &GuestName| !matches!(guest_status(config, *guest).state, GuestState::Missing);
    GuestName::ALL.into_iter().filter(is_present).collect()
}
