//! Libraries from npm packages that the JavaScript guest carries: fetched, checked, bundled into one script each.
//!
//! `guests/javascript/libraries/` names the packages, exactly and with integrity hashes, and holds one entry for each
//! library: a module that exports what the guest wants of them. The bundler is one of the packages. Each script is
//! compiled to QuickJS's bytecode here, by QuickJS built for this machine: reading that takes a tenth of the time that
//! compiling the script in the guest would take.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cache::Bench;
use crate::inputs::{Inputs, files_below};
use crate::process::run;
use crate::workshop::Workshop;

/// A library becomes a function, so that it has a scope of its own and is handed what the prelude's files are handed.
const HEAD: &str = "(function (module, exports, require, host, kit) {";
const TAIL: &str = "})";

/// How entries are bundled. `platform=node` leaves imports of Node's own modules to the guest.
const BUNDLER_FLAGS: &[&str] = &[
    "--bundle",
    "--format=cjs",
    "--platform=node",
    "--target=es2023",
    "--preserve-symlinks",
    "--minify-whitespace",
    "--minify-syntax",
    "--charset=utf8",
    "--legal-comments=none",
    "--log-level=warning",
];

/// Replacements in bundles, each of which must fit exactly once: library, what it says, what it shall say.
const EDITS: &[(&str, &str, &str)] = &[
    // What the extracted code cannot know of a value, our engine can.
    ("inspect", "getPromiseDetails:()=>[g,void 0]", "getPromiseDetails:promise=>kit.promiseDetails(promise,g,h)"),
    ("inspect", "t2.exports=URL}", "t2.exports=class{}}"),
    ("inspect", "[\"Atomics\",\"JSON\"", "[\"JSON\""),
    ("inspect", "getProxyDetails:y.getProxyDetails", "getProxyDetails:kit.proxyDetails"),
    ("inspect", "previewEntries:t3=>[[],!1]", "previewEntries:kit.previewEntries"),
    ("inspect", "getOwnNonIndexProperties:function(t3,e3=2)", "getOwnNonIndexProperties:kit.namedKeys,unused(t3,e3)"),
    ("inspect", "match(/^(async\\s+)?function *\\*/)", "match(/^(async\\s+)?(function)? *\\*/)"),
    // As Node 22 has it: symbols in brackets, proxies as what they stand for, patterns in one colour.
    ("inspect", "s2=t3.stylize(e4,\"symbol\")}", "s2=`[${t3.stylize(e4,\"symbol\")}]`}"),
    ("inspect", "i2.enumerable===!1&&(s2=", "i2.enumerable===!1&&typeof r2!=\"symbol\"&&(s2="),
    ("inspect", "c2=je(e3=c2,!1),s2+=1}while", "c2=je(e3=c2,!1)}while"),
    ("inspect", "regexp:function t3(e3){", "regexp:function t3(e3){return`\\x1b[31m${e3}\\x1b[39m`;"),
    ("inspect", "<Inspection threw (${nr(t3,i3,n2)})>", "<Inspection threw (${i3.message})>"),
];

/// Libraries whose classes must keep their names, which the bundler may change: programs see them.
const KEEPS_NAMES: &[&str] = &["platform"];

/// Libraries whose packages have a form for browsers that does without Node's own modules.
const FOR_BROWSERS: &[&str] = &["vega"];

/// How the compiler of the libraries is compiled. What QuickJS's patches call of the guest is not there.
const COMPILER_FLAGS: &[&str] =
    &["-O1", "-DNDEBUG", "-D_GNU_SOURCE", "-funsigned-char", "-w", "-static", "-Wl,--unresolved-symbols=ignore-all"];

/// Files in which packages say on what terms they are given.
const LICENSE_PREFIXES: [&str; 3] = ["licen", "copying", "notice"];

/// What bundling makes.
#[derive(Debug)]
pub(crate) struct Libraries {
    /// A C file with all bundles, and the table of them that the guest declares.
    pub(crate) table: PathBuf,
    /// The licences of all bundled packages, as one text.
    pub(crate) notice: String,
}

/// A folder of entries, with the packages that they use.
#[derive(Debug)]
pub(crate) struct Source {
    /// A guest's `libraries/`.
    pub(crate) folder: PathBuf,
    /// Modules that come from no package. All that is bundled is gathered here.
    pub(crate) modules: PathBuf,
}

/// Bundles all entries of all sources into `bench.work`. `compiler` is the source of the program that makes bytecode, and
/// `quickjs` holds the engine's sources as the guest has them.
pub(crate) fn bundle(
    workshop: &Workshop,
    bench: &Bench,
    sources: &[Source],
    compiler: &Path,
    quickjs: &Path,
) -> Result<Libraries> {
    let scripts = bench.work.join("libraries");
    fs::create_dir_all(&scripts)?;
    let compiler = self::compiler(bench, compiler, quickjs)?;
    let mut table = String::from("#include \"functions/libraries.h\"\n");
    let mut rows = String::new();
    let mut notices = String::from("The JavaScript guest carries parts of these packages.\n");
    for source in sources {
        let packages = packages(workshop, &source.folder)?.join("node_modules");
        let entries = entries(&source.folder)?;
        gather(&entries, &packages, &source.modules)?;
        let mut bundled = BTreeSet::new();
        for entry in &entries {
            let name = entry.file_stem().and_then(|stem| stem.to_str()).context("a library needs a name in UTF-8")?;
            let script = scripts.join(format!("{name}.js"));
            bench.step(&format!("bundle {name}"), || {
                bundle_entry(entry, &script, &source.modules, &packages, &compiler)
            })?;
            bundled.extend(packages_in(&script.with_extension("json"))?);
            let symbol = format!("library_{}", rows.lines().count());
            let bytecode = script.with_extension("bytecode");
            writeln!(table, "static const uint8_t {symbol}[] = {{\n#embed \"{}\"\n}};", bytecode.display())?;
            writeln!(rows, "    {{\"{name}\", {symbol}, sizeof {symbol}}},")?;
        }
        notices.push_str(&notice(&packages, &bundled)?);
    }
    write!(table, "const library_t libraries[] = {{\n{rows}    {{0}},\n}};\n")?;
    let path = scripts.join("library_table.c");
    fs::write(&path, table)?;
    Ok(Libraries { table: path, notice: notices })
}

/// The entries of a folder, in order.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "js") {
            entries.push(path);
        }
    }
    entries.sort();
    Ok(entries)
}

/// Makes `script` of an entry, and beside it its bytecode and the bundler's report.
fn bundle_entry(entry: &Path, script: &Path, modules: &Path, packages: &Path, compiler: &Path) -> Result<()> {
    let name = script.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let mut esbuild = Command::new(packages.join(".bin/esbuild"));
    // Names of files end up in the bundle: they must not say where it was made.
    esbuild.args(BUNDLER_FLAGS).env("NODE_PATH", modules).current_dir(modules);
    if KEEPS_NAMES.contains(&name) {
        esbuild.arg("--keep-names");
    }
    let fields = if FOR_BROWSERS.contains(&name) { "browser,module,main" } else { "module,main" };
    esbuild.arg(format!("--main-fields={fields}"));
    esbuild.args([format!("--banner:js={HEAD}"), format!("--footer:js={TAIL}")]);
    esbuild.arg(format!("--metafile={}", script.with_extension("json").display()));
    esbuild.arg(format!("--outfile={}", script.display())).arg(entry.file_name().unwrap_or_default());
    let log = script.with_extension("log");
    run(&mut esbuild, &log)?;
    edit(name, script)?;
    run(Command::new(compiler).arg(name).arg(script).arg(script.with_extension("bytecode")), &log)
}

/// Applies [`EDITS`] to a bundle.
fn edit(name: &str, script: &Path) -> Result<()> {
    let mut text = fs::read_to_string(script)?;
    for (_, old, new) in EDITS.iter().filter(|(library, ..)| *library == name) {
        let found = text.matches(old).count();
        ensure!(found == 1, "library `{name}` has this {found} times, not once; check the edits:\n{old}");
        text = text.replace(old, new);
    }
    fs::write(script, text).map_err(Into::into)
}

/// Puts all that is bundled into one folder.
fn gather(entries: &[PathBuf], packages: &Path, modules: &Path) -> Result<()> {
    for entry in entries {
        fs::copy(entry, modules.join(entry.file_name().unwrap_or_default()))?;
    }
    let link = modules.join("node_modules");
    if !link.exists() {
        std::os::unix::fs::symlink(packages, &link)?;
    }
    Ok(())
}

/// Path of a program that compiles scripts to bytecode, made of the guest's sources of QuickJS.
fn compiler(bench: &Bench, source: &Path, quickjs: &Path) -> Result<PathBuf> {
    let folder = bench.work.join("compiler");
    let program = folder.join("compile");
    bench.step("compile the compiler of the libraries", || {
        fs::create_dir_all(&folder)?;
        let mut cc = Command::new("cc");
        cc.args(COMPILER_FLAGS).arg("-I").arg(quickjs).arg("-o").arg(&program).arg(source);
        // Headers that the patches include.
        let beside = source.parent().context("the compiler's source has a folder")?;
        cc.arg("-I").arg(beside).arg("-I").arg(beside.with_file_name("training"));
        cc.args(["dtoa.c", "libregexp.c", "libunicode.c"].map(|name| quickjs.join(name))).arg("-lm");
        run(&mut cc, &folder.join("compile.log"))
    })?;
    Ok(program)
}

/// The folder with `node_modules`, installed unless the cache has it. npm checks every archive against the lock file.
fn packages(workshop: &Workshop, folder: &Path) -> Result<PathBuf> {
    let mut inputs = Inputs::default();
    for name in ["package.json", "package-lock.json"] {
        inputs.text(name, &fs::read_to_string(folder.join(name))?);
    }
    workshop.cache.product("sources", "packages", &inputs, |bench| {
        for name in ["package.json", "package-lock.json"] {
            fs::copy(folder.join(name), bench.out.join(name))?;
        }
        bench.progress.timed("fetch the packages of the libraries", || {
            let mut npm = Command::new("npm");
            npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&bench.out);
            run(&mut npm, &bench.work.join("npm.log"))
                .context("the builder needs npm to fetch the packages of the JavaScript guest's libraries")
        })
    })
}

/// The packages that went into a bundle, from the bundler's report: their folders below `node_modules`.
fn packages_in(report: &Path) -> Result<BTreeSet<String>> {
    let report: Value = serde_json::from_slice(&fs::read(report)?)?;
    let inputs = report["inputs"].as_object().context("the bundler's report lists no inputs")?;
    let mut found = BTreeSet::new();
    for path in inputs.keys() {
        let Some((_, below)) = path.split_once("node_modules/") else { continue };
        let start = below.rfind("node_modules/").map_or(0, |at| at + "node_modules/".len());
        let parts = if below[start..].starts_with('@') { 2 } else { 1 };
        let end = below[start..].match_indices('/').nth(parts - 1).map_or(below.len(), |(at, _)| start + at);
        found.insert(below[..end].to_owned());
    }
    Ok(found)
}

/// One text with the licences of `names`.
///
/// # Errors
/// When a package says nothing about its licence: then it must not be bundled.
fn notice(packages: &Path, names: &BTreeSet<String>) -> Result<String> {
    let mut text = String::new();
    for name in names {
        let folder = packages.join(name);
        let manifest: Value = serde_json::from_slice(&fs::read(folder.join("package.json"))?)?;
        let (version, license) = (manifest["version"].as_str(), manifest["license"].as_str());
        ensure!(license.is_some(), "package `{name}` names no licence");
        writeln!(text, "\n---- {name} {} ({})\n", version.unwrap_or("?"), license.unwrap_or("?"))?;
        for file in files_below(&folder)? {
            let stem = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
            if file.parent() == Some(&folder) && LICENSE_PREFIXES.iter().any(|prefix| stem.starts_with(prefix)) {
                text.push_str(&fs::read_to_string(&file)?);
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_of_a_bundle_are_found_with_their_scopes_and_when_nested() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report.json");
        fs::write(
            &report,
            r#"{"inputs": {"entry.js": {}, "../node_modules/@a/b/lib/x.js": {}, "n/node_modules/c/node_modules/d/y.js": {}}}"#,
        )
        .unwrap();
        let names: Vec<String> = packages_in(&report).unwrap().into_iter().collect();
        assert_eq!(names, ["@a/b", "c/node_modules/d"]);
    }
}
