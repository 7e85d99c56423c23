//! Builds of guests: those that a stored state was made with, and the code that came with a package.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Stdio,
};

use cellar_engine::{
    Error, GuestName, Host, HostConfig, HostFolders, SessionConfig, Snapshot,
    guests::{BakeOptions, bake},
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::{
    sessions::{on_one_thread, open, text},
    support::{cellar, root, run},
};

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a build of the probe guest that has this byte besides.
fn build(guests: &Path, mark: u8) {
    build_of("probe", guests, mark);
}

/// Writes a build of a guest that has this byte besides, in a section that means nothing.
fn build_of(guest: &str, guests: &Path, mark: u8) {
    let source = root().join("target/guests").join(guest);
    let made = guests.join(guest);
    fs::create_dir_all(&made).expect("a folder");
    let mut wasm = fs::read(source.join("guest.wasm")).expect("a guest; run `make guests`");
    wasm.extend([0, 3, 1, b'm', mark]);
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(source.join("manifest.json")).expect("its manifest")).expect("JSON");
    manifest["digest"] = hex(&Sha256::digest(&wasm)).into();
    fs::write(made.join("guest.wasm"), wasm).expect("written");
    fs::write(made.join("manifest.json"), manifest.to_string()).expect("written");
}

/// Configuration of a host with a cache of its own.
fn config(folder: &Path) -> HostConfig {
    let (guests, cache) = (folder.join("guests"), folder.join("cache"));
    HostConfig { kernels_max: 4, ..HostConfig::new(HostFolders { guests, cache }) }
}

/// Bakes the probe guest, and puts what that makes beside the guests, as an installation has it.
fn install(config: &HostConfig) -> PathBuf {
    let made = bake(config, GuestName::Probe, BakeOptions::default()).expect("baked");
    let installed = config.guests.join("baked").join(made.path.file_name().expect("a name"));
    fs::create_dir_all(&installed).expect("a folder");
    for path in made.files {
        fs::copy(&path, installed.join(path.file_name().expect("a name"))).expect("copied");
    }
    fs::remove_dir_all(&config.cache).expect("removed");
    installed
}

/// Code in a folder of artifacts.
fn code_in(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.find(|path| path.extension().is_some_and(|end| end == "cwasm")).expect("code")
}

#[test]
fn a_session_opens_with_the_build_of_the_guest_that_made_it() {
    on_one_thread(async {
        let folder = TempDir::new().expect("a folder");
        let config = config(folder.path());
        build(&config.guests, 1);
        install(&config);
        let snapshot = {
            let host = Host::open(config.clone()).expect("a host");
            let session = open(&host, SessionConfig::default());
            assert_eq!(text(&session, "set kept 7").await, "(no output)");
            session.snapshot().await.expect("a snapshot").to_bytes()
        };
        let snapshot = Snapshot::from_bytes(&snapshot).expect("a snapshot");

        // What an upgrade does: the former guests go aside.
        let former = config.guests.join("former/0.1.0");
        fs::create_dir_all(&former).expect("a folder");
        for name in ["probe", "baked"] {
            fs::rename(config.guests.join(name), former.join(name)).expect("moved");
        }
        build(&config.guests, 2);
        bake(&config, GuestName::Probe, BakeOptions::default()).expect("baked");

        let host = Host::open(config.clone()).expect("a host");
        let session = host.restore(&snapshot, SessionConfig::default()).expect("the former build is there");
        assert_eq!(text(&session, "get kept").await, "7");
        // It is of that build as long as its kernel lives, wherever its state goes.
        assert_eq!(text(&session, "set kept 8").await, "(no output)");
        session.hibernate().await.expect("asleep");
        assert_eq!(text(&session, "get kept").await, "8");
        let again = session.snapshot().await.expect("a snapshot");
        drop(session);
        assert_eq!(text(&host.restore(&again, SessionConfig::default()).expect("it opens"), "get kept").await, "8");
        assert_eq!(text(&open(&host, SessionConfig::default()), "set new 1").await, "(no output)");

        fs::remove_dir_all(&former).expect("removed");
        let host = Host::open(config).expect("a host");
        let refused = host.restore(&snapshot, SessionConfig::default()).expect_err("no such build is there");
        assert!(refused.to_string().contains("was made with"), "{refused}");
    });
}

#[test]
fn code_of_a_package_is_loaded_only_as_its_list_has_it() {
    let folder = TempDir::new().expect("a folder");
    let plain = config(folder.path());
    build(&plain.guests, 3);
    let code = code_in(&install(&plain));
    let name = code.strip_prefix(&plain.guests).expect("a path below").display();
    let list = format!("{}  {name}\n", hex(&Sha256::digest(fs::read(&code).expect("code"))));
    fs::write(plain.guests.join("code.sha256"), &list).expect("written");
    let listed = HostConfig { code_list: Some(Sha256::digest(&list).into()), ..plain };
    let load = || Host::open(listed.clone()).expect("a host").preload(GuestName::Probe);
    let refusal = || match load().expect_err("a refusal") {
        Error::NotBaked { reason, .. } => reason,
        other => panic!("{other}"),
    };
    load().expect("it is listed");
    // The second time it is known to have been compared.
    load().expect("it is listed");

    let mut bytes = fs::read(&code).expect("code");
    *bytes.last_mut().expect("bytes") ^= 1;
    fs::write(&code, &bytes).expect("written");
    assert!(refusal().contains("its digest is another"), "{}", refusal());
    // Nobody is believed who writes another list.
    let other = format!("{}  {name}\n", hex(&Sha256::digest(&bytes)));
    fs::write(listed.guests.join("code.sha256"), other).expect("written");
    assert!(refusal().contains("of another package"), "{}", refusal());
    fs::write(listed.guests.join("code.sha256"), &list).expect("written");
    fs::rename(&code, code.with_file_name("epoch-x86-64-v3.cwasm")).expect("renamed");
    let unlisted = refusal();
    assert!(["not listed", "for processors of the level"].iter().any(|why| unlisted.contains(why)), "{unlisted}");

    // What is compiled on this machine is loaded still.
    bake(&listed, GuestName::Probe, BakeOptions::default()).expect("compiled");
    load().expect("it was compiled here");
    let cached = listed.cache.join("baked");
    let mode = fs::metadata(fs::read_dir(cached).expect("a folder").next().expect("one").expect("an entry").path());
    assert_eq!(mode.expect("a folder").permissions().mode() & 0o077, 0, "nobody else writes there");
}

#[test]
fn a_kept_session_is_moved_on_and_its_owner_is_told_what_that_costs() {
    let folder = TempDir::new().expect("a folder");
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let call = |guests: &Path, arguments: &[&str]| {
        let mut command = cellar(arguments);
        command.env("CELLAR_GUESTS", guests).env("CELLAR_STORE", folder.path().join("store"));
        let ended = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        ended.stdout
    };
    build_of("javascript", &old, 9);
    let files = call(&old, &["bake", "--files", "javascript"]);
    call(
        &old,
        &["eval", "--session", "mine", "-l", "js", "var kept = new Map([[1, 2]]); fs.writeFileSync('note', 'x')"],
    );

    let former = new.join("former/any");
    fs::create_dir_all(&former).expect("a folder");
    symlink(root().join("target/guests/javascript"), new.join("javascript")).expect("a link");
    symlink(old.join("javascript"), former.join("javascript")).expect("a link");
    for file in files.lines().map(Path::new).filter(|path| path.extension().is_none_or(|end| end != "cwasm")) {
        let image = former.join("baked").join(file.parent().and_then(Path::file_name).expect("a folder"));
        fs::create_dir_all(&image).expect("a folder");
        fs::copy(file, image.join(file.file_name().expect("a name"))).expect("copied");
    }
    let eval = |code: &str| call(&new, &["eval", "--session", "mine", "-l", "js", code]).trim().to_owned();
    assert_eq!(eval("kept.get(1)"), "2");
    let losses = call(&new, &["session", "upgrade", "mine"]);
    assert!(losses.contains("JavaScript was made by a former build") && losses.contains("\n  kept  Map"), "{losses}");
    assert_eq!(eval("kept.size"), "1", "nothing was lost yet");
    assert_eq!(call(&new, &["session", "upgrade", "mine", "--yes"]), "JavaScript begins anew\n");
    assert_eq!(eval("[typeof kept, fs.existsSync('note')].join()"), "undefined,true");
    let told = call(&new, &["session", "upgrade", "mine"]);
    assert_eq!(told, "all of session `mine` is of the guests that are here\n");
}
