// node:zlib: gzip and deflate, all at once or as streams.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const { Transform } = kit.requireBuiltin("stream");

const library = () => kit.library("compression");
const bytesOf = (data) => (typeof data === "string" ? Buffer.from(data) : ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data));

function failure(cause) {
  const error = new Error(cause.message, { cause });
  return Object.assign(error, { code: "Z_DATA_ERROR", errno: -3 });
}

// By the names of Node: the function of the library that does it at once, and the class that does it piece by piece.
const CODERS = {
  gzip: ["gzipSync", "Gzip"], gunzip: ["gunzipSync", "Gunzip"], deflate: ["zlibSync", "Zlib"],
  inflate: ["unzlibSync", "Unzlib"], deflateRaw: ["deflateSync", "Deflate"], inflateRaw: ["inflateSync", "Inflate"],
};

const sync = (name) => (data, options) => {
  try {
    const bytes = library()[CODERS[name][0]](bytesOf(data), { level: options?.level >= 0 ? options.level : undefined });
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  } catch (error) {
    throw failure(error);
  }
};

const withCallback = (name) => (data, options, callback = options) => {
  let outcome;
  try {
    outcome = [null, sync(name)(data, options)];
  } catch (error) {
    outcome = [error];
  }
  process.nextTick(callback, ...outcome);
};

const streaming = (name) => () => {
  const coder = new (library()[CODERS[name][1]])();
  const push = (stream, bytes, last, done) => {
    coder.ondata = (out) => out.length > 0 && stream.push(Buffer.from(out));
    try {
      coder.push(bytes, last);
    } catch (error) {
      return done(failure(error));
    }
    return done();
  };
  return new Transform({
    transform(chunk, encoding, done) {
      push(this, bytesOf(chunk), false, done);
    },
    flush(done) {
      push(this, new Uint8Array(0), true, done);
    },
  });
};

const exported = { constants: { Z_NO_COMPRESSION: 0, Z_BEST_SPEED: 1, Z_BEST_COMPRESSION: 9, Z_DEFAULT_COMPRESSION: -1 } };
for (const name of Object.keys(CODERS)) {
  exported[`${name}Sync`] = sync(name);
  exported[name] = withCallback(name);
  exported[`create${name[0].toUpperCase()}${name.slice(1)}`] = streaming(name);
}
const isGzip = (data) => bytesOf(data)[0] === 0x1f;
exported.unzipSync = (data, options) => exported[isGzip(data) ? "gunzipSync" : "inflateSync"](data, options);
exported.createUnzip = () => {
  let inner;
  return new Transform({
    transform(chunk, encoding, done) {
      if (inner === undefined) {
        inner = exported[isGzip(chunk) ? "createGunzip" : "createInflate"]();
        inner.on("data", (data) => this.push(data)).on("error", (error) => this.destroy(error));
      }
      inner.write(chunk, encoding, done);
    },
    flush(done) {
      if (inner === undefined) done();
      else inner.end(() => done());
    },
  });
};
function brotliDecompressSync(data) {
  try {
    return Buffer.from(kit.library("brotli").decompress(bytesOf(data)));
  } catch (cause) {
    throw Object.assign(new Error("Decompression failed", { cause }), { code: "ERR__ERROR_FORMAT_PADDING_1", errno: -2 });
  }
}
exported.brotliDecompressSync = brotliDecompressSync;
exported.brotliDecompress = (data, options, callback = options) => {
  let outcome;
  try {
    outcome = [null, brotliDecompressSync(data)];
  } catch (error) {
    outcome = [error];
  }
  process.nextTick(callback, ...outcome);
};
exported.createBrotliDecompress = () => {
  const chunks = [];
  return new Transform({
    transform(chunk, encoding, done) {
      chunks.push(bytesOf(chunk));
      done();
    },
    flush(done) {
      try {
        this.push(brotliDecompressSync(Buffer.concat(chunks)));
        done();
      } catch (error) {
        done(error);
      }
    },
  });
};
for (const name of ["brotliCompress", "brotliCompressSync", "createBrotliCompress"]) {
  exported[name] = () => {
    throw kit.unsupported(`zlib.${name}`, "Brotli is unpacked here, and not made; gzip and deflate are");
  };
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit++) rest = rest & 1 ? 0xedb88320 ^ (rest >>> 1) : rest >>> 1;
  return rest;
});
exported.crc32 = (data, start = 0) => {
  let rest = ~start;
  for (const byte of bytesOf(data)) rest = CRC_TABLE[(rest ^ byte) & 0xff] ^ (rest >>> 8);
  return ~rest >>> 0;
};
exported.unzip = (data, ...rest) => exported[isGzip(data) ? "gunzip" : "inflate"](data, ...rest);

module.exports = exported;
