// What `node:zlib`, `CompressionStream` and `fetch` share: zlib and Brotli, which the guest has in C, step by step.

// The numbers of zlib for how much is to be written of what was read; Brotli's are others.
const NO_FLUSH = 0;
const FINISH = 4;
const BROTLI_FINISH = 2;

// How zlib is told the format by the bits of its window.
const FORMATS = {
  Deflate: (bits) => bits, Gzip: (bits) => bits + 16, DeflateRaw: (bits) => -bits,
  Inflate: (bits) => bits, Gunzip: (bits) => bits + 16, InflateRaw: (bits) => -bits, Unzip: (bits) => bits + 32,
};
const BITS = 15;
// What zlib cannot do with a window of 256 bytes, it does with one of 512.
const RAW_BITS_MIN = 9;

const isBrotli = (name) => name.startsWith("Brotli");
const encodes = (name) => name === "BrotliCompress" || /^(?:Deflate|Gzip)/.test(name);
const finishOf = (name) => (isBrotli(name) ? BROTLI_FINISH : FINISH);

// Makes the coder of that name. `windowBits` of zero are those that the data says.
function open(name, { windowBits = BITS, level = -1, memLevel = 8, strategy = 0, dictionary, params = {} } = {}) {
  if (isBrotli(name)) return host.newBrotli(encodes(name), Object.entries(params).flat().map(Number));
  if (!encodes(name)) return host.newInflate(FORMATS[name](windowBits), dictionary);
  const bits = name === "DeflateRaw" ? Math.max(windowBits, RAW_BITS_MIN) : windowBits;
  return host.newDeflate(FORMATS[name](bits), level, memLevel, strategy, dictionary);
}

// One stream of data, coded or decoded piece by piece.
class Coder {
  #name;
  #options;
  #coder;
  ended = false;

  constructor(name, options) {
    this.#name = name;
    this.#options = options;
    this.reset();
  }

  reset() {
    this.#coder = open(this.#name, this.#options);
    this.ended = false;
  }

  // Hands each piece that comes of the bytes to `take`. The number of bytes that were read.
  push(bytes, flush, take) {
    let at = 0;
    while (!this.ended || this.#goesOn(bytes, at)) {
      const [made, next, isMore, isOver, status, words] = host.codeStep(this.#coder, bytes, at, flush);
      at = next;
      if (made.length > 0) take(made);
      if (status !== undefined) throw Object.assign(new Error(words), { status });
      this.ended = isOver;
      if (!isOver && !isMore) break;
    }
    return at;
  }

  // A file of gzip may have several members, and zeros behind them.
  #goesOn(bytes, at) {
    if (this.#name !== "Gunzip" || at >= bytes.length || bytes[at] === 0) return false;
    this.reset();
    return true;
  }

  tune(level, strategy) {
    Object.assign(this.#options, { level, strategy });
    return host.codeTune(this.#coder, level, strategy);
  }
}

module.exports = { Coder, NO_FLUSH, encodes, finishOf, isBrotli };
