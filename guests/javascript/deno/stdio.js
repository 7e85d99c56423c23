// The streams of `process`: what is written becomes output of the cell, and what is read is input to it.
const { Readable, Writable } = kit.requireBuiltin("stream");

function output(fd, to) {
  const stream = new Writable({
    decodeStrings: false,
    write(chunk, encoding, done) {
      host.write(to, typeof chunk === "string" ? chunk : kit.decode(chunk));
      done();
    },
  });
  // The end of a pipe must not end the session's output.
  stream.end = (chunk, encoding, done) => {
    if (typeof chunk === "string" || chunk instanceof Uint8Array) stream.write(chunk, encoding);
    [chunk, encoding, done].find((value) => typeof value === "function")?.();
    return stream;
  };
  return Object.assign(stream, { fd });
}

// Each read asks whoever watches the run for a line, and none is asked for in advance. There is nothing to read when
// nobody answers.
const stdin = new Readable({
  highWaterMark: 0,
  read() {
    // Whoever got a line may want no other: they have this turn to say so.
    setImmediate(() => {
      if (this.isPaused()) this.push("");
      else kit.input("").then((line) => this.push(`${line}\n`), () => this.push(null));
    });
  },
});
stdin.fd = 0;

module.exports = { stdin, stdout: output(1, 0), stderr: output(2, 1) };
