//! seccomp: the system calls that this process may make.
//!
//! `system_calls.json` lists them. The list was measured (`strace -cf` over the tests of the server) and then filled up with what belongs
//! together, so that another C library or another version of a dependency finds its own. Everything else fails with `EPERM`: starting a
//! program, tracing or reading another process, mounting, namespaces, keys, `io_uring`, `bpf`, modules, clocks, identities.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter_all_threads, compile_from_json};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{IsolationError, Needs};

/// Name of the one filter that is compiled.
const FILTER: &str = "filter";

/// The list. Rules with conditions are as seccompiler reads them; those of one system call are alternatives.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    always: BTreeMap<String, Vec<String>>,
    #[serde(rename = "older forms, on x86_64")]
    older: Vec<String>,
    #[serde(rename = "with conditions")]
    conditional: Vec<Value>,
    #[serde(rename = "if it connects")]
    connects: Vec<Value>,
    #[serde(rename = "if it makes local sockets")]
    local_sockets: Vec<Value>,
}

pub(crate) fn is_available() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").is_ok_and(|actions| actions.contains("errno"))
}

/// Filters the system calls of this process from now on.
pub(crate) fn restrict(needs: &Needs) -> Result<(), IsolationError> {
    let refused =
        |error: &dyn std::fmt::Display| IsolationError::Refused { layer: "seccomp", reason: error.to_string() };
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| refused(&error))?;
    // Arguments of a new thread are told to `clone3` in memory, which no filter sees: whoever hears that there is none uses `clone`.
    // This filter comes first, as the other one does not allow filters.
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let older = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let older = SeccompFilter::new(older, SeccompAction::Allow, missing, arch).map_err(|error| refused(&error))?;
    let older = BpfProgram::try_from(older).map_err(|error| refused(&error))?;
    let filter = filter(needs, arch, std::process::id()).map_err(|error| refused(&error))?;
    for program in [older, filter] {
        apply_filter_all_threads(&program).map_err(|error| refused(&error))?;
    }
    Ok(())
}

/// Rules for a process with these needs, in the words of seccompiler.
fn rules(needs: &Needs, arch: TargetArch, process: u32) -> Result<Vec<Value>, serde_json::Error> {
    let list: List = serde_json::from_str(include_str!("system_calls.json"))?;
    let older = if arch == TargetArch::x86_64 { list.older } else { Vec::new() };
    let always = list.always.into_values().flatten().chain(older).map(|name| json!({ "syscall": name }));
    let connects = if needs.connects { list.connects } else { Vec::new() };
    let local = if needs.local_sockets { list.local_sockets } else { Vec::new() };
    let mut rules: Vec<Value> = Vec::new();
    for mut rule in always.chain(list.conditional).chain(connects).chain(local) {
        for condition in rule.get_mut("args").and_then(Value::as_array_mut).into_iter().flatten() {
            if condition["val"] == "this process" {
                condition["val"] = process.into();
            }
        }
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    Ok(rules)
}

fn filter(needs: &Needs, arch: TargetArch, process: u32) -> Result<BpfProgram, Box<dyn std::error::Error>> {
    let rules = rules(needs, arch, process)?;
    let denied = json!({ "errno": libc::EPERM });
    let text = json!({ FILTER: { "mismatch_action": denied, "match_action": "allow", "filter": rules } }).to_string();
    Ok(compile_from_json(text.as_bytes(), arch)?.remove(FILTER).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [TargetArch; 2] = [TargetArch::x86_64, TargetArch::aarch64];

    fn names(needs: &Needs, arch: TargetArch) -> Vec<String> {
        let rules = rules(needs, arch, 1).expect("rules");
        rules.iter().map(|rule| rule["syscall"].as_str().expect("a name").to_owned()).collect()
    }

    #[test]
    fn the_list_compiles_for_every_processor_and_need() {
        for arch in BOTH {
            for [connects, local_sockets] in [[false, false], [true, false], [false, true], [true, true]] {
                let needs = Needs { connects, local_sockets, ..Needs::default() };
                assert!(filter(&needs, arch, 1).expect("a filter").len() > 100, "{arch:?}");
            }
        }
    }

    #[test]
    fn what_starts_programs_or_reaches_other_processes_is_never_allowed() {
        for arch in BOTH {
            let all = names(&Needs { connects: true, local_sockets: true, ..Needs::default() }, arch);
            for call in [
                "execve",
                "execveat",
                "ptrace",
                "process_vm_readv",
                "process_vm_writev",
                "pidfd_getfd",
                "io_uring_setup",
                "bpf",
                "perf_event_open",
                "mount",
                "umount2",
                "unshare",
                "setns",
                "chroot",
                "pivot_root",
                "keyctl",
                "add_key",
                "userfaultfd",
                "open_by_handle_at",
                "init_module",
                "kexec_load",
                "reboot",
                "setuid",
                "personality",
                "kill",
            ] {
                assert!(!all.iter().any(|name| name == call), "{call}");
            }
            let none = names(&Needs::default(), arch);
            for call in ["socket", "connect", "bind", "listen"] {
                assert!(!none.iter().any(|name| name == call) && all.iter().any(|name| name == call), "{call}");
            }
        }
    }
}
