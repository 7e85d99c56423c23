//! The probe: a toy language that does one thing a line, for tests of the engine.

use anyhow::Result;

use crate::cache::Bench;
use crate::exceptions;
use crate::guest::{Built, Guest};
use crate::inputs::Inputs;
use crate::link::Module;
use crate::workshop::Workshop;

/// The recipe of the probe guest.
#[derive(Debug)]
pub(crate) struct Probe;

/// Small on purpose: the probe recurses on wasm's own stack when it is told to, never on this one.
const STACK_BYTES: u32 = 256 * 1024;

impl Guest for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn language(&self) -> &'static str {
        "probe"
    }

    fn recipe(&self) -> &'static str {
        include_str!("probe.rs")
    }

    fn inputs(&self, workshop: &Workshop, inputs: &mut Inputs) -> Result<()> {
        exceptions::record(inputs);
        inputs.tree("guests/probe", &workshop.root.join("guests/probe"))?;
        Ok(())
    }

    fn build(&self, workshop: &Workshop, bench: &Bench) -> Result<Built> {
        let folder = workshop.root.join("guests/probe");
        let module = Module {
            own: ["shim.c", "commands.c", "crossings.c", "lies.c"].map(|name| folder.join(name)).to_vec(),
            includes: vec![folder],
            // It leaves functions by the engine's exceptions.
            flags: exceptions::JUMP_FLAGS.iter().map(|&flag| flag.to_owned()).collect(),
            objects: vec![exceptions::jumps(workshop)?],
            stack_bytes: STACK_BYTES,
            ..Module::default()
        };
        Ok(Built { core: workshop.link(bench, &module)?, mounts: Vec::new() })
    }
}
