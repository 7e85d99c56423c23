//! Packages that are added at run time, with the clients of the registries as they are set up here.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{Ended, cellar_with_guests, run};

/// Makes wheels in a folder: of each, the file and its content, by path.
const MAKE_WHEELS: &str = r#"
import sys, zipfile
def wheel(file, members):
    with zipfile.ZipFile(f"{sys.argv[1]}/{file}-py3-none-any.whl", "w") as archive:
        for path, text in members.items():
            archive.writestr(path, text)
def package(name, version, more="", body="", named=None):
    info = f"{name}-{version}.dist-info"
    wheel(f"{name}-{version}", {
        f"{name}/__init__.py": f"version = {version!r}\n{body}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {named or name}\nVersion: {version}\n{more}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    })
"#;

/// A store of packages, and wheels that pip finds and nothing else.
struct Shelf {
    folder: tempfile::TempDir,
}

impl Shelf {
    fn new(wheels: &str) -> Shelf {
        let shelf = Shelf { folder: tempfile::tempdir().expect("a folder") };
        fs::create_dir(shelf.path("wheels")).expect("a folder");
        shelf.put(wheels);
        shelf
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    /// Makes further wheels.
    fn put(&self, wheels: &str) {
        let mut python = Command::new("python3");
        let made = python.args(["-c", &format!("{MAKE_WHEELS}\n{wheels}")]).arg(self.path("wheels")).status();
        assert!(made.expect("python3 starts").success());
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = cellar_with_guests(arguments);
        command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", self.path("wheels"));
        run(command.env("CELLAR_PACKAGE_STORE", self.path("store")).env("CELLAR_STORE", self.path("sessions")))
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.code, 0, "{arguments:?}\n{}{}", ended.stdout, ended.stderr);
        ended.stdout
    }

    fn refused(&self, arguments: &[&str], why: &str) {
        let ended = self.run(arguments);
        assert!(ended.code != 0 && ended.stderr.contains(why), "{arguments:?}\n{}{}", ended.stdout, ended.stderr);
    }
}

fn in_store(store: &Path, arguments: &[&str]) -> Ended {
    run(cellar_with_guests(arguments).env("CELLAR_PACKAGE_STORE", store))
}

fn succeeded(store: &Path, arguments: &[&str]) -> String {
    let ended = in_store(store, arguments);
    assert_eq!(ended.code, 0, "{arguments:?}\n{}{}", ended.stdout, ended.stderr);
    ended.stdout
}

#[test]
fn python_packages_are_added_granted_checked_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    let told = succeeded(&store, &["packages", "add", "rich", "natsort<9"]);
    assert!(told.contains("added markdown-it-py ") && told.contains("packages = [\"rich\", \"natsort\"]"), "{told}");
    assert!(told.contains("the guest `python-data` has rich "), "{told}");
    let listed = succeeded(&store, &["packages", "list"]);
    assert!(listed.contains("\nnatsort  ") && listed.contains("needed by others"), "{listed}");
    assert!(succeeded(&store, &["packages", "verify"]).contains("are as the lock file says"));

    let config = folder.path().join("cellar.toml");
    fs::write(&config, "packages = [\"natsort\"]\n").expect("written");
    let config = config.to_str().expect("text");
    let code = "import natsort, os, importlib.util\n\
                print(natsort.natsorted(['a10', 'a9']), natsort.__file__)\n\
                print(os.path.exists(natsort.__cached__), importlib.util.find_spec('rich'))\n\
                try: open(natsort.__file__, 'a')\n\
                except OSError as error: print(error.strerror)";
    let shown = succeeded(&store, &["eval", "-l", "py", code, "--config", config]);
    assert_eq!(shown, "['a9', 'a10'] /packages/1/natsort/__init__.py\nTrue None\nRead-only file system\n");
    let code = "import rich, markdown_it\nprint(rich.__file__)";
    let shown = succeeded(&store, &["eval", "-l", "py", code, "--packages", "rich"]);
    assert_eq!(shown, "/packages/1/rich/__init__.py\n");

    let kept = fs::read_dir(store.join("python")).expect("packages").count();
    assert_eq!(succeeded(&store, &["packages", "rm", "natsort"]), "removed natsort\n");
    assert_eq!(fs::read_dir(store.join("python")).expect("packages").count(), kept - 1);
    let ended = in_store(&store, &["eval", "-l", "py", "1", "--config", config]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("hint: add it with `cellar packages add natsort`"), "{}", ended.stderr);
}

#[test]
fn what_pip_and_micropip_find_in_a_cell_is_what_was_granted() {
    let shelf = Shelf::new("package('one', '1.0')");
    shelf.ok(&["packages", "add", "one"]);
    let code = "%pip install one==1.0 'one>=2' json\n\
                import micropip\n\
                await micropip.install(['one'])\n\
                print('pytest' in micropip.list(), micropip.list()['one'])\n\
                !pip install two 'polars>=1' ./x.whl\n\
                try: await micropip.install('three[x]>=2')\n\
                except ValueError as error: print(error)";
    let ended = shelf.run(&["eval", "-l", "py", code, "--packages", "one"]);
    let command = |text: &str, name: &str| {
        format!(
            "the owner of the host runs `cellar packages add {text}` and grants it with packages = [\"{name}\"] in the session's cellar.toml"
        )
    };
    let found = "Requirement already satisfied: one==1.0 (1.0)\nRequirement already satisfied: one>=2 (1.0)\n\
                 Requirement already satisfied: json\nTrue 1.0\n";
    let three = command("'three[x]>=2'", "three");
    assert_eq!(
        ended.stdout,
        format!("{found}three[x]>=2 cannot be installed: this session was not granted it: {three}\n")
    );
    let two = format!("ERROR: two cannot be installed: this session was not granted it: {}\n", command("two", "two"));
    assert!(ended.stderr.contains(&two), "{}", ended.stderr);
    assert!(ended.stderr.contains("ERROR: polars>=1 cannot be installed: it has native code; "), "{}", ended.stderr);
    assert!(ended.stderr.contains("ERROR: ./x.whl cannot be installed: packages are named here"), "{}", ended.stderr);
}

#[test]
fn extras_come_with_those_who_ask_for_them_and_versions_stay_until_they_are_wanted() {
    let shelf = Shelf::new(
        "package('one', '1.0', 'Requires-Dist: two[fast] ; python_version > \"3\"\\n')\n\
         package('two', '1.0', 'Provides-Extra: fast\\nRequires-Dist: three ; extra == \"fast\"\\n')\n\
         package('three', '1.0')\npackage('four', '1.0')",
    );
    shelf.ok(&["packages", "add", "one", "four"]);
    let code = "import one, two, three, importlib.util; print(importlib.util.find_spec('four'))";
    assert_eq!(shelf.ok(&["eval", "-l", "py", code, "--packages", "one"]), "None\n");
    let code = "import two, importlib.util; print(importlib.util.find_spec('three'))";
    assert_eq!(shelf.ok(&["eval", "-l", "py", code, "--packages", "two"]), "None\n");

    shelf.put("package('one', '2.0')\npackage('four', '2.0')\npackage('five', '1.0', 'Requires-Dist: four<2\\n')");
    let told = shelf.ok(&["packages", "add", "one"]);
    assert!(told.starts_with("added one 2.0, was 1.0\n"), "{told}");
    let listed = shelf.ok(&["packages", "list"]);
    assert!(listed.contains("\nfour  1.0 ") && !listed.contains("two"), "{listed}");
    // What is named must fit what others need.
    shelf.ok(&["packages", "add", "five"]);
    shelf.refused(&["packages", "add", "four==2.0"], "pip cannot resolve four==2.0");
    assert!(shelf.ok(&["packages", "list"]).contains("\nfour  1.0 "));
}

#[test]
fn archives_that_lie_are_refused_and_the_store_stays_as_it_was() {
    let shelf = Shelf::new(
        "package('one', '1.0')\npackage('other', '1.0', named='one')\n\
         wheel('away-1.0', {'../away.py': '', 'away-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\\nName: away\\nVersion: 1.0\\n', 'away-1.0.dist-info/WHEEL': 'Wheel-Version: 1.0\\n'})",
    );
    shelf.refused(
        &["packages", "add", "away"],
        "the archive of `away` is refused: its path `../away.py` is not allowed",
    );
    let ended = shelf.run(&["packages", "add", "other"]);
    assert_ne!(ended.code, 0, "{}", ended.stdout);
    assert!(shelf.ok(&["packages", "list"]).starts_with("no packages; "));
    shelf.ok(&["packages", "add", "one"]);
    shelf.put("package('one', '1.0', body='import evil')\npackage('two', '1.0')");
    shelf.refused(
        &["packages", "add", "two"],
        "the archive of `one` is refused: version 1.0 was locked with another hash",
    );
    let left = fs::read_dir(shelf.path("store")).expect("the store").filter_map(Result::ok);
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".fetched")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_was_changed_is_told_and_fetched_again() {
    let shelf = Shelf::new("package('one', '1.0')\npackage('two', '1.0')");
    shelf.ok(&["packages", "add", "one", "two"]);
    let version = ["eval", "-l", "py", "import one; print(one.version)", "--packages", "one"];
    assert_eq!(shelf.ok(&version), "1.0\n");
    for kept in fs::read_dir(shelf.path("store/python")).expect("packages") {
        let file = kept.expect("a package").path().join("one/__init__.py");
        if file.exists() {
            assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o444);
            fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("set");
            fs::write(&file, "version = 'changed'").expect("written");
        }
    }
    let ended = shelf.run(&["packages", "verify"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (3, "one is not what the lock file says\n"), "{}", ended.stderr);
    // A lock file alone is enough, wherever the same archives are.
    let elsewhere = shelf.path("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    fs::copy(shelf.path("store/packages.lock"), elsewhere.join("packages.lock")).expect("copied");
    for store in [shelf.text("store"), shelf.text("elsewhere")] {
        let in_it = |arguments: &[&str]| shelf.ok(&[arguments, &["--package-store", &store]].concat());
        assert_eq!(in_it(&["packages", "restore"]), "2 packages are there\n");
        assert_eq!(in_it(&["packages", "verify"]), "2 packages are as the lock file says\n");
        assert_eq!(in_it(&version), "1.0\n");
    }
    shelf.put("package('one', '1.0', body='import evil')");
    fs::create_dir(shelf.path("third")).expect("a folder");
    fs::copy(shelf.path("store/packages.lock"), shelf.path("third/packages.lock")).expect("copied");
    let third = shelf.text("third");
    shelf.refused(&["packages", "restore", "--package-store", &third], "pip cannot resolve one, two");
    let ended = shelf.run(&[&version as &[&str], &["--package-store", &third]].concat());
    assert!(ended.stderr.contains("hint: fetch the rest with `cellar packages restore`"), "{}", ended.stderr);
}

#[test]
fn sessions_that_wake_are_copied_or_replayed_know_their_packages() {
    let shelf = Shelf::new(
        "package('one', '1.0')\nwheel('more-1.0', {'more/__init__.py': '', 'more/late.py': 'word = 1', 'more-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\\nName: more\\nVersion: 1.0\\n', 'more-1.0.dist-info/WHEEL': 'Wheel-Version: 1.0\\n'})",
    );
    shelf.ok(&["packages", "add", "one", "more"]);
    shelf.ok(&["eval", "--session", "a", "-l", "py", "import more", "--packages", "more"]);
    shelf.ok(&["session", "fork", "a", "b"]);
    let code = "import more.late; print(more.late.word)";
    assert_eq!(shelf.ok(&["eval", "--session", "b", "-l", "py", code, "--packages", "more"]), "1\n");
    shelf.refused(
        &["eval", "--session", "a", "-l", "py", code],
        "No module named 'more.late': the package `more`, which this session has imported, is not granted to it any more; the owner of the \
         host runs `cellar packages add more`",
    );
    let recording = shelf.text("recording");
    let code = "import one; print(one.version)";
    shelf.ok(&["eval", "-l", "py", code, "--packages", "one", "--record", &recording]);
    shelf.ok(&["packages", "rm", "one", "more"]);
    assert!(shelf.ok(&["replay", &recording]).contains("1.0"));
    let woken = ["eval", "--session", "a", "-l", "py", "more.__name__", "--packages", "more"];
    shelf.refused(&woken, "the package `more` is not in the store");
    shelf.ok(&["packages", "add", "more"]);
    assert_eq!(shelf.ok(&woken), "'more'\n");
}

#[test]
fn a_package_with_native_code_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let ended = in_store(folder.path(), &["packages", "add", "numpy"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("the package `numpy` has native code (numpy-"), "{}", ended.stderr);
    assert!(ended.stderr.contains("hint: the guest `python-data` has numpy "), "{}", ended.stderr);
    // The package itself is pure, and needs one that is not.
    let ended = in_store(folder.path(), &["packages", "add", "polars>=1.34"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("the package `polars-runtime-32` has native code"), "{}", ended.stderr);
    let ended = in_store(folder.path(), &["packages", "add", "--index-url=x"]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let ended = in_store(folder.path(), &["packages", "add", "natsort==0.0.0.1"]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("pip cannot resolve natsort==0.0.0.1"), "{}", ended.stderr);
    assert!(succeeded(folder.path(), &["packages", "list"]).starts_with("no packages; "));
}

#[test]
fn npm_packages_are_added_imported_and_required() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = succeeded(folder.path(), &["packages", "add", "npm:is-odd@3.0.1"]);
    assert!(told.contains("added npm:is-number ") && told.contains("added npm:is-odd 3.0.1"), "{told}");
    assert!(succeeded(folder.path(), &["packages", "verify"]).contains("2 packages"));
    let code = "import isOdd from 'npm:is-odd@3'; const other = require('is-odd'); \
                console.log(isOdd(3), other === isOdd, require.resolve('npm:is-odd'))\n\
                await import('is-even')";
    let ended = in_store(folder.path(), &["eval", "-l", "js", code, "--packages", "npm:is-odd"]);
    assert_eq!(ended.stdout, "true true /node_modules/is-odd/index.js\n", "{}", ended.stderr);
    let missing = "Cannot find package 'is-even' imported from /workspace/<cell>. The owner of the host runs `cellar packages add npm:is-even` \
                   and grants it with packages = [\"npm:is-even\"] in the session's cellar.toml";
    assert!(ended.stderr.contains(missing), "{}", ended.stderr);
    let ended = in_store(folder.path(), &["packages", "add", "npm:better-sqlite3"]);
    let native = "the package `npm:better-sqlite3` has native code (binding.gyp)";
    assert!(ended.code == 2 && ended.stderr.contains(native), "{}", ended.stderr);
    let ended = in_store(folder.path(), &["packages", "add", "npm:esbuild@0.25.0"]);
    let native = "the package `npm:esbuild` has native code (@esbuild/";
    assert!(ended.code == 2 && ended.stderr.contains(native), "{}", ended.stderr);
    let gone = succeeded(folder.path(), &["packages", "rm", "npm:is-odd"]);
    assert_eq!(gone, "removed npm:is-number\nremoved npm:is-odd\n");
}
