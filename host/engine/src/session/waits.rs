//! Calls that wait for a person.

use std::{sync::Arc, time::Instant};

use cellar_core::{
    event::{Bridge, HostStatus, Scalar},
    time::fractional_millis,
};
use rand::Rng;

use super::Session;
use crate::{
    audit::{AuditKind, Auditor, DecisionEntry},
    contract::bridge::{Call, CallError, CallErrorKind},
    kernel::{calls::Site, events::Hearer},
};

/// Wait of one call for a person's decision. The bridges begin it, and say how it ended.
#[derive(Clone, Debug)]
pub struct Wait {
    id: String,
    cell: u32,
    bridge: Bridge,
    name: String,
    hearer: Option<Hearer>,
    auditor: Option<Arc<Auditor>>,
    since: Instant,
}

/// Verdict of a person on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is carried out as it is.
    Approved,
    /// It is carried out with other arguments.
    Edited,
    /// It is not carried out.
    Rejected,
}

impl Wait {
    /// Prepares the wait of a call. Its id cannot be guessed.
    pub(crate) fn new(session: &Session, site: &Site, call: &Call) -> Wait {
        Wait {
            id: format!("call-{:032x}", rand::rng().random::<u128>()),
            cell: site.cell.0,
            bridge: call.bridge(),
            name: call.name().into_owned(),
            hearer: site.hearer.clone(),
            auditor: session.auditor(),
            since: Instant::now(),
        }
    }

    /// Id by which the call is decided on.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Tells the run of the cell that the call waits: the status event `call_waits`.
    ///
    /// # Cancel safety
    /// Cancel safe: an event that was not sent is dropped.
    pub async fn begin(&self) {
        let Some(hearer) = &self.hearer else { return };
        let text = |text: &str| Scalar::Text(text.to_owned());
        let fields = vec![
            ("wait".to_owned(), text(&self.id)),
            ("bridge".to_owned(), text(self.bridge.as_str())),
            ("name".to_owned(), text(&self.name)),
        ];
        // Without a reader there is nobody to tell.
        let _ = hearer.hear(HostStatus::CallWaits.event(hearer.index, fields)).await;
    }

    /// Writes the decision, and who made it, to the audit log.
    ///
    /// # Errors
    /// It cannot be written: the call must not be carried out.
    pub async fn end(&self, verdict: Verdict, by: &str) -> Result<(), CallError> {
        let Some(auditor) = &self.auditor else { return Ok(()) };
        let decision = match verdict {
            Verdict::Approved => "approved",
            Verdict::Edited => "edited",
            Verdict::Rejected => "rejected",
        };
        let entry = DecisionEntry {
            wait: self.id.clone(),
            cell: self.cell,
            bridge: self.bridge.as_str().to_owned(),
            name: crate::audit::bounded_name(&self.name),
            decision: decision.to_owned(),
            by: by.to_owned(),
            waited_ms: fractional_millis(self.since.elapsed()),
        };
        let written = auditor.write(None, AuditKind::Decision(entry)).await;
        written.map_err(|reason| CallError::new(CallErrorKind::Failed, reason))
    }
}
