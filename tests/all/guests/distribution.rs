//! Packages that `make dist` makes: each is installed in a root that has nothing else, and used there without a compiler, a network
//! and a home that can be written.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{cellar_with_guests, root, run};

/// Runs a command that must succeed.
fn succeed(command: &mut Command) -> String {
    let ended = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(ended.code, 0, "{command:?}: {}{}", ended.stdout, ended.stderr);
    ended.stdout
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("this process").uid() == 0
}

/// Makes the packages of both languages, signed with a key of this test.
fn packages(folder: &Path) -> PathBuf {
    drop(cellar_with_guests(["--version"]));
    let (key, out) = (folder.join("key"), folder.join("dist"));
    succeed(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key));
    let mut dist = Command::new(root().join(".ci/dist"));
    dist.args([env!("CARGO_BIN_EXE_cellar"), "target/guests"]).arg(&out).args(["javascript", "python"]);
    dist.env("CELLAR_DIST_LEVEL", "1").env("CELLAR_SIGNING_KEY", &key).current_dir(root());
    succeed(dist.env("DEBFULLNAME", "Ada").env("DEBEMAIL", "ada@example.com"));
    out
}

/// Returns the one file of the folder whose name ends so.
fn file(folder: &Path, end: &str) -> PathBuf {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut found = files.filter(|path| path.to_string_lossy().ends_with(end));
    let first = found.next().unwrap_or_else(|| panic!("nothing in `{}` ends with {end}", folder.display()));
    assert_eq!(found.next(), None, "more than one file ends with {end}");
    first
}

/// A root with the libraries that a program needs, and nothing else.
fn bare_root(folder: &Path, programs: &[&Path]) {
    for name in ["home", "proc", "dev", "usr/lib", "usr/bin", "tmp", "lib64"] {
        fs::create_dir_all(folder.join(name)).expect("a folder");
    }
    symlink("usr/lib", folder.join("lib")).expect("a link");
    symlink("usr/bin", folder.join("bin")).expect("a link");
    for program in programs {
        let listed = succeed(Command::new("ldd").arg(program));
        for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
            let copy = folder.join(library.trim_start_matches('/'));
            fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
            fs::copy(library, copy).expect("copied");
        }
    }
}

/// A command in another root, that cannot be written. It is run by nobody, or by whoever runs the tests. Without a volume it has no
/// network either; with one, it has that and `/tmp` to write to.
fn inside<const N: usize>(folder: &Path, volume: Option<&Path>, arguments: [&str; N]) -> Command {
    let script = r#"
        mount --rbind "$1" "$1"
        for shared in proc dev; do mount --rbind "/$shared" "$1/$shared"; done
        mount -o remount,bind,ro "$1"
        test -z "$2" || mount --bind "$2" "$1/var/lib/cellar"
        test -z "$2" || mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
        root=$1; who=$3; shift 3
        exec env -i HOME=/home PATH=/usr/bin /usr/sbin/chroot $who "$root" "$@""#;
    let mut command = Command::new("unshare");
    command.args(if is_root() { "-m" } else { "-Urm" }.split(' '));
    if volume.is_none() {
        command.arg("-n");
    }
    command.args(["sh", "-euc", script, "sh"]).arg(folder).arg(volume.unwrap_or(Path::new("")));
    command.arg(if is_root() { "--userspec=65534:65534" } else { "--" }).args(arguments);
    command
}

/// Evaluates an expression of each language with an installed command, from nothing and then again.
fn use_it(folder: &Path, cellar: &str) {
    let eval = |language: &str, code: &str| {
        let began = Instant::now();
        assert_eq!(succeed(&mut inside(folder, None, [cellar, "eval", "-l", language, code])).trim(), "42");
        began.elapsed()
    };
    let first = eval("py", "6*7");
    let again = (0..9).map(|_| eval("py", "6*7")).min().expect("some");
    eval("js", "6*7");
    assert!(first < Duration::from_secs(10) && again < Duration::from_millis(500), "{first:?} {again:?}");
}

fn check_sums_and_list(dist: &Path) {
    succeed(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(dist));
    let key = fs::read_to_string(dist.with_file_name("key.pub")).expect("a key");
    let signers = dist.with_file_name("signers");
    fs::write(&signers, format!("maintainer {key}")).expect("written");
    let mut verify = Command::new("ssh-keygen");
    verify.args(["-Y", "verify", "-I", "maintainer", "-n", "cellar", "-s", "SHA256SUMS.sig", "-f"]).arg(&signers);
    let sums = fs::File::open(dist.join("SHA256SUMS")).expect("the checksums");
    assert!(verify.current_dir(dist).stdin(sums).stdout(Stdio::null()).status().expect("it runs").success());

    let list: Value = serde_json::from_slice(&fs::read(file(dist, ".sbom.json")).expect("the list")).expect("JSON");
    assert_eq!(list["bomFormat"], "CycloneDX");
    let components = list["components"].as_array().expect("components");
    for name in ["wasmtime", "cpython", "libquickjs-ng-sys", "libc6", "@babel/parser"] {
        assert!(components.iter().any(|one| one["name"] == name), "{name} is not in the list");
    }
    for one in components {
        assert!(one["licenses"][0].is_object() && one["version"].is_string(), "{one}");
    }
}

fn check_archive(dist: &Path, folder: &Path) {
    bare_root(folder, &[Path::new(env!("CARGO_BIN_EXE_cellar"))]);
    let opt = folder.join("opt");
    fs::create_dir(&opt).expect("a folder");
    succeed(Command::new("tar").arg("-xf").arg(file(dist, "-linux.tar.zst")).arg("-C").arg(&opt));
    let name = format!("cellar-{}-x86_64-linux", env!("CARGO_PKG_VERSION"));
    use_it(folder, &format!("/opt/{name}/bin/cellar"));
    let share = opt.join(name).join("share");
    for path in [
        "man/man1/cellar-eval.1",
        "doc/cellar/NOTICE",
        "doc/cellar/LICENSE",
        "doc/cellar/SKILL.md",
        "doc/cellar/llms.txt",
    ] {
        assert!(share.join(path).metadata().expect(path).len() > 100, "{path}");
    }
    let symbols = folder.join("symbols");
    succeed(Command::new("zstd").args(["--quiet", "-d"]).arg(file(dist, ".debug.zst")).arg("-o").arg(&symbols));
    assert!(succeed(Command::new("nm").arg(&symbols)).contains("cellar_engine"), "functions have no names");
}

fn check_debian(dist: &Path, folder: &Path) {
    let package = file(dist, ".deb");
    let complaints = run(Command::new("lintian").args(["--fail-on", "error,warning"]).arg(&package));
    assert_eq!(complaints.code, 0, "{}{}", complaints.stdout, complaints.stderr);
    // What the scripts of the package use.
    let tools =
        ["sh", "cp", "dpkg-query", "grep", "mkdir", "rm", "sed", "xargs"].map(|name| Path::new("/usr/bin").join(name));
    let programs: Vec<&Path> = tools.iter().map(PathBuf::as_path).collect();
    bare_root(folder, &[&[Path::new(env!("CARGO_BIN_EXE_cellar"))], &programs[..]].concat());
    for tool in &tools {
        fs::copy(tool, folder.join(tool.strip_prefix("/").expect("a path"))).expect("copied");
    }
    for path in ["var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        fs::create_dir_all(folder.join(path)).expect("a folder");
    }
    for path in ["var/lib/dpkg/status", "dev/null"] {
        fs::write(folder.join(path), "").expect("written");
    }
    // Of the libraries it has copies, and no packages.
    let install = || {
        let mut dpkg = Command::new("unshare");
        dpkg.args(if is_root() { ["-m", "dpkg"] } else { ["-Ur", "dpkg"] }).arg("--root").arg(folder);
        succeed(dpkg.args(["--force-depends", "--force-bad-path", "-i"]).arg(&package));
    };
    install();
    use_it(folder, "/usr/bin/cellar");
    let unit = fs::read_to_string(folder.join("lib/systemd/system/cellar.service")).expect("the unit");
    assert!(
        ["ProtectSystem=strict", "ExecStart=/usr/bin/cellar serve"].iter().all(|line| unit.contains(line)),
        "{unit}"
    );
    // What an upgrade replaces, stored sessions may need.
    install();
    let former = folder.join("usr/lib/cellar/guests/former");
    let kept = former.join(format!("{}-1/baked", env!("CARGO_PKG_VERSION")));
    assert_eq!(fs::read_dir(&kept).unwrap_or_else(|error| panic!("{}: {error}", kept.display())).count(), 2);
    use_it(folder, "/usr/bin/cellar");
}

fn check_image(dist: &Path, folder: &Path) {
    let layout = folder.join("layout");
    fs::create_dir_all(&layout).expect("a folder");
    succeed(Command::new("tar").arg("-xf").arg(file(dist, "-oci.tar")).arg("-C").arg(&layout));
    let bundle = folder.join("bundle");
    let mut unpack = Command::new("umoci");
    unpack.arg("unpack").args((!is_root()).then_some("--rootless"));
    unpack.arg("--image").arg(format!("{}:{}", layout.display(), env!("CARGO_PKG_VERSION"))).arg(&bundle);
    succeed(&mut unpack);
    let config: Value =
        serde_json::from_slice(&fs::read(bundle.join("config.json")).expect("a configuration")).expect("JSON");
    let arguments = config["process"]["args"].as_array().expect("arguments");
    assert_eq!(arguments[..2], ["/usr/bin/cellar", "serve"]);
    if is_root() {
        assert_eq!(config["process"]["user"]["uid"], 65534);
    }
    let image = bundle.join("rootfs");
    // What whoever runs an image puts in it.
    for name in ["proc", "dev"] {
        fs::create_dir_all(image.join(name)).expect("a folder");
    }
    use_it(&image, "/usr/bin/cellar");

    let volume = folder.join("volume");
    fs::create_dir(&volume).expect("a folder");
    if is_root() {
        chown(&volume, Some(65534), Some(65534)).expect("it is ours");
    }
    let serve = ["/usr/bin/cellar", "serve", "--listen", "127.0.0.1:0", "--store", "/var/lib/cellar/sessions"];
    let mut server = inside(&image, Some(&volume), serve);
    let mut server = server.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut told = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut told).expect("a line");
    let address = told.split("http://").nth(1).and_then(|rest| rest.split(',').next()).expect("an address").to_owned();
    let check =
        || run(&mut inside(&image, Some(&volume), ["/usr/bin/cellar", "serve", "--health", "--listen", &address]));
    assert_eq!(check().code, 0, "{}", check().stderr);
    server.kill().expect("it is there");
    server.wait().expect("it ends");
    assert_eq!(check().code, 3, "nobody listens any more");
}

#[test]
fn packages_are_installed_and_used_without_compiler_network_or_home() {
    let folder = tempfile::tempdir().expect("a folder");
    // The user `nobody` reads what is in it.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let dist = packages(folder.path());
    check_sums_and_list(&dist);
    check_archive(&dist, &folder.path().join("archive"));
    check_debian(&dist, &folder.path().join("debian"));
    check_image(&dist, &folder.path().join("image"));
}

/// Targets of the links of a page that lead to files.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|path| !path.is_empty() && !path.contains(':'))
}

#[test]
fn what_models_read_of_cellar_is_made_of_the_manuals() {
    let folder = tempfile::tempdir().expect("a folder");
    succeed(Command::new(root().join(".ci/agents")).arg(folder.path()));
    let read =
        |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (list, skill) = (read("llms.txt"), read("SKILL.md"));
    for (name, page) in [("llms.txt", &list), ("SKILL.md", &skill)] {
        let count = links(page).map(|path| assert!(folder.path().join(path).is_file(), "{name}: {path}")).count();
        assert!(count >= 8, "{name} has {count} links");
    }
    assert!(list.starts_with("# Cellar\n\n> "), "{list}");
    let head = skill.strip_prefix("---\n").and_then(|rest| rest.split("\n---\n").next()).expect("what it is for");
    let description = head.lines().find_map(|line| line.strip_prefix("description: ")).expect("a description");
    assert!(head.starts_with("name: cellar\n") && description.len() <= 1024, "{head}");
    assert!(skill.len() < 20_000, "a model has to read {} bytes", skill.len());

    // Each command that it names is one, and what it says stands in a manual.
    let help = succeed(&mut crate::support::cellar(["--help"]));
    let code = skill.split("```").skip(1).step_by(2);
    let called = code.flat_map(str::lines).filter_map(|line| line.trim_start_matches("$ ").strip_prefix("cellar "));
    let commands: std::collections::BTreeSet<&str> = called.filter_map(|rest| rest.split_whitespace().next()).collect();
    assert!(commands.len() >= 4, "{commands:?}");
    for command in commands {
        assert!(help.contains(&format!("\n  {command} ")), "`cellar {command}` is no command");
    }
    let manual = fs::read_to_string(root().join("host/cli/README.md")).expect("the manual");
    let row = manual.lines().find(|line| line.starts_with("| `eval ")).expect("a row");
    assert!(skill.contains(row), "{row}");
}
