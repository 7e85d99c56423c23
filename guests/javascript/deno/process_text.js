// What processes print and read, as texts that cross the host: bytes that are no UTF-8 are characters of private use. And
// the way to the channels of the host that such texts go through; see `session/channels.rs`.
const { Buffer } = kit.requireBuiltin("buffer");

const BASE = 0x10ff00;
const ESCAPED = /[\u{10ff80}-\u{10ffff}]/u;

// The bytes that a text stands for.
function bytesOf(text) {
  if (!ESCAPED.test(text)) return Buffer.from(text);
  const pieces = text.split(/([\u{10ff80}-\u{10ffff}]+)/u);
  return Buffer.concat(pieces.map((piece, at) => (at % 2 === 0 ? Buffer.from(piece) : Buffer.from([...piece].map((each) => each.codePointAt(0) - BASE)))));
}

// How many bytes the character has that begins at this place; 0 when none does.
function lengthAt(bytes, at) {
  const first = bytes[at];
  const length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  for (let next = 1; next < length; next++) if ((bytes[at + next] & 0xc0) !== 0x80) return 0;
  const point = length > 2 ? ((first & 0x0f) << 6) | (bytes[at + 1] & 0x3f) : 0;
  const isWrong = (length === 3 && (point < 0x20 || (point >= 0x360 && point < 0x380))) || (length === 4 && ((point & 0x1ff) < 0x10 || (first === 0xf4 && bytes[at + 1] >= 0x90)));
  return isWrong ? 0 : length;
}

// A text that stands for these bytes.
function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    let text = "";
    let from = 0;
    for (let at = 0; at < bytes.length;) {
      const length = lengthAt(bytes, at);
      if (length > 0) {
        at += length;
        continue;
      }
      text += kit.decode(bytes.subarray(from, at)) + String.fromCodePoint(BASE + bytes[at]);
      from = ++at;
    }
    return text + kit.decode(bytes.subarray(from));
  }
}

const CHANNEL = "process.channel";
const channel = (asked) => kit.callPrimitive(CHANNEL, asked).answer;
const channelNow = (asked) => kit.callPrimitiveNow(CHANNEL, asked);

module.exports = { bytesOf, channel, channelNow, textOf };
