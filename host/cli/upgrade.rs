//! `cellar session upgrade`: lets a session go on with the guests of now, whose former builds made its state.

use std::fmt::Write as _;

use cellar_config::{Overrides, SessionRequest};
use cellar_engine::{Language, config::Stops, guests::former_languages};

use crate::{
    args::{Folders, UpgradeArguments},
    on_runtime, output,
    report::{CliError, EXIT_COMPLETE},
    sessions, setup,
    terminal::escaped,
};

/// Tells what a session would lose, or has it begin anew with the guests of now. Its folders and its other languages stay.
///
/// # Errors
/// The session is not there, is in use or cannot be opened; the store fails.
pub(crate) fn upgrade(folders: &Folders, arguments: &UpgradeArguments) -> Result<(), CliError> {
    let UpgradeArguments { session: name, yes } = arguments;
    let config = setup::host_config(folders, Stops::default())?;
    let home = sessions::store(folders)?.claim_existing(name)?;
    let snapshot = home.load()?;
    let Some((snapshot, former)) = snapshot
        .map(|snapshot| (former_languages(&config, &snapshot), snapshot))
        .and_then(|(former, snapshot)| (!former.is_empty()).then_some((snapshot, former)))
    else {
        return output::print(&format!("all of session `{}` is of the guests that are here\n", escaped(name)));
    };
    if *yes {
        home.save(&snapshot.without(&former))?;
        return output::print(
            &former.iter().map(|language| format!("{} begins anew\n", language.title())).collect::<String>(),
        );
    }
    drop(home);
    on_runtime(async {
        output::print(&losses(folders, name, &former).await?)?;
        Ok(EXIT_COMPLETE)
    })?;
    Ok(())
}

/// The names that are lost, by languages.
async fn losses(folders: &Folders, name: &str, former: &[Language]) -> Result<String, CliError> {
    let overrides = Overrides::default();
    let request = SessionRequest { name: Some(name.to_owned()), overrides, ..SessionRequest::default() };
    let own = setup::open_session(folders, request).await?;
    let mut text = String::new();
    for language in former {
        let _ = writeln!(text, "{} was made by a former build, and would begin anew without", language.title());
        for variable in own.session().variables(*language).await? {
            let _ = writeln!(text, "  {}  {}", escaped(&variable.name), escaped(&variable.type_name));
        }
    }
    text.push_str("--yes does it; files and other languages stay\n");
    Ok(text)
}
