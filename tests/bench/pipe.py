"""Times cells over `cellar stdio`: CELLAR LANGUAGE CELLS SESSIONS. Prints microseconds, a line each: a cell of a session that is
warm, and after an empty line a new session up to its first result."""

import subprocess
import sys
import time

cellar, language, cells, sessions = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3]), int(sys.argv[4])
process = subprocess.Popen([cellar, "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ask(line, kind):
    """Writes a request, and reads until its answer."""
    process.stdin.write(line)
    process.stdin.flush()
    beginning = b'{"type":"%s"' % kind
    while not (answer := process.stdout.readline()).startswith(beginning):
        assert not answer.startswith(b'{"type":"error"') and answer, answer
    return answer


def run(session):
    line = b'{"type":"run","id":"r","session":"%s","cells":[{"language":"%s","code":"1+1"}]}\n'
    assert b'"status":"complete"' in ask(line % (session, language), b"result")


def open_session(session):
    ask(b'{"type":"open","id":"o","session":"%s"}\n' % session, b"opened")


def timed(work, *arguments):
    began = time.perf_counter()
    work(*arguments)
    print((time.perf_counter() - began) * 1e6)


def first(session):
    open_session(session)
    run(session)


first(b"warm")
for _ in range(cells // 10):
    run(b"warm")
for _ in range(cells):
    timed(run, b"warm")
print()
for number in range(sessions):
    timed(first, b"s%d" % number)
    ask(b'{"type":"close","id":"c","session":"s%d"}\n' % number, b"done")
process.stdin.close()
sys.exit(process.wait())
