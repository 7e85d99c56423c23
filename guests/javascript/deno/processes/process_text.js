// What processes print and read, as texts that cross the host: bytes that are no UTF-8 are characters of private use. And
// the way to the pipes of the host that such texts go through; see `session/spawned/channels.rs`.
const { Buffer } = kit.requireBuiltin("buffer");

// The bytes that a text stands for, and the text that stands for bytes.
function bytesOf(text) {
  const { buffer, byteOffset, byteLength } = host.unescapeText(text);
  return Buffer.from(buffer, byteOffset, byteLength);
}
const textOf = (bytes) => host.escapeBytes(bytes);

// Takes what a pipe has once it has something: its text, and whether it has ended. Writes to a pipe what it has room for: what
// is left, and whether nobody reads it.
const { PROCESSES_TRANSFER } = host.calls;
const readRequest = (pipe) => [PROCESSES_TRANSFER, undefined, undefined, undefined, [pipe]];
const piece = ({ read: [[, text, hasEnded]] }) => ({ text, hasEnded });
const readPipe = (pipe) => kit.callHost(...readRequest(pipe)).answer.then(piece);
const readPipeNow = (pipe) => piece(kit.callHostNow(...readRequest(pipe)));
const writePipe = (pipe, text) => kit.callHost(PROCESSES_TRANSFER, text, undefined, pipe, []).answer;
const makePipes = (count) => kit.answered(() => host.makePipes(count));
const closePipe = (pipe, reading) => kit.answered(() => host.closePipe(pipe, reading));

module.exports = { bytesOf, closePipe, makePipes, readPipe, readPipeNow, textOf, writePipe };
