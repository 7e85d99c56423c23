// node:stream/web
const streams = require("deno/deno_web/06_streams.js");
const { TextDecoderStream, TextEncoderStream } = require("deno/deno_web/08_text_encoding.js");
const { CompressionStream, DecompressionStream } = require("deno/compression.js");

const names = Object.keys(streams).filter((name) => /^(?:Readable|Writable|Transform|ByteLength|Count)\w+$/.test(name) && !name.endsWith("Prototype"));

module.exports = {
  ...Object.fromEntries(names.map((name) => [name, streams[name]])),
  CompressionStream, DecompressionStream, TextDecoderStream, TextEncoderStream,
};
