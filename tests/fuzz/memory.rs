//! Memory in use: the peak since the last reset, where the system tells.

use std::fs;

/// Resets the peak to the memory in use now, and returns it in bytes.
pub(crate) fn reset_peak() -> usize {
    // "5" has the kernel forget the peak.
    let _ = fs::write("/proc/self/clear_refs", "5");
    of_status("VmRSS:")
}

/// The most bytes that were in use since then.
pub(crate) fn peak() -> usize {
    of_status("VmHWM:")
}

fn of_status(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<usize>().ok()).unwrap_or_default() << 10
}
