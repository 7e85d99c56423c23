//! Commands: processes of a session that are runs of their own, beside the runs of its cells.

use cellar_config::languages_of;
use cellar_engine::CommandInput;

use super::Hub;
use crate::{
    error::HubError,
    run::{Driving, RunHandle, RunRequest},
    turn::Turns,
};

impl Hub {
    /// Begins a command, which waits for no other run of the session. The one cell of `request` reads the order that
    /// `order` makes of the number of its standard input; `environment` is added to that of the session.
    ///
    /// # Errors
    /// As with [`Hub::start`].
    pub fn begin_command(
        &self,
        session: &str,
        request: RunRequest,
        environment: Vec<(String, String)>,
        order: impl FnOnce(u64) -> String,
    ) -> Result<(RunHandle, Driving, CommandInput), HubError> {
        self.0.config.bounds.admit()?;
        let entry = self.session(session)?;
        let (child, input) = entry.session.command(environment, order)?;
        // The run keeps the session, not the command, which goes when it has ended.
        let handle = RunHandle::new(&request, entry.session, session, self.0.account.clone());
        self.register(&handle)?;
        let (hub, cells) = (self.clone(), request.cells);
        let prepared = async move {
            hub.make_ready(&child, &languages_of(&cells)).await?;
            Ok(child.run(cells)?)
        };
        let driving = self.driving(&handle, prepared, Turns::default().take(), entry.answerer, false);
        Ok((handle, driving, input))
    }
}
