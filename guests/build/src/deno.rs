//! The JavaScript of Deno's crates, made ready for the bundler: the web platform and Node's own modules.
//!
//! Deno loads these files with its own loader, by names such as `ext:deno_web/02_event.js`, and most are functions
//! rather than modules. Each becomes a module of the tree that is written here, by a few replacements; the files below
//! `guests/javascript/deno/` are laid over it, for what asks for Deno's runtime.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::Bench;
use crate::inputs::{Inputs, files_below};
use crate::process::run;
use crate::sources::{CrateSource, crate_archive};
use crate::workshop::Workshop;

/// A crate, and the folder in it that holds its JavaScript.
const CRATES: &[(CrateSource, &str)] = &[
    (
        CrateSource {
            name: "deno_core",
            version: "0.413.0",
            sha256: "7ad7d5294f640fd99db08c455e2453c9860b1fa728b76fbdacf0eed3e308d48a",
        },
        "",
    ),
    (
        CrateSource {
            name: "deno_fetch",
            version: "0.284.0",
            sha256: "752387783c99f75ea6962bb88af3735baba9f4a9e66716eacd39586db0e28d99",
        },
        "",
    ),
    (
        CrateSource {
            name: "deno_node",
            version: "0.198.0",
            sha256: "6f52b9400885bfe667374419db2d0193909637b7b08262dd4ff9144c45b955a5",
        },
        "polyfills",
    ),
    (
        CrateSource {
            name: "deno_web",
            version: "0.291.0",
            sha256: "8658d7955894408e10b53018f651435ca6418b873be2e0b7d98224f3493c20f2",
        },
        "",
    ),
    (
        CrateSource {
            name: "deno_webidl",
            version: "0.260.0",
            sha256: "7de03e5cc0901f948592021dc9046b2c5ebe80956014eacd9198d2b05d55ec89",
        },
        "",
    ),
];

/// Under what terms these crates, and what is in them, are given; their archives carry no text of it.
pub(crate) const NOTICE: &str = "\n---- deno_core, deno_fetch, deno_node, deno_web, deno_webidl (MIT)\n\n\
    Copyright 2018-2026 the Deno authors; parts of deno_core and deno_node: Copyright Joyent, Inc. and other Node \
    contributors. MIT License.\n\n---- ada-url (MIT or Apache-2.0)\n\nCopyright 2023 the ada authors.\n";

/// What a file says, and what it shall say.
const REPLACEMENTS: &[(&str, &str)] = &[
    ("core.loadExtScript(webStreamsAdaptersSpecifier)", "require(\"deno/deno_node/internal/webstreams/adapters.js\")"),
    ("core.loadExtScript(", "require("),
    ("core\n  .loadExtScript(", "require("),
    ("core\n    .loadExtScript(", "require("),
    ("= loadExtScript(", "= require("),
    ("\"ext:", "\"deno/"),
    // There are no threads to wait for.
    ("const AtomicsWait = Atomics.wait;", "const AtomicsWait = undefined;"),
    // What `node:stream` itself is made of must not ask for it.
    (
        "import { Duplex } from \"node:stream\";",
        "import { Duplex } from \"deno/deno_node/internal/streams/duplex.js\";",
    ),
    // The bundler takes `.mjs` for a module whatever it holds.
    (".mjs\"", ".js\""),
    ("globalThis.__bootstrap ??= {};", ""),
    ("globalThis.__bootstrap.", "exports."),
    ("= __bootstrap;", "= require(\"deno/runtime/bootstrap.js\");"),
    // Errors as Node words them, with its codes.
    (
        "throw new TypeError(\n      `Invalid URL: '${href}'` +\n        (maybeBase ? ` with base '${maybeBase}'` : \"\"),\n    );",
        "throw require(\"deno/runtime/failures.js\").invalidUrl(href, maybeBase);",
    ),
    // What is in a `blob:` has an origin only where it is of the web.
    (
        "        return new URL(this.pathname).origin;\n",
        "        const inner = new URL(this.pathname);\n        \
         return inner.protocol === \"http:\" || inner.protocol === \"https:\" ? inner.origin : \"null\";\n",
    ),
    // Exceptions of the web say their name, as in Node.
    (
        "    error[_code] = code;\n    error[webidl.brand] = webidl.brand;\n",
        "    error[_code] = code;\n    error[webidl.brand] = webidl.brand;\n    \
         require(\"deno/runtime/failures.js\").finishException(error, name, message);\n",
    ),
    ("\"The signal has been aborted\"", "\"This operation was aborted\""),
    ("          \"aborted\",\n          \"reason\",\n          \"onabort\",\n", "          \"aborted\",\n"),
    (
        "    const { detail } = eventInitDict;\n    this.#detail = detail;\n",
        "    this.#detail = eventInitDict.detail ?? null;\n",
    ),
    ("\"Failed to decode base64: invalid character\"", "\"Invalid character\""),
    ("\"Cannot encode string: string contains characters outside of the Latin1 range\"", "\"Invalid character\""),
    ("`Cannot find mark: \"${mark}\"`", "`The \"${mark}\" performance mark has not been set`"),
    // As in Node 22, what is read at once is all that is there.
    (
        "    // Fast path for buffers.\n    if ((state[kState] & kDecoder) === 0 && state.length) {\n      \
         return state.buffer[state.bufferIndex].length;\n    }\n",
        "",
    ),
    ("new TypeError(\"Body already consumed\")", "new TypeError(\"Body is unusable: Body has already been read\")"),
    (
        "          \"hash\",\n          \"search\",\n",
        "          \"search\",\n          \"searchParams\",\n          \"hash\",\n",
    ),
    (
        "\"Failed to execute 'dispatchEvent' on 'EventTarget'\",\n    );\n",
        "\"Failed to execute 'dispatchEvent' on 'EventTarget'\",\n    );\n    \
         require(\"deno/runtime/failures.js\").checkEvent(ObjectPrototypeIsPrototypeOf(EventPrototype, event), event);\n",
    ),
    (
        "    options = addEventListenerOptionsConverter(options, prefix);\n",
        "    require(\"deno/runtime/failures.js\").checkListener(callback);\n    \
         options = addEventListenerOptionsConverter(options, prefix);\n",
    ),
    // The sorted list of `Headers` is made anew for each step of an iteration unless they cannot change: keep it until
    // they do.
    (
        "      this[_guard] === \"immutable\" &&\n      this[_iterableHeadersCache] !== undefined\n",
        "      this[_iterableHeadersCache] !== undefined &&\n      \
         this[_iterableHeadersCache].listLength === list.length\n",
    ),
    (
        "    this[_iterableHeadersCache] = entries;\n",
        "    entries.listLength = list.length;\n    this[_iterableHeadersCache] = entries;\n",
    ),
    (
        "  const lowerNames = ensureLowerNames(headers);\n",
        "  const lowerNames = ensureLowerNames(headers);\n  headers[_iterableHeadersCache] = undefined;\n",
    ),
    (
        "    const lowercaseName = byteLowerCase(name);\n    let writeIdx = 0;\n",
        "    const lowercaseName = byteLowerCase(name);\n    this[_iterableHeadersCache] = undefined;\n    let writeIdx = 0;\n",
    ),
    // The standard refuses a URL that names a user, and Deno sends it.
    (
        "      const parsedURL = new URL(input, baseURL);\n      request = newInnerRequest(",
        "      const parsedURL = new URL(input, baseURL);\n      \
         require(\"deno/runtime/failures.js\").checkCredentials(parsedURL);\n      request = newInnerRequest(",
    ),
    // What is wrong with a stream, in Node's words.
    (
        "new TypeError(\"ReadableStream is locked\")",
        "require(\"deno/runtime/failures.js\").invalidState(\"ReadableStream is locked\")",
    ),
    (
        "new TypeError(\"ReadableStream is already locked.\")",
        "require(\"deno/runtime/failures.js\").invalidState(\"The ReadableStream is locked\")",
    ),
    (
        "new TypeError(\"Cannot cancel a locked ReadableStream.\")",
        "require(\"deno/runtime/failures.js\").invalidState(\"ReadableStream is locked\")",
    ),
    (
        "new TypeError(\"The stream is already locked\")",
        "require(\"deno/runtime/failures.js\").invalidState(\"WritableStream is locked\")",
    ),
    (
        "new TypeError(\"Reader has no associated stream.\")",
        "require(\"deno/runtime/failures.js\").invalidState(\"The reader is not attached to a stream\")",
    ),
    (
        "new TypeError(\"The stream is closing or is closed.\")",
        "require(\"deno/runtime/failures.js\").invalidState(\"WritableStream is closed\")",
    ),
    (
        "new TypeError(\"The stream controller cannot close or enqueue\")",
        "require(\"deno/runtime/failures.js\").invalidState(\"Controller is already closed\")",
    ),
    // What is wrong with a request, a response or a header.
    ("\"Request with GET/HEAD method cannot have body\"", "\"Request with GET/HEAD method cannot have body.\""),
    ("new TypeError(\"Method is not valid\")", "new TypeError(`'${m}' is not a valid HTTP method.`)"),
    ("new TypeError(\"Method is forbidden\")", "new TypeError(`'${m}' HTTP method is unsupported.`)"),
    (
        "throw new RangeError(`Invalid redirect status code: ${status}`)",
        "throw new RangeError(`Invalid status code ${status}`)",
    ),
    (
        "for (const entry of new SafeArrayIterator(ArrayFrom(this))) {\n        const name = entry[0];\n        let value",
        "for (const entry of new SafeArrayIterator(headerListFromHeaders(this))) {\n        const name = entry[0];\n        let value",
    ),
    (
        "      throw new TypeError(`Invalid header name: \"${name}\"`);",
        "      throw new TypeError(`Headers.${prefix.split(\"'\")[1]}: \"${name}\" is an invalid header name.`);",
    ),
    (
        "      throw new TypeError(`Invalid header value: \"${value}\"`);",
        "      throw new TypeError(`Headers.${prefix.split(\"'\")[1]}: \"${value}\" is an invalid header value.`);",
    ),
    (
        "new TypeError(`Invalid header name: \"${name}\"`)",
        "new TypeError(`Headers.append: \"${name}\" is an invalid header name.`)",
    ),
    (
        "new TypeError(`Invalid header value: \"${value}\"`)",
        "new TypeError(`Headers.append: \"${value}\" is an invalid header value.`)",
    ),
    (
        "`The status provided (${init.status}) is not equal to 101 and outside the range [200, 599]`",
        "'init[\"status\"] must be in the range of 200 to 599, inclusive.'",
    ),
    (
        "\"Response with null body status cannot have body\"",
        "`Response constructor: Invalid response status code ${init.status}`",
    ),
    // As Node 22 shows answers and requests: what it shows first, and names that it writes small.
    (
        "          \"body\",\n          \"bodyUsed\",\n          \"headers\",\n          \"ok\",\n          \
         \"redirected\",\n          \"status\",\n          \"statusText\",\n          \"url\",\n",
        "          \"status\",\n          \"statusText\",\n          \"headers\",\n          \"body\",\n          \
         \"bodyUsed\",\n          \"ok\",\n          \"redirected\",\n          \"type\",\n          \"url\",\n",
    ),
    (
        "          \"bodyUsed\",\n          \"headers\",\n          \"method\",\n          \"redirect\",\n          \"url\",\n",
        "          \"method\",\n          \"url\",\n          \"headers\",\n          \"destination\",\n          \
         \"referrer\",\n          \"referrerPolicy\",\n          \"mode\",\n          \"credentials\",\n          \
         \"cache\",\n          \"redirect\",\n          \"integrity\",\n          \"keepalive\",\n          \
         \"isReloadNavigation\",\n          \"isHistoryNavigation\",\n          \"signal\",\n",
    ),
    (
        "  get referrer() {\n    webidl.assertBranded(this, RequestPrototype);\n",
        "  get destination() {\n    return \"\";\n  }\n\n  get isReloadNavigation() {\n    return false;\n  }\n\n  \
         get isHistoryNavigation() {\n    return false;\n  }\n\n  \
         get referrer() {\n    webidl.assertBranded(this, RequestPrototype);\n",
    ),
    ("[_headers].append(\"Content-Type\", ", "[_headers].append(\"content-type\", "),
    ("headerList, [\n      \"Content-Type\",\n", "headerList, [\n      \"content-type\",\n"),
    ("ArrayPrototypePush(list, [\"Content-Type\", ", "ArrayPrototypePush(list, [\"content-type\", "),
    ("headerList, [\"Location\", ", "headerList, [\"location\", "),
    (
        "        WeakMapPrototypeSet(staticBodySource, stream, body);\n        this.streamOrStatic = stream;\n",
        "        WeakMapPrototypeSet(staticBodySource, stream, body);\n        \
         require(\"deno/streams/stream_shapes.js\").ofBytes.add(stream);\n        this.streamOrStatic = stream;\n",
    ),
    // As Node 22 shows files and event emitters.
    (
        "          \"name\",\n          \"size\",\n          \"type\",\n",
        "          \"size\",\n          \"type\",\n          \"name\",\n          \"lastModified\",\n",
    ),
    (
        "    this._events = ObjectCreate(null);\n    this._eventsCount = 0;\n  }\n\n  this._maxListeners = this._maxListeners",
        "    this._events = ObjectCreate(null);\n    this._eventsCount = 0;\n    this[kShapeMode] = false;\n  } else {\n    \
         this[kShapeMode] = true;\n  }\n\n  this._maxListeners = this._maxListeners",
    ),
    (
        "const kCapture = Symbol(\"kCapture\");\n",
        "const kCapture = Symbol(\"kCapture\");\nconst kShapeMode = Symbol(\"shapeMode\");\n",
    ),
    (
        "  const result = ObjectCreate(null);\n  const keys = ObjectKeys(parsed);\n",
        "  const result = {};\n  const keys = ObjectKeys(parsed);\n",
    ),
    // How its classes show themselves, as Node asks.
    (
        "function configureInterface(interface_) {",
        "function configureInterface(interface_) {\n  require(\"deno/runtime/inspection.js\").showAsNode(interface_.prototype);",
    ),
];

/// How the function begins that a file consists of.
const FUNCTION_HEADS: [&str; 2] = ["\n(function () {", "\n(() => {"];

/// Records what [`write_tree`] is made from.
pub(crate) fn record(inputs: &mut Inputs) {
    for (source, _) in CRATES {
        source.record(inputs);
    }
}

/// Writes the tree into `root`, which is then the folder to search for `deno/...` in.
pub(crate) fn write_tree(workshop: &Workshop, bench: &Bench, overlay: &Path, root: &Path) -> Result<()> {
    let tree = root.join("deno");
    for (source, folder) in CRATES {
        let unpacked = unpack(workshop, bench, source)?;
        let scripts = unpacked.join(folder);
        for file in files_below(&scripts)?.iter().filter(|file| is_script(file)) {
            let name = file.strip_prefix(&scripts)?;
            let text = fs::read_to_string(file).with_context(|| format!("could not read `{}`", file.display()))?;
            write(&tree.join(source.name).join(name), &as_module(&text))?;
        }
    }
    for file in files_below(overlay)? {
        write(&tree.join(file.strip_prefix(overlay)?), &fs::read_to_string(&file)?)?;
    }
    Ok(())
}

/// Writes a file of the tree, under a name that the bundler reads rightly.
fn write(path: &Path, text: &str) -> Result<()> {
    let path = if path.extension().is_some_and(|end| end == "mjs") { path.with_extension("js") } else { path.into() };
    fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
    fs::write(&path, text).with_context(|| format!("could not write `{}`", path.display()))
}

fn is_script(file: &Path) -> bool {
    let name = file.to_string_lossy();
    [".js", ".mjs", ".ts"].iter().any(|end| name.ends_with(end)) && !name.ends_with(".d.ts")
}

/// A file of Deno's as a module.
fn as_module(text: &str) -> String {
    let mut text = REPLACEMENTS.iter().fold(text.to_owned(), |text, (old, new)| text.replace(old, new));
    text = lazy_loaders(&text);
    let is_module =
        text.lines().any(|line| ["import ", "export ", "  exports."].iter().any(|start| line.starts_with(start)));
    if !is_module && let Some(head) = FUNCTION_HEADS.iter().find(|head| text.contains(*head)) {
        text = text.replacen(head, &head.replacen('\n', "\nmodule.exports = ", 1), 1);
    }
    text
}

/// Turns `core.createLazyLoader<..>("name")` into a function that requires the name.
fn lazy_loaders(text: &str) -> String {
    const CALL: &str = "createLazyLoader";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(CALL) {
        let (before, call) = rest.split_at(at);
        let Some(name) = lazy_name(&call[CALL.len()..]) else {
            out.push_str(before);
            out.push_str(CALL);
            rest = &call[CALL.len()..];
            continue;
        };
        out.push_str(before.strip_suffix("core.").unwrap_or(before));
        // Deno's own modules of Node have a default export; those that are registered are that export.
        out.push_str(&if name.starts_with("node:") {
            format!("(() => ({{ __proto__: require(\"{name}\"), default: require(\"{name}\") }}))")
        } else {
            format!("(() => require(\"{name}\"))")
        });
        rest = &call[call.find(')').map_or(call.len(), |end| end + 1)..];
    }
    out.push_str(rest);
    out
}

/// The name in `<..>("name")`, when that is what stands here.
fn lazy_name(call: &str) -> Option<&str> {
    let call = match call.strip_prefix('<') {
        Some(generic) => generic.split_once('(')?.1,
        None => call.strip_prefix('(')?,
    };
    let (name, tail) = call.trim_start().strip_prefix('"')?.split_once('"')?;
    tail.trim_start_matches([',', ' ', '\n']).starts_with(')').then_some(name)
}

/// The folder of an unpacked crate. `cargo vendor` would fetch all of Deno with it.
fn unpack(workshop: &Workshop, bench: &Bench, source: &CrateSource) -> Result<PathBuf> {
    let CrateSource { name, version, sha256 } = source;
    let file = format!("{name}-{version}.crate");
    let archive = workshop.file_source(&file, sha256, |target| crate_archive(name, version, target))?;
    let folder = bench.work.join("crates");
    fs::create_dir_all(&folder)?;
    let mut tar = Command::new("tar");
    run(tar.arg("xf").arg(&archive).arg("-C").arg(&folder), &bench.work.join(format!("{name}.log")))?;
    let unpacked = folder.join(format!("{name}-{version}"));
    ensure!(unpacked.is_dir(), "`{file}` holds no folder `{name}-{version}`");
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_becomes_a_module_and_its_loads_become_requires() {
        let text = "// Deno\n(function () {\nconst { core } = __bootstrap;\n\
                    const { f } = core.loadExtScript(\"ext:deno_node/a.mjs\");\nreturn { f };\n})();\n";
        let module = as_module(text);
        assert!(module.contains("\nmodule.exports = (function () {"));
        assert!(module.contains("const { core } = require(\"deno/runtime/bootstrap.js\");"));
        assert!(module.contains("const { f } = require(\"deno/deno_node/a.js\");"));
    }

    #[test]
    fn what_is_a_module_already_stays_one() {
        let text = "import { core } from \"ext:core/mod.js\";\n\n(function () {})();\nexport { core };\n";
        assert_eq!(as_module(text), text.replace("ext:", "deno/"));
    }

    #[test]
    fn lazy_loads_become_functions_that_require() {
        let text = "const a = core.createLazyLoader<typeof x>(\n  \"ext:deno_node/a.mjs\",\n);\nconst { createLazyLoader } = core;\n";
        assert_eq!(
            as_module(text),
            "const a = (() => require(\"deno/deno_node/a.js\"));\nconst { createLazyLoader } = core;\n"
        );
    }
}
