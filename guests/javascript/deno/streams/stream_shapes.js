// Streams of the web as Node's console shows them: what they are for is in slots, which Deno's own form leaves out.
const INSPECT = Symbol.for("nodejs.util.inspect.custom");

function slot(object, name) {
  const key = Object.getOwnPropertySymbols(object).find((each) => each.description === `[[${name}]]`);
  return key === undefined ? undefined : object[key];
}

const reader = (one) => ({ stream: slot(one, "stream"), readRequests: slot(one, "readRequests")?.size ?? 0, close: one.closed });
const pair = ({ readable, writable }) => ({ readable, writable });
const strategy = ({ highWaterMark }) => ({ highWaterMark });

// Streams of bytes that Deno makes as others, such as bodies.
const ofBytes = new WeakSet();
const isOfBytes = (one) => ofBytes.has(one) || slot(one, "controller")?.constructor.name === "ReadableByteStreamController";

const SHAPES = {
  ReadableStream: (one) => ({ locked: one.locked, state: slot(one, "state"), supportsBYOB: isOfBytes(one) }),
  ReadableStreamDefaultReader: reader,
  ReadableStreamBYOBReader: reader,
  WritableStream: (one) => ({ locked: one.locked, state: slot(one, "state") }),
  WritableStreamDefaultWriter: (one) => ({ stream: slot(one, "stream"), close: one.closed, ready: one.ready, desiredSize: one.desiredSize }),
  TransformStream: (one) => ({ ...pair(one), backpressure: slot(one, "backpressure") }),
  ByteLengthQueuingStrategy: strategy,
  CountQueuingStrategy: strategy,
  TextDecoderStream: (one) => ({ encoding: one.encoding, fatal: one.fatal, ignoreBOM: one.ignoreBOM, ...pair(one) }),
  TextEncoderStream: (one) => ({ encoding: one.encoding, ...pair(one) }),
  CompressionStream: pair,
  DecompressionStream: pair,
};

const isDone = new Set();

// Lets the classes of a module show themselves, and gives back the module.
module.exports = (classes) => {
  if (isDone.has(classes)) return classes;
  isDone.add(classes);
  for (const name of Object.keys(SHAPES)) {
    const prototype = classes[name]?.prototype;
    if (prototype === undefined) continue;
    const value = function (depth, options, inspect) {
      if (depth < 0 || this === prototype) return this;
      return `${name} ${inspect(SHAPES[name](this), { ...options, depth: options.depth === null ? null : options.depth - 1 })}`;
    };
    Object.defineProperty(prototype, INSPECT, { value, writable: true, configurable: true });
  }
  return classes;
};
module.exports.ofBytes = ofBytes;
