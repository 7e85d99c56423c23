//! landlock: which files, and whom else, this process may reach.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};

use crate::{IsolationError, Needs};

/// Newest landlock interface whose features are used, if the kernel has them.
const NEWEST: ABI = ABI::V6;

/// Files that every program of the system reads: libraries, time zones, fonts, and the kernel's information on this process and on the
/// machine.
const SYSTEM: [&str; 18] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/sys/vm",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/dev/urandom",
];
/// Files that whoever connects reads besides: names and certificates, and no keys.
const NETWORK: [&str; 15] = [
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/etc/ca-certificates",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/run/systemd/resolve",
];
/// Device that such a program also writes to.
const NOWHERE: &str = "/dev/null";
/// Environment variables with other paths of certificates.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Returns the newest interface version up to [`NEWEST`] that the kernel has.
pub(crate) fn version() -> Option<u32> {
    let has = |abi: ABI| {
        let made = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let made = made.handle_access(AccessFs::from_all(abi));
        let made = match AccessNet::from_all(abi) {
            none if none.is_empty() => made,
            all => made.and_then(|made| made.handle_access(all)),
        };
        let made = match Scope::from_all(abi) {
            none if none.is_empty() => made,
            all => made.and_then(|made| made.scope(all)),
        };
        made.and_then(Ruleset::create).is_ok()
    };
    let known = [(ABI::V6, 6), (ABI::V5, 5), (ABI::V4, 4), (ABI::V3, 3), (ABI::V2, 2), (ABI::V1, 1)];
    known.into_iter().find(|(abi, _)| has(*abi)).map(|(_, version)| version)
}

/// Bounds this thread, and those that it starts.
pub(crate) fn restrict(needs: &Needs) -> Result<(), IsolationError> {
    // THREAT: T05
    let refused =
        |reason: &dyn std::fmt::Display| IsolationError::Refused { layer: "landlock", reason: reason.to_string() };
    let all = AccessFs::from_all(NEWEST);
    let mut connections: BitFlags<AccessNet> = AccessNet::BindTcp.into();
    if !needs.connects {
        connections |= AccessNet::ConnectTcp;
    }
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|ruleset| ruleset.handle_access(connections))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(|error| refused(&error))?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut write = AccessFs::from_all(NEWEST);
    write
        .remove(AccessFs::Execute | AccessFs::IoctlDev | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeFifo);
    if !needs.local_sockets {
        write.remove(AccessFs::MakeSock);
    }
    let certificates = CERTIFICATES.into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let network = NETWORK.into_iter().map(PathBuf::from).chain(certificates).filter(|_| needs.connects);
    let readable = SYSTEM.into_iter().map(PathBuf::from).chain(network).chain(needs.read.iter().cloned());
    let status = ruleset
        .add_rules(path_beneath_rules(readable, read))
        .and_then(|ruleset| ruleset.add_rules(path_beneath_rules(&needs.write, write)))
        .and_then(|ruleset| ruleset.add_rules(path_beneath_rules([NOWHERE], read | AccessFs::WriteFile)))
        .and_then(|ruleset| ruleset.restrict_self())
        .map_err(|error| refused(&error))?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(refused(&"the kernel enforces nothing")),
        _ => Ok(()),
    }
}
