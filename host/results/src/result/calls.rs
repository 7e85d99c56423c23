//! Calls of bridges, which a result reports as status events once they have completed.

use std::{collections::HashMap, time::Duration};

use cellar_core::{
    event::{Bridge, HostStatus, Scalar},
    text::prefix,
};

use super::RunResult;

/// Calls under way that a result remembers the names of: as many as a kernel may have.
const OPEN_MAX: usize = 4_096;
/// Bytes of the message of a call that failed.
const ERROR_BYTES_MAX: u64 = 1 << 10;

/// The calls that are under way, by the index of their cell and their number.
#[derive(Clone, Debug, Default)]
pub(super) struct Open(HashMap<(usize, u64), (Bridge, String)>);

impl RunResult {
    pub(super) fn call_started(&mut self, call: (usize, u64), bridge: Bridge, name: &str) {
        if self.calls.0.len() < OPEN_MAX {
            self.calls.0.insert(call, (bridge, name.to_owned()));
        }
    }

    pub(super) fn call_finished(&mut self, call: (usize, u64), duration: Duration, error: Option<&str>) {
        let Some((bridge, name)) = self.calls.0.remove(&call) else { return };
        let text = |text: &str| Scalar::Text(text.to_owned());
        // To the microsecond, as in the event of the call.
        let milliseconds = duration.as_micros() as f64 / 1_000.0;
        let mut fields = vec![
            ("bridge".to_owned(), text(bridge.as_str())),
            ("name".to_owned(), text(&name)),
            ("duration_ms".to_owned(), Scalar::Number(milliseconds)),
        ];
        fields.extend(error.map(|error| ("error".to_owned(), text(prefix(error, ERROR_BYTES_MAX)))));
        self.status(call.0, HostStatus::Call.as_str(), &fields);
    }
}
