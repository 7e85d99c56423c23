//! `cellar replay`: plays a recording and shows what its cells did.

use cellar_charts::Charts;
use cellar_engine::{Host, config::Stops};

use crate::{
    args::{Folders, ReplayArguments},
    output::{Follower, Form},
    render::{Options, Transcript},
    report::{CliError, print_progress},
    run::form,
    setup,
    terminal::Transcribed,
};

/// Plays the recording to its end, and shows one of its runs.
///
/// # Errors
/// The file is no recording that can be played here, or the guest does something else than it did.
pub(crate) async fn replay(folders: &Folders, arguments: ReplayArguments) -> Result<u8, CliError> {
    let host = Host::open(setup::host_config(folders, Stops::default())?)?;
    let charts = (!arguments.no_charts).then(|| Charts::new(host.clone()).into());
    let mut replay = host.replay(&arguments.file)?.with_renderers(charts.into_iter().collect());
    let options = Options::of_stdout(arguments.output, arguments.images);
    let form = form(arguments.output, || Form::Transcript(Box::new(Transcript::new(Transcribed, options))));
    let follower = Follower::new(form, None);
    // The tables of a replay are kept where nobody gave a store for.
    let tables = follower.reads_tables().then(|| replay.artifacts()).transpose()?;
    let mut follower = follower.with_artifacts(tables);
    let mut runs = 0;
    while let Some(replayed) = replay.next().await? {
        runs = replayed.run.max(runs);
        if replayed.run == arguments.run {
            follower.event(&replayed.event)?;
        }
    }
    if runs < arguments.run {
        let message = format!("the recording has {runs} runs, no run {}", arguments.run);
        return Err(CliError::usage(message, "name one of them with --run"));
    }
    if runs > 1 {
        print_progress(&format!("run {} of the {runs} that were recorded; --run shows another", arguments.run));
    }
    follower.finish().map(|end| end.exit_code(false))
}
