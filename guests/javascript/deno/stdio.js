// The streams that `process` writes to: what is written becomes output of the cell.
const { Buffer } = kit.requireBuiltin("buffer");
const { Writable } = kit.requireBuiltin("stream");

function output(fd, to) {
  const stream = new Writable({
    decodeStrings: false,
    write(chunk, encoding, done) {
      host.write(to, typeof chunk !== "string" || /^utf-?8$/i.test(encoding ?? "utf8") ? chunk : Buffer.from(chunk, encoding));
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

module.exports = { stdout: output(1, 0), stderr: output(2, 1) };
