// The streams that `process` writes to: what is written becomes output of the cell.
const { Buffer } = kit.requireBuiltin("buffer");
const { Writable } = kit.requireBuiltin("stream");

function output(fd, to) {
  const stream = new Writable({
    decodeStrings: false,
    emitClose: false,
    write(chunk, encoding, done) {
      host.write(to, typeof chunk !== "string" || /^utf-?8$/i.test(encoding ?? "utf8") ? chunk : Buffer.from(chunk, encoding));
      done();
    },
  });
  // The end of a pipe must not end the session's output.
  stream.end = (chunk, encoding, done) => {
    if (typeof chunk === "string" || chunk instanceof Uint8Array) stream.write(chunk, typeof encoding === "string" ? encoding : undefined);
    while (stream.writableCorked > 0) stream.uncork();
    const callback = [chunk, encoding, done].find((value) => typeof value === "function");
    // Tells who waits for the end that all was written.
    process.nextTick(() => {
      stream.emit("finish");
      callback?.();
    });
    return stream;
  };
  // Pipelines of all cells listen to it.
  stream.setMaxListeners(0);
  return Object.assign(stream, { fd });
}

module.exports = { stdout: output(1, 0), stderr: output(2, 1) };
