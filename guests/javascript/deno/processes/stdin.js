// The input of the session, which is asked of whoever watches the run, a line at a time and none in advance. What was asked
// for and is not yet read stays for the next reader.
const { Readable } = kit.requireBuiltin("stream");
const { bytesOf, readPipe, readPipeNow } = require("deno/processes/process_text.js");

let rest = new Uint8Array(0);
// Of a process, whose input was given to it: there is no more.
let isWhole = false;

// Of a process whose input is a pipe: its number.
let pipe;

// Gives the process its input.
function give(bytes) {
  [rest, isWhole] = [bytes, true];
}

// Has the process read a pipe.
function givePipe(number) {
  pipe = number;
}

// What came out of the pipe; nothing at its end.
function fromPipe({ text, hasEnded }) {
  isWhole = hasEnded;
  return bytesOf(text);
}

const encode = (line) => host.encodeText(`${line}\n`);

// Is it the end of the input, which is no error of the program's?
const isEnd = (error) => error?.kind === "failed";

function taken() {
  const bytes = rest;
  rest = new Uint8Array(0);
  return bytes;
}

// The next bytes: a line, or what is left of one; none at the end.
function nextSync() {
  if (rest.length > 0 || isWhole) return taken();
  if (pipe !== undefined) return fromPipe(readPipeNow(pipe));
  try {
    return encode(kit.input.sync(""));
  } catch (error) {
    if (isEnd(error)) return rest;
    throw error;
  }
}

async function next() {
  if (rest.length > 0 || isWhole) return taken();
  if (pipe !== undefined) return fromPipe(await readPipe(pipe));
  try {
    return encode(await kit.input(""));
  } catch (error) {
    if (isEnd(error)) return rest;
    throw error;
  }
}

// Reads into `target`; the number of bytes, 0 at the end.
function readSync(target) {
  if (target.length === 0) return 0;
  const bytes = nextSync();
  const size = Math.min(bytes.length, target.length);
  target.set(bytes.subarray(0, size));
  rest = bytes.subarray(size);
  return size;
}

// Everything up to the end.
function readWhole() {
  const pieces = [];
  for (let piece = nextSync(); piece.length > 0; piece = nextSync()) pieces.push(piece);
  const whole = new Uint8Array(pieces.reduce((total, piece) => total + piece.length, 0));
  pieces.reduce((at, piece) => (whole.set(piece, at), at + piece.length), 0);
  return whole;
}

class Input extends Readable {
  fd = 0;
  constructor() {
    super({ highWaterMark: 0 });
  }
  _read() {
    // Whoever got a line may want no other: they have this turn to say so.
    setImmediate(() => {
      const isWanted = this.listenerCount("readable") > 0 || this.readableFlowing === true;
      if (!isWanted || this.destroyed) this.push("");
      else next().then((bytes) => this.push(bytes.length === 0 ? null : bytes), (error) => this.destroy(error));
    });
  }
  setRawMode() {
    return this;
  }
  ref() {
    return this;
  }
  unref() {
    return this;
  }
}

// A program that has read to the end, or has closed the stream, may not be the last that reads.
let current;
function stream() {
  if (current === undefined || current.destroyed || current.readableEnded) current = new Input();
  return current;
}

module.exports = { give, givePipe, readSync, readWhole, stream };
