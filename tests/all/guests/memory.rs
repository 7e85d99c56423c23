//! What a runaway cell costs its host.

use std::process::Command;

use crate::support::{cellar_with_guests, run};

/// Runs a command and prints the largest resident size of any of its processes, in KiB.
const MEASURE: &str = "\
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";

/// Memory of the process beside the cell's own: the program, the guest's code and image.
const OVERHEAD_MIB: u64 = 256;

fn resident_mib(language: &str, code: &str, limit_mib: u64) -> u64 {
    let limit = limit_mib.to_string();
    let cellar = cellar_with_guests(["eval", "-l", language, "--memory", &limit, code]);
    let mut measured = Command::new("python3");
    measured.args(["-c", MEASURE]).arg(cellar.get_program()).args(cellar.get_args());
    for (name, value) in cellar.get_envs() {
        match value {
            Some(value) => measured.env(name, value),
            None => measured.env_remove(name),
        };
    }
    let ended = run(measured.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()));
    let kibibytes: u64 = ended.stdout.trim().parse().expect("a size");
    kibibytes >> 10
}

#[test]
fn a_cell_that_fills_memory_stays_within_its_budget() {
    let hogs = [
        ("py", "blocks = []\nwhile True: blocks.append(b'x' * (1 << 20))"),
        ("js", "let blocks = []; while (true) blocks.push(new Uint8Array(1 << 20).fill(1));"),
    ];
    for (language, code) in hogs {
        for limit_mib in [64, 512] {
            let resident = resident_mib(language, code, limit_mib);
            assert!(resident <= limit_mib + OVERHEAD_MIB, "{language}: {resident} MiB with a limit of {limit_mib} MiB");
            assert!(
                resident >= limit_mib / 2,
                "{language}: {resident} MiB is too little to have filled {limit_mib} MiB"
            );
        }
    }
}
