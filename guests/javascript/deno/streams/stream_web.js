// node:stream/web
const streams = kit.platform("streams");
const { TextDecoderStream, TextEncoderStream } = kit.platform("encoding");
const { CompressionStream, DecompressionStream } = kit.platform("compression");

const names = Object.keys(streams).filter((name) => /^(?:Readable|Writable|Transform|ByteLength|Count)\w+$/.test(name) && !name.endsWith("Prototype"));

module.exports = {
  ...Object.fromEntries(names.map((name) => [name, streams[name]])),
  CompressionStream, DecompressionStream, TextDecoderStream, TextEncoderStream,
};
