// The globals of the web platform. All but the smallest come from libraries and are made when they are first read.
(function (host, kit) {
  "use strict";

  const { define, lazy } = kit;

  // Text of bytes that should be UTF-8.
  kit.decode = (bytes) => host.decodeText(bytes, false);

  kit.platform = (part) => kit.library("platform")[part]();

  const globals = {
    abort: ["AbortController", "AbortSignal"],
    base64: ["atob", "btoa"],
    blob: ["Blob", "File"],
    clone: ["structuredClone"],
    compression: ["CompressionStream", "DecompressionStream"],
    crypto: ["Crypto", "CryptoKey", "SubtleCrypto", "crypto"],
    encoding: ["TextDecoder", "TextDecoderStream", "TextEncoder", "TextEncoderStream"],
    event: ["CustomEvent", "Event", "EventTarget", "MessageEvent"],
    exception: ["DOMException"],
    fetch: ["fetch"],
    formData: ["FormData"],
    headers: ["Headers"],
    messages: ["BroadcastChannel", "MessageChannel", "MessagePort"],
    performance: [
      "Performance", "PerformanceEntry", "PerformanceMark", "PerformanceMeasure", "PerformanceObserver",
      "PerformanceObserverEntryList", "performance",
    ],
    request: ["Request"],
    response: ["Response"],
    streams: [
      "ByteLengthQueuingStrategy", "CountQueuingStrategy", "ReadableByteStreamController", "ReadableStream",
      "ReadableStreamBYOBReader", "ReadableStreamBYOBRequest", "ReadableStreamDefaultController",
      "ReadableStreamDefaultReader", "TransformStream", "TransformStreamDefaultController", "WritableStream",
      "WritableStreamDefaultController", "WritableStreamDefaultWriter",
    ],
    url: ["URL", "URLSearchParams"],
  };
  for (const [part, names] of Object.entries(globals)) lazy(globalThis, names, () => kit.platform(part));
  lazy(globalThis, ["Buffer"], () => kit.requireBuiltin("buffer"));
  define(globalThis, "global", globalThis);

  // ---- Dates and numbers as text

  // The engine has no tables of languages: `toLocaleString` and its kin write as in American English, whatever
  // language is asked for, and `Intl` says so to those who ask for more.
  define(globalThis, "Intl", new Proxy(Object.create(null), {
    get(_, name) {
      if (typeof name === "symbol" || name === "then" || name === "toJSON") return undefined;
      throw new TypeError(`Intl.${name} is not available in this sandbox: it has no tables of languages and time zones`);
    },
  }));
})
