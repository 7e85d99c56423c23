//! The JavaScript guest: QuickJS-ng, a shim, and a prelude written in JavaScript.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::cache::Bench;
use crate::guest::{Built, Guest};
use crate::inputs::Inputs;
use crate::link::Module;
use crate::sources::CrateSource;
use crate::workshop::Workshop;

/// The recipe of the JavaScript guest.
#[derive(Debug)]
pub(crate) struct JavaScript;

/// Carries QuickJS-ng 0.18.0.
const QUICKJS: CrateSource = CrateSource {
    name: "libquickjs-ng-sys",
    version: "0.14.0",
    sha256: "9c81e864c33a1d1543f2f651d7622de0e8fb9b8e0c50b808eee606c056dd02e2",
};

/// The C stack. QuickJS stops at three quarters of it (see the shim), which leaves room for the shim itself.
const STACK_BYTES: u32 = 1024 * 1024;

/// Functions of QuickJS that recurse, and the bytes each shall take on the stack.
///
/// QuickJS measures its recursion by the C stack in linear memory. These functions keep all they have in WebAssembly
/// locals, take nothing of that stack, and would exhaust the engine's own, which is a trap and not an exception. Each
/// gets an array that nothing reads, sized so that the measured stack runs out first.
const PADS: &[(&str, &[(&str, u32)])] = &[
    (
        "quickjs.c",
        &[
            ("JS_FlattenIntoArray", 512),
            ("internalize_json_property", 512),
            ("js_call_bound_function", 512),
            ("js_create_function", 1024),
            ("js_json_to_str", 768),
            ("js_parse_assign_expr2", 1024),
            ("js_parse_destructuring_element", 1024),
            ("js_parse_function_decl2", 1024),
            ("js_parse_statement_or_decl", 1024),
            ("js_parse_unary", 1536),
            ("js_proxy_call", 512),
            ("js_proxy_call_constructor", 512),
            ("js_proxy_define_own_property", 512),
            ("js_proxy_delete_property", 512),
            ("js_proxy_get", 512),
            ("js_proxy_getPrototypeOf", 512),
            ("js_proxy_get_own_property", 512),
            ("js_proxy_get_own_property_names", 512),
            ("js_proxy_has", 512),
            ("js_proxy_isArray", 512),
            ("js_proxy_isExtensible", 512),
            ("js_proxy_preventExtensions", 512),
            ("js_proxy_set", 512),
            ("js_proxy_setPrototypeOf", 512),
            ("json_parse_value", 384),
        ],
    ),
    ("libregexp.c", &[("re_parse_disjunction", 1024)]),
];

/// Put in front of a padded file. The empty assembly makes the compiler believe that the array is used.
const PAD_MACRO: &str = "#define CELLAR_STACK_PAD(n) \\\n\
    char cellar_stack_pad[n]; __asm__ volatile(\"\" : : \"r\"(cellar_stack_pad) : \"memory\")\n";

impl Guest for JavaScript {
    fn name(&self) -> &'static str {
        "javascript"
    }

    fn language(&self) -> &'static str {
        "js"
    }

    fn recipe(&self) -> &'static str {
        include_str!("javascript.rs")
    }

    fn inputs(&self, workshop: &Workshop, inputs: &mut Inputs) -> Result<()> {
        QUICKJS.record(inputs);
        inputs.tree("guests/javascript", &workshop.root.join("guests/javascript"))?;
        Ok(())
    }

    fn build(&self, workshop: &Workshop, bench: &Bench) -> Result<Built> {
        let quickjs = bench.work.join("quickjs");
        let upstream = workshop.crate_source(&QUICKJS)?.join("embed/quickjs");
        bench.step("patch QuickJS", || copy_with_pads(&upstream, &quickjs))?;
        let folder = workshop.root.join("guests/javascript");
        let module = Module {
            own: vec![folder.join("shim.c")],
            foreign: ["dtoa.c", "libregexp.c", "libunicode.c"].iter().map(|name| quickjs.join(name)).collect(),
            includes: vec![folder, quickjs],
            stack_bytes: STACK_BYTES,
            ..Module::default()
        };
        Ok(Built { core: workshop.link(bench, &module)?, mounts: Vec::new() })
    }
}

/// Copies the C files and headers of QuickJS, padding the functions of [`PADS`].
fn copy_with_pads(upstream: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(upstream)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !name.ends_with(".c") && !name.ends_with(".h") {
            continue;
        }
        let mut text = fs::read_to_string(&path).with_context(|| format!("could not read `{}`", path.display()))?;
        if let Some((_, functions)) = PADS.iter().find(|(file, _)| *file == name) {
            for (function, bytes) in *functions {
                text = with_pad(&text, function, *bytes)?;
            }
            text.insert_str(0, PAD_MACRO);
        }
        fs::write(target.join(name), text)?;
    }
    Ok(())
}

/// Adds a pad at the start of a function's body.
///
/// # Errors
/// When the function is not defined exactly once: then QuickJS has changed, and the pads must be looked at again.
fn with_pad(text: &str, function: &str, bytes: u32) -> Result<String> {
    let call = format!("{function}(");
    let bodies: Vec<usize> = text
        .match_indices(&call)
        .filter(|(at, _)| {
            let line = &text[text[..*at].rfind('\n').map_or(0, |end| end + 1)..*at];
            line.starts_with("static ") && line.ends_with([' ', '*'])
        })
        .filter_map(|(at, _)| {
            let end = at + text[at..].find(['{', ';'])?;
            text[end..].starts_with("{\n").then_some(end + 2)
        })
        .collect();
    ensure!(bodies.len() == 1, "QuickJS defines `{function}` {} times, not once: check the stack pads", bodies.len());
    let (head, tail) = text.split_at(bodies[0]);
    Ok(format!("{head}    CELLAR_STACK_PAD({bytes});\n{tail}"))
}
