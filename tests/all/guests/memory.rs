//! Memory that runaway cells, and many cells, take from their host.

use std::process::Command;

use serde_json::json;

use crate::support::{cellar_with_guests, result_of_run, run};

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

/// Cells that a long session repeats, some of which fail.
const HABITS: [&str; 10] = [
    "1 / 0",
    "display({'a': [1, 2, 3]})\n[1, 2, 3]",
    "import asyncio\nawait asyncio.sleep(0)\nraise ValueError('after waiting')",
    "def forever(n): return forever(n + 1)\nforever(0)",
    "x = (1,",
    "from IPython.display import HTML\nHTML('<b>bold</b>')",
    "print('x' * 1000)",
    "async def fail(): 1 / 0\nawait asyncio.gather(fail(), fail())",
    "class Mute:\n    def __repr__(self): raise ValueError\nMute()",
    "task = asyncio.create_task(asyncio.sleep(100)); task.cancel(); await task",
];

#[test]
fn three_thousand_cells_leave_no_more_than_one_growth_of_the_heap_behind() {
    const RUNS: usize = 3;
    const CELLS: usize = 1000;
    const WARM: usize = 50;
    // The heap grows by so much at a time, and what it has free at the start is a matter of chance.
    const GROWTH_BYTES: u64 = 4 << 20;
    let cell = |index: usize| match index {
        // Soft timeouts, spinning and waiting.
        300 => json!({"language": "py", "code": "while True: pass", "timeout": 1}),
        600 => json!({"language": "py", "code": "await asyncio.sleep(100)", "timeout": 1}),
        _ => json!({"language": "py", "code": HABITS[index % HABITS.len()]}),
    };
    let run: Vec<_> = (0..CELLS).map(cell).collect();
    let store = tempfile::tempdir().expect("a folder");
    let flags = ["--keep-going", "--session", "long", "--store", store.path().to_str().expect("text")];
    let mut sizes = Vec::new();
    for _ in 0..RUNS {
        let result = result_of_run(&json!({ "cells": run }), &flags);
        let cells = result["details"]["cells"].as_array().expect("cells");
        assert_eq!(
            (&cells[300]["error"]["kind"], &cells[600]["error"]["kind"]),
            (&json!("timeout"), &json!("timeout"))
        );
        sizes.extend(cells.iter().map(|cell| cell["usage"]["memoryPeakBytes"].as_u64().expect("a size")));
    }
    let grown = sizes[sizes.len() - 1] - sizes[WARM];
    assert!(grown <= GROWTH_BYTES, "{grown} bytes");
}
