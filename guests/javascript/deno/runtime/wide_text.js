// Text in East Asian encodings, whose characters have one to four bytes.
const LABELS = {
  shift_jis: "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
  "euc-jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
  "iso-2022-jp": "csiso2022jp iso-2022-jp",
  gbk: "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk",
  gb18030: "gb18030",
  big5: "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
  "euc-kr": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949",
};
// What decodes an encoding that has no table of its own.
const TABLES = { gbk: "gb18030", "iso-2022-jp": "euc-jp" };

const wideEncodingOf = (label) => Object.keys(LABELS).find((name) => LABELS[name].split(" ").includes(label));

// A code below 0x1000 of this kind begins several characters for one: how many of them follow is what it lacks to its end.
const isSequence = (code) => code > 0x0ff0 && code <= 0x0fff;

// The texts of a table by the number that its bytes make, and the numbers that go on with a further byte.
function read(parts) {
  const texts = new Map(), starts = new Set();
  for (const [first, ...runs] of parts.flat()) {
    let address = parseInt(first, 16);
    let last = 0;
    const put = (text) => {
      texts.set(address, text);
      last = text.codePointAt(0);
      for (let start = address >> 8; start > 0; start >>= 8) starts.add(start);
      address += 1;
    };
    for (const run of runs) {
      if (typeof run === "number") {
        for (let i = 0; i < run; i++) put(String.fromCodePoint(last + 1));
        continue;
      }
      for (let i = 0; i < run.length; ) {
        const code = run.charCodeAt(i);
        const length = isSequence(code) ? 0xfff - code + 2 : code >= 0xd800 && code < 0xdc00 ? 2 : 1;
        if (isSequence(code)) i += 1;
        put(run.slice(i, i + length));
        i += length;
      }
    }
  }
  return { texts, starts };
}

const known = new Map();

function tableOf(encoding) {
  const name = TABLES[encoding] ?? encoding;
  if (!known.has(name)) known.set(name, read(kit.library("wide")[name]));
  return known.get(name);
}

// The character of four bytes of GB 18030; undefined when there is none.
function ofFour(bytes) {
  const [a, b, c, d] = bytes;
  const place = (((a - 0x81) * 10 + b - 0x30) * 126 + c - 0x81) * 10 + d - 0x30;
  if (place >= 189_000 && place <= 1_237_575) return String.fromCodePoint(place - 189_000 + 0x10000);
  if (place > 39_419) return undefined;
  const { gbChars, uChars } = kit.library("wide").ranges;
  const i = gbChars.findLastIndex((start) => start <= place);
  return i < 0 ? undefined : String.fromCharCode(uChars[i] + place - gbChars[i]);
}

const within = (byte, low, high) => byte >= low && byte <= high;

// Decodes text that comes in pieces.
class WideDecoder {
  #encoding;
  #fatal;
  #table;
  #rest = [];
  #mode = "ascii"; // of ISO-2022-JP: ascii, roman, katakana, kanji

  constructor(encoding, fatal) {
    this.#encoding = encoding;
    this.#fatal = fatal;
    this.#table = tableOf(encoding);
  }

  decode(bytes, streams) {
    const all = this.#rest.length === 0 ? bytes : [...this.#rest, ...bytes];
    const pieces = [];
    let at = 0;
    this.#rest = [];
    while (at < all.length) {
      const [text, length] = this.#encoding === "iso-2022-jp" ? this.#shifted(all, at) : this.#next(all, at);
      if (length === 0) {
        // It goes on in the next piece.
        if (streams) {
          this.#rest = Array.from(all.slice(at));
          break;
        }
        pieces.push(this.#wrong());
        break;
      }
      pieces.push(text ?? this.#wrong());
      at += length;
    }
    if (!streams) this.#mode = "ascii";
    return pieces.join("");
  }

  #wrong() {
    if (!this.#fatal) return "\ufffd";
    const error = new TypeError(`The encoded data was not valid for encoding ${this.#encoding}`);
    error.code = "ERR_ENCODING_INVALID_ENCODED_DATA";
    throw error;
  }

  // The next character, undefined where there is none, and its bytes; 0 of them where it is not all there.
  #next(bytes, at) {
    const first = bytes[at];
    if (first < 0x80) return [String.fromCharCode(first), 1];
    const { texts, starts } = this.#table;
    if (TABLES[this.#encoding] === "gb18030" || this.#encoding === "gb18030") {
      if (first === 0x80) return ["€", 1];
      if (within(first, 0x81, 0xfe) && within(bytes[at + 1], 0x30, 0x39)) {
        const four = bytes.slice(at, at + 4);
        const isWrong = (four.length > 2 && !within(four[2], 0x81, 0xfe)) || (four.length > 3 && !within(four[3], 0x30, 0x39));
        return isWrong ? [undefined, 1] : four.length < 4 ? [undefined, 0] : [ofFour(four), 4];
      }
    }
    let number = first;
    for (let length = 1; length <= 3; length++) {
      const text = texts.get(number);
      if (text !== undefined) return [text, length];
      if (!starts.has(number)) return [undefined, length > 1 && number % 256 >= 0x80 ? length : 1];
      if (at + length >= bytes.length) return [undefined, 0];
      number = number * 256 + bytes[at + length];
    }
    return [undefined, 1];
  }

  // The same for ISO-2022-JP, which says by escapes what the next bytes mean.
  #shifted(bytes, at) {
    const first = bytes[at];
    if (first === 0x1b) {
      if (at + 2 >= bytes.length) return [undefined, [0x24, 0x28, undefined].includes(bytes[at + 1]) ? 0 : 1];
      const mode = { "(B": "ascii", "(J": "roman", "(I": "katakana", "$@": "kanji", $B: "kanji" }[String.fromCharCode(bytes[at + 1], bytes[at + 2])];
      if (mode === undefined) return [undefined, 1];
      this.#mode = mode;
      return ["", 3];
    }
    if (first > 0x7f) return [undefined, 1];
    if (this.#mode === "ascii" || first < 0x21) return [String.fromCharCode(first), 1];
    if (this.#mode === "roman") return [{ 0x5c: "¥", 0x7e: "‾" }[first] ?? String.fromCharCode(first), 1];
    if (this.#mode === "katakana") return first < 0x60 ? [String.fromCharCode(0xff61 + first - 0x21), 1] : [undefined, 1];
    if (at + 1 >= bytes.length) return [undefined, 0];
    return [this.#table.texts.get((first + 0x80) * 256 + bytes[at + 1] + 0x80), 2];
  }
}

module.exports = { WideDecoder, wideEncodingOf };
