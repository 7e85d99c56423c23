//! The machine that the figures come from, for whoever reads them later.

use std::{
    fs::{Metadata, read_to_string},
    os::unix::fs::MetadataExt,
    path::Path,
};

/// Processor and cores in a few words.
pub(crate) fn processor() -> String {
    let processors = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = field(&processors, "model name").unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{model}, {cores} cores")
}

/// The same with memory.
pub(crate) fn describe() -> String {
    let memory = read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = field(&memory, "MemTotal").and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
    format!("{}, {} GB", processor(), kilobytes.unwrap_or(0) / 1_000_000)
}

/// The load average of the last minute.
pub(crate) fn load() -> String {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Memory of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Bytes of private pages that differ from their file, or have none.
    pub(crate) private: u64,
    /// Bytes of page tables, which belong to the process too and which no other figure counts.
    pub(crate) page_tables: u64,
}

impl Memory {
    pub(crate) fn now() -> Memory {
        let rollup = read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        Memory { private: kilobytes(&rollup, "Private_Dirty"), page_tables: kilobytes(&status, "VmPTE") }
    }
}

fn kilobytes(text: &str, name: &str) -> u64 {
    let value = field(text, name).and_then(|text| text.strip_suffix(" kB")).and_then(|text| text.parse::<u64>().ok());
    value.expect("the kernel tells the memory of a process") * 1024
}

/// The value of the first `name: value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':')).map(str::trim)
}

/// Millions of bytes that the disk has given to a folder and all in it. What goes meanwhile does not count.
pub(crate) fn disk_usage(folder: &Path) -> f64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let below: f64 = entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_usage(&entry.path()),
            Ok(metadata) => megabytes(&metadata),
            Err(_) => 0.0,
        })
        .sum();
    below + folder.metadata().map_or(0.0, |metadata| megabytes(&metadata))
}

fn megabytes(metadata: &Metadata) -> f64 {
    metadata.blocks() as f64 * 512.0 / 1e6
}
