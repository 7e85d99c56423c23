//! The clock on the wall, and moments to come.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// As good as never.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// The moment that is so much later. One that no clock can tell is a hundred years away: adding a duration panics there, and
/// durations come from configurations and files.
pub fn later(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).or_else(|| at.checked_add(FAR)).unwrap_or(at)
}

/// Nanoseconds since the Unix epoch.
pub fn wall_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Milliseconds, to the microsecond.
pub fn fractional_millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_moment_is_too_late() {
        let now = Instant::now();
        assert_eq!(later(now, Duration::from_secs(5)) - now, Duration::from_secs(5));
        assert_eq!(later(now, Duration::MAX) - now, FAR);
    }
}
