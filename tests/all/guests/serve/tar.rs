//! Folders as tar, made and read by Python's own module, and tars that mean harm.

use super::*;

const TAR: (&str, &str) = ("Content-Type", "application/x-tar");

/// Returns the output of a Python program for this input.
fn python(program: &str, input: &[u8]) -> Vec<u8> {
    let mut process = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut stdin = process.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = process.wait_with_output().expect("it ends");
    let _ = writer.join();
    assert!(output.status.success(), "{program}");
    output.stdout
}

/// A tar made by Python: `add(name, bytes, **attributes)` adds an entry.
fn made(entries: &str, format: &str) -> Vec<u8> {
    let program = format!(
        "import io, sys, tarfile\ntar = tarfile.open(fileobj=sys.stdout.buffer, mode='w|', format=tarfile.{format}_FORMAT)\n\
         def add(name, data=b'', **more):\n    info = tarfile.TarInfo(name); info.size = len(data)\n    \
         for key, value in more.items(): setattr(info, key, value)\n    tar.addfile(info, io.BytesIO(data))\n{entries}\ntar.close()"
    );
    python(&program, b"")
}

#[test]
fn folders_go_in_and_out() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    let files = format!("/v1/sessions/{session}/files");
    let long = "n".repeat(90);
    let entries = format!(
        "add('data', type=tarfile.DIRTYPE)\nadd('data/a.txt', b'alpha')\nadd('./data/empty')\nadd('data/{long}/{long}/deep.bin', bytes(range(256)) * 3000)\n\
         add('data/gr\u{f6}\u{df}e', b'x' * 512)"
    );
    for format in ["USTAR", "GNU", "PAX"] {
        let answer = served.ask("PUT", &format!("{files}/{format}/"), &[TAR], &made(&entries, format));
        assert_eq!(answer.status, 201, "{format}: {}", answer.text());
        let code = format!(
            "import hashlib, pathlib\nroot = pathlib.Path('{format}')\nfor path in sorted(root.rglob('*')):\n    \
             if path.is_file(): print(len(path.read_bytes()), len(str(path.relative_to(root))))"
        );
        assert_eq!(served.run(&session, "py", &code), "5 10\n0 10\n512 10\n768000 195", "{format}");
    }
    // What comes out is what went in.
    served.run(&session, "py", "import os\nos.symlink('a.txt', 'PAX/data/link')\nos.symlink('nowhere', 'PAX/data/lost')\nos.symlink('..', 'PAX/data/round')");
    let packed = served.ask("GET", &format!("{files}/PAX"), &[("Accept", "application/x-tar")], b"");
    assert_eq!((packed.status, packed.header("content-type")), (200, Some("application/x-tar")));
    let list = "import io, sys, tarfile, hashlib\nwith tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read())) as tar:\n  for info in tar:\n    data = tar.extractfile(info).read() if info.isfile() else b''\n    print(info.type.decode(), len(data), info.name if len(info.name) < 40 else len(info.name))";
    let listed = String::from_utf8(python(list, &packed.body)).expect("text");
    assert_eq!(
        listed,
        "5 0 data\n0 5 data/a.txt\n0 0 data/empty\n0 512 data/gr\u{f6}\u{df}e\n0 5 data/link\n5 0 95\n5 0 186\n0 768000 195\n"
    );
    let again = served.ask("PUT", &format!("{files}/again/"), &[TAR], &packed.body);
    assert_eq!(again.status, 201, "{}", again.text());
    assert_eq!(served.run(&session, "py", "open('again/data/link').read()"), "'alpha'");
    // A folder that is not there is none, and a file is given as it is.
    assert_eq!(served.ask("GET", &format!("{files}/nothing"), &[("Accept", "application/x-tar")], b"").status, 404);
    let file = served.ask("GET", &format!("{files}/PAX/data/a.txt"), &[("Accept", "application/x-tar")], b"");
    assert_eq!(file.text(), "alpha");
}

#[test]
fn tars_that_mean_harm_are_refused() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let session = served.session(json!({}));
    let files = format!("/v1/sessions/{session}/files");
    served.run(
        &session,
        "py",
        "import os\nos.mkdir('in')\nopen('kept', 'w').write('kept')\nos.symlink('/workspace', 'in/up')",
    );
    let put = |tar: &[u8]| served.ask("PUT", &format!("{files}/in/"), &[TAR], tar);
    for entry in [
        "add('../escaped', b'x')",
        "add('a/../../escaped', b'x')",
        "add('/escaped', b'x')",
        "add('/etc/passwd', b'x')",
        "add('link', type=tarfile.SYMTYPE, linkname='/etc/passwd')",
        "add('link', type=tarfile.LNKTYPE, linkname='../kept')",
        "add('null', type=tarfile.CHRTYPE)",
        "add('disk', type=tarfile.BLKTYPE)",
        "add('pipe', type=tarfile.FIFOTYPE)",
        "add('odd', type=b'Z')",
        "add('a/' * 300 + 'deep', b'x')",
        "add('n' * 70_000, b'x')",
        "add('', b'x')",
    ] {
        for format in ["GNU", "PAX"] {
            let answer = put(&made(entry, format));
            assert!((400..=403).contains(&answer.status), "{entry}: {} {}", answer.status, answer.text());
        }
    }
    // Names that are no text, sums that do not fit, lengths that lie, and an end that does not come.
    let good = made("add('good', b'x' * 2000)", "GNU");
    let mut bad = good.clone();
    bad[0] = 0xff;
    assert_eq!(put(&bad).problem(), "tar");
    assert_eq!(put(&good[..700]).problem(), "tar");
    assert_eq!(put(b"this is no tar").problem(), "tar");
    assert_eq!(put(&[good.clone(), vec![1; 512]].concat()).problem(), "tar");
    assert_eq!(put(&[good.clone(), vec![0; 4 << 20]].concat()).problem(), "tar");
    let huge = "info = tarfile.TarInfo('huge'); info.size = 1 << 60; sys.stdout.buffer.write(info.tobuf(tarfile.GNU_FORMAT)); sys.stdout.buffer.flush(); import os; os._exit(0)";
    let answer = put(&made(huge, "GNU"));
    assert_eq!(answer.problem(), "tar", "{}", answer.text());
    let many = "for n in range(30_000): add(f'many/{n}')";
    let other = served.session(json!({}));
    let place = format!("/v1/sessions/{other}/files/in/");
    let answer = served.ask("PUT", &place, &[TAR], &made(many, "USTAR"));
    assert_eq!(answer.status, 507, "more files than a session may make: {}", answer.text());
    // Nothing came of any of them but what was whole, and nothing is left half.
    let code = "import os\nprint(open('kept').read(), os.path.exists('/workspace/escaped'), os.path.exists('/escaped'))\n\
        print([name for _, _, names in os.walk('.') for name in names if name.startswith('.upload')])";
    assert_eq!(served.run(&session, "py", code), "kept False False\n[]");
    assert_eq!(put(&good).status, 201);
}
