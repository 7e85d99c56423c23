// CompressionStream and DecompressionStream.
const { TransformStream } = require("deno/deno_web/06_streams.js");
const { Coder, NO_FLUSH, finishOf } = require("deno/streams/coders.js");

const FORMATS = { gzip: ["Gzip", "Gunzip"], deflate: ["Deflate", "Inflate"], "deflate-raw": ["DeflateRaw", "InflateRaw"] };

// A pair of streams around a coder; `which` is 0 to compress and 1 to decompress.
class CodingStream {
  #pair;
  constructor(format, which) {
    const names = Object.hasOwn(FORMATS, format) ? FORMATS[format] : undefined;
    if (names === undefined) throw new TypeError(`The format '${format}' is not one of ${Object.keys(FORMATS).join(", ")}`);
    const coder = new Coder(names[which]);
    const push = (bytes, flush, controller) => {
      try {
        coder.push(bytes, flush, (piece) => controller.enqueue(piece));
      } catch (error) {
        throw new TypeError(`The compressed data was not valid: ${error.message}`, { cause: error });
      }
    };
    this.#pair = new TransformStream({
      transform(chunk, controller) {
        if (!(chunk instanceof ArrayBuffer) && !ArrayBuffer.isView(chunk)) throw new TypeError("chunks must be bytes");
        push(ArrayBuffer.isView(chunk) ? new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength) : new Uint8Array(chunk), NO_FLUSH, controller);
      },
      flush: (controller) => push(new Uint8Array(0), finishOf(names[which]), controller),
    });
  }
  get readable() {
    return this.#pair.readable;
  }
  get writable() {
    return this.#pair.writable;
  }
}

class CompressionStream extends CodingStream {
  constructor(format) {
    super(String(format), 0);
  }
}

class DecompressionStream extends CodingStream {
  constructor(format) {
    super(String(format), 1);
  }
}

module.exports = { CompressionStream, DecompressionStream };
