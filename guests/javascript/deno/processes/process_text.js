// What processes print and read, as texts that cross the host: bytes that are no UTF-8 are characters of private use. And
// the way to the channels of the host that such texts go through; see `session/spawned/channels.rs`.
const { Buffer } = kit.requireBuiltin("buffer");

// The bytes that a text stands for, and the text that stands for bytes.
function bytesOf(text) {
  const { buffer, byteOffset, byteLength } = host.unescapeText(text);
  return Buffer.from(buffer, byteOffset, byteLength);
}
const textOf = (bytes) => host.escapeBytes(bytes);

const CHANNEL = "process.channel";
const channel = (asked) => kit.callPrimitive(CHANNEL, asked).answer;
const channelNow = (asked) => kit.callPrimitiveNow(CHANNEL, asked);

module.exports = { bytesOf, channel, channelNow, textOf };
