//! Sessions that their clients do not look after: those of connections, and those that a model names. They end when nobody
//! has used them for a while.

use cellar_hub::SessionEntry;

use super::{Served, Tenant};
use crate::{access::now, problem::Problem};

/// Seconds without use after which such a session ends.
const STRAY_SECONDS: u64 = 24 * 3_600;
/// Part of its time after which the later end of a used session is noted.
const NOTED_AFTER: u64 = 8;

/// Owner of a session that ends when it is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stray {
    /// A connection, with which it ends.
    OfConnection,
    /// A client that has named it, or that has no connection.
    Named,
}

impl Tenant {
    /// Returns the session of this name, and true if it was opened by this: a session that is not there begins anew.
    ///
    /// # Errors
    /// The name is none that a session can have, the session is in use by another process, or a limit is reached.
    pub(crate) async fn session_or_new(&self, name: &str, stray: Stray) -> Result<(SessionEntry, bool), Problem> {
        match self.session(name).await {
            Ok(entry) => {
                if stray == Stray::Named {
                    self.keep_beyond_connection(name)?;
                }
                return Ok((entry, false));
            }
            Err(problem) if problem.status() == http::StatusCode::NOT_FOUND => {}
            Err(problem) => return Err(problem),
        }
        // One whose time is over is removed before another takes its name.
        if self.times.is_over(name, now()) {
            let _ = self.delete(name).await;
        }
        match self.create_as(name, true, None, self.usual_opening()).await {
            Ok(()) => self.make_stray(name, stray)?,
            // Another request was first.
            Err(problem) if problem.status() == http::StatusCode::CONFLICT => {
                return Ok((self.session(name).await?, false));
            }
            Err(problem) => return Err(problem),
        }
        Ok((self.hub.session(name)?, true))
    }

    /// Has a session end when it is not used for a while.
    pub(crate) fn make_stray(&self, name: &str, stray: Stray) -> Result<(), Problem> {
        let end = now().saturating_add(STRAY_SECONDS);
        let served = Served {
            unused_for: Some(STRAY_SECONDS),
            expires_at: Some(end),
            of_connection: stray == Stray::OfConnection,
            ..self.served(name)
        };
        self.note(name, &served)?;
        self.times.ends_unused(name, end, STRAY_SECONDS);
        Ok(())
    }

    /// Keeps a session when the connection ends that it was opened for: a client has named it.
    fn keep_beyond_connection(&self, name: &str) -> Result<(), Problem> {
        let served = self.served(name);
        match served.of_connection {
            true => self.note(name, &Served { of_connection: false, ..served }),
            false => Ok(()),
        }
    }

    /// Removes the session of a connection that has ended, unless it was named or the connection never had one.
    pub(crate) async fn end_connection(&self, name: &str) {
        if !self.served(name).of_connection {
            return;
        }
        if let Err(problem) = self.delete(name).await
            && problem.status() != http::StatusCode::NOT_FOUND
        {
            tracing::warn!(session = name, problem = problem.words(), "the session of a connection was not removed");
        }
    }

    /// Moves the end of a session that is used, if it ends for lack of use.
    pub(super) fn postpone(&self, name: &str) {
        let Some((end, unused_for)) = self.times.unused_end(name) else { return };
        let later = now().saturating_add(unused_for);
        if later.saturating_sub(end) < unused_for / NOTED_AFTER {
            return;
        }
        let served = Served { expires_at: Some(later), ..self.served(name) };
        if self.note(name, &served).is_ok() {
            self.times.ends_unused(name, later, unused_for);
        }
    }

    /// Sessions that are kept and are not awake. Blocks.
    pub(crate) fn sleeping(&self) -> usize {
        let records = std::fs::read_dir(self.store.join(super::SERVED)).map_or(0, Iterator::count);
        records.saturating_sub(self.times.awake())
    }

    /// True if the record of a session says that its time is over: another process may have used it.
    pub(super) fn is_over_by_record(&self, name: &str, now: u64) -> bool {
        let served = self.served(name);
        match served.expires_at {
            Some(end) if end > now => {
                match served.unused_for {
                    Some(unused_for) => self.times.ends_unused(name, end, unused_for),
                    None => self.times.ends(name, Some(end)),
                }
                false
            }
            _ => true,
        }
    }
}
