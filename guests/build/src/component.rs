//! From a linked core module to a component of the kernel world.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use wasmparser::{Parser, Payload};
use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::{Resolve, WorldId, WorldItem};
use wit_component::ComponentEncoder;

/// The only imports a guest may have, besides those of [`THREADS`].
const ALLOWED_IMPORTS: &str = "cellar:kernel/";
/// The component model's own functions by which a guest has threads that take turns. They lead to no import of the component.
const THREADS: (&str, &[&str]) =
    ("$root", &["[thread-new-indirect-v0]", "[thread-index]", "[thread-suspend-then-resume]", "[thread-resume-later]"]);

/// Prefix of the name of a function that starts the call that the rest of the name is.
const START: &str = "start-";

/// Writes `kernel.c`, `kernel.h`, `kernel_calls.h` and `kernel_component_type.o` for the world in `wit` into `folder`.
pub(crate) fn write_bindings(wit: &Path, folder: &Path) -> Result<()> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit).with_context(|| format!("could not parse `{}`", wit.display()))?;
    let world = resolve.select_world(&[package], Some("kernel"))?;
    let calls = calls_header(&resolve, world);
    let mut files = Files::default();
    wit_bindgen_c::Opts::default().build().generate(&mut resolve, world, &mut files)?;
    fs::create_dir_all(folder)?;
    for (name, content) in files.iter() {
        fs::write(folder.join(name), content)?;
    }
    fs::write(folder.join("kernel_calls.h"), calls)?;
    Ok(())
}

/// The calls of the world that can be started, as a header of C: an enumeration, and a macro that lists it. Guests number
/// their calls by it, so that all number them alike.
fn calls_header(resolve: &Resolve, world: WorldId) -> String {
    let mut names = Vec::new();
    for item in resolve.worlds[world].imports.values() {
        let WorldItem::Interface { id, .. } = item else { continue };
        let interface = &resolve.interfaces[*id];
        let Some(of) = &interface.name else { continue };
        for function in interface.functions.keys().filter_map(|name| name.strip_prefix(START)) {
            names.push(format!("{of}_{function}").replace('-', "_").to_uppercase());
        }
    }
    let cases: String = names.iter().map(|name| format!("    KERNEL_{name},\n")).collect();
    let listed: String = names.iter().map(|name| format!(" \\\n    X({name})")).collect();
    format!(
        "// Made of the world: its calls that can be started. `X` is given their names without `KERNEL_`.\n\
         #ifndef KERNEL_CALLS_H\n#define KERNEL_CALLS_H\n\nenum kernel_call {{\n{cases}}};\n\n\
         #define KERNEL_CALLS(X){listed}\n\n#endif\n"
    )
}

/// Turns a linked core module into a component.
///
/// # Errors
/// When the module imports anything but the kernel world: a guest has no other way out.
pub(crate) fn encode(core: &[u8]) -> Result<Vec<u8>> {
    let core = strip(core)?;
    audit_imports(&core)?;
    let component = ComponentEncoder::default().module(&core)?.validate(true).encode();
    component.context("could not make a component of the core module")
}

/// Names every import that is not of the kernel world.
fn audit_imports(core: &[u8]) -> Result<()> {
    let mut strangers = Vec::new();
    for payload in Parser::new(0).parse_all(core) {
        let Payload::ImportSection(reader) = payload? else { continue };
        for import in reader.into_imports() {
            let import = import?;
            let is_thread = import.module == THREADS.0 && THREADS.1.contains(&import.name);
            if !import.module.starts_with(ALLOWED_IMPORTS) && !is_thread {
                strangers.push(format!("`{}` from `{}`", import.name, import.module));
            }
        }
    }
    if !strangers.is_empty() {
        bail!("the guest imports more than the kernel world: {}", strangers.join(", "));
    }
    Ok(())
}

/// Drops debugging and name sections; keeps the section that says which world the module is of.
fn strip(core: &[u8]) -> Result<Vec<u8>> {
    let mut module = wasm_encoder::Module::new();
    for payload in Parser::new(0).parse_all(core) {
        let payload = payload?;
        if let Payload::CustomSection(section) = &payload
            && !section.name().starts_with("component-type")
        {
            continue;
        }
        if let Some((id, range)) = payload.as_section() {
            module.section(&wasm_encoder::RawSection { id, data: &core[range] });
        }
    }
    Ok(module.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::{CustomSection, EntityType, ImportSection, Module, TypeSection};

    fn module_importing(module: &str) -> Vec<u8> {
        let mut types = TypeSection::new();
        types.ty().function([], []);
        let mut imports = ImportSection::new();
        imports.import(module, "function", EntityType::Function(0));
        let mut built = Module::new();
        built.section(&types).section(&imports);
        built.section(&CustomSection { name: "component-type:kernel".into(), data: (&[1u8][..]).into() });
        built.section(&CustomSection { name: ".debug_info".into(), data: (&[2u8; 100][..]).into() });
        built.finish()
    }

    #[test]
    fn only_the_kernel_world_may_be_imported() {
        audit_imports(&module_importing("cellar:kernel/files@0.9.0")).unwrap();
        let error = audit_imports(&module_importing("wasi_snapshot_preview1")).unwrap_err();
        assert!(error.to_string().contains("`function` from `wasi_snapshot_preview1`"), "{error}");
        audit_imports(&module_importing("$root")).unwrap_err();
    }

    #[test]
    fn every_call_that_can_be_started_has_a_number() {
        let mut resolve = Resolve::default();
        let text = "package a:b; interface some-calls { call: func(); start-call: func() -> u64; cancel: func(); }
            interface others { run-all: func(); start-run-all: func(); } world w { import some-calls; import others; }";
        let package = resolve.push_str("b.wit", text).unwrap();
        let world = resolve.select_world(&[package], Some("w")).unwrap();
        let header = calls_header(&resolve, world);
        assert!(
            header.contains("enum kernel_call {\n    KERNEL_SOME_CALLS_CALL,\n    KERNEL_OTHERS_RUN_ALL,\n};"),
            "{header}"
        );
        assert!(header.contains("X(SOME_CALLS_CALL) \\\n    X(OTHERS_RUN_ALL)\n"), "{header}");
    }

    #[test]
    fn stripping_keeps_the_type_of_the_world() {
        let stripped = strip(&module_importing("cellar:kernel/files@0.9.0")).unwrap();
        let names: Vec<_> = Parser::new(0)
            .parse_all(&stripped)
            .filter_map(|payload| match payload.unwrap() {
                Payload::CustomSection(section) => Some(section.name().to_owned()),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["component-type:kernel"]);
    }
}
