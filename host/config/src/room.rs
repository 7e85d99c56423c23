//! Capacity of a host in kernels: as many as its memory lets work at the same time.

use std::{fs, path::Path};

use crate::HostTable;

/// Memory that a kernel at work takes, as a rule: a little for one that does little, up to the limit of its session for
/// one that does much.
const KERNEL_BYTES: u64 = 64 << 20;
/// The part of the memory, one in so many, that kernels at work may take. States of kernels that sleep, outputs and the
/// program itself take from the rest.
const MEMORY_SHARE: u64 = 2;
/// Kernels of the smallest host: one a language, and those that are being given back.
const KERNELS_LEAST: u64 = 4;
/// Kernels of the largest: each reserves 4 GiB of address space.
const KERNELS_MOST: u64 = 1_024;
/// Memory of a machine that does not tell.
const MEMORY_ASSUMED_BYTES: u64 = 4 << 30;

/// Returns the number of kernels that may be awake at the same time: that of the configuration, or as many as the
/// memory of this machine, and of the control group of this process, allows.
pub fn kernels_max(table: &HostTable) -> u32 {
    let kernels = table.kernels.unwrap_or_else(|| kernels_in(memory_bytes()));
    u32::try_from(kernels).unwrap_or(u32::MAX)
}

fn kernels_in(memory_bytes: u64) -> u64 {
    (memory_bytes / MEMORY_SHARE / KERNEL_BYTES).clamp(KERNELS_LEAST, KERNELS_MOST)
}

/// Memory that this process may use.
pub fn memory_bytes() -> u64 {
    let of_machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_bytes(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups =
        limit_files(&groups).into_iter().filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    of_groups.chain(of_machine).min().unwrap_or(MEMORY_ASSUMED_BYTES)
}

/// `MemTotal` of `/proc/meminfo`.
fn total_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// The files that may hold a limit of the groups that `/proc/self/cgroup` names, and of those above them. In a container
/// the root of the mount is the own group.
fn limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for group in Path::new(path).ancestors() {
            let group = group.to_string_lossy();
            files.push(format!("{root}{}/{file}", group.trim_end_matches('/')));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_follow_from_memory_within_bounds() {
        assert_eq!(kernels_in(512 << 20), KERNELS_LEAST);
        assert_eq!(kernels_in(8 << 30), 64);
        assert_eq!(kernels_in(24 << 30), 192);
        assert_eq!(kernels_in(1 << 50), KERNELS_MOST);
        assert_eq!(kernels_max(&HostTable { kernels: Some(7), ..HostTable::default() }), 7);
    }

    #[test]
    fn memory_is_that_of_the_machine_or_the_group() {
        assert_eq!(total_bytes("MemFree: 1 kB\nMemTotal:       24683880 kB\n"), Some(24_683_880 << 10));
        assert_eq!(total_bytes("MemTotal: much"), None);
        let unified = limit_files("0::/user.slice/session.scope\n");
        let expected = ["/user.slice/session.scope", "/user.slice", ""];
        assert_eq!(unified, expected.map(|group| format!("/sys/fs/cgroup{group}/memory.max")));
        let old = limit_files("4:cpu,memory:/docker\n1:name=systemd:/\n");
        assert_eq!(old, ["/docker", ""].map(|group| format!("/sys/fs/cgroup/memory{group}/memory.limit_in_bytes")));
        assert!(memory_bytes() > 0);
    }
}
