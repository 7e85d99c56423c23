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
    wasm: ["WebAssembly"],
  };
  for (const [part, names] of Object.entries(globals)) lazy(globalThis, names, () => kit.platform(part));
  // What would need a connection.
  lazy(globalThis, ["WebSocket"], () => ({
    WebSocket: class WebSocket {
      constructor() {
        throw kit.unsupported("WebSocket", "no socket leaves it: fetch asks hosts that the session was granted");
      }
    },
  }));
  lazy(globalThis, ["Buffer"], () => kit.requireBuiltin("buffer"));
  define(globalThis, "global", globalThis);

  class Navigator {
    get hardwareConcurrency() {
      return 1;
    }
    get language() {
      return "en-US";
    }
    get languages() {
      return ["en-US"];
    }
    get platform() {
      return "linux";
    }
    get userAgent() {
      return `Node.js/${process.versions.node.split(".")[0]}`;
    }
  }
  define(globalThis, "Navigator", Navigator);
  define(globalThis, "navigator", new Navigator());

  // ---- Dates and numbers as text: as in American English, whatever language is asked for

  const intl = () => kit.platform("intl");
  lazy(globalThis, ["Intl"], intl);

  // Puts methods in the place of the engine's, which know no options.
  function replace(prototype, methods) {
    for (const name of Object.keys(methods)) define(prototype, name, methods[name]);
  }
  const { valueOf: numberOf } = Number.prototype;
  const { valueOf: bigIntOf } = BigInt.prototype;
  const { getTime } = Date.prototype;
  replace(Number.prototype, {
    toLocaleString(locales = undefined, options = undefined) {
      return intl().numberToLocale(numberOf.call(this), locales, options);
    },
  });
  replace(BigInt.prototype, {
    toLocaleString(locales = undefined, options = undefined) {
      return intl().numberToLocale(bigIntOf.call(this), locales, options);
    },
  });
  replace(Date.prototype, {
    toLocaleString(locales = undefined, options = undefined) {
      return intl().dateToLocale(getTime.call(this), locales, options, "any", "all");
    },
    toLocaleDateString(locales = undefined, options = undefined) {
      return intl().dateToLocale(getTime.call(this), locales, options, "date", "date");
    },
    toLocaleTimeString(locales = undefined, options = undefined) {
      return intl().dateToLocale(getTime.call(this), locales, options, "time", "time");
    },
  });
  replace(String.prototype, {
    localeCompare(that, locales = undefined, options = undefined) {
      if (this === undefined || this === null) throw new TypeError("String.prototype.localeCompare called on null or undefined");
      return intl().localeCompare(String(this), String(that), locales, options);
    },
    toLocaleLowerCase(locales = undefined) {
      if (this === undefined || this === null) throw new TypeError("String.prototype.toLocaleLowerCase called on null or undefined");
      return locales === undefined ? String(this).toLowerCase() : intl().inCase(String(this), locales, "lower");
    },
    toLocaleUpperCase(locales = undefined) {
      if (this === undefined || this === null) throw new TypeError("String.prototype.toLocaleUpperCase called on null or undefined");
      return locales === undefined ? String(this).toUpperCase() : intl().inCase(String(this), locales, "upper");
    },
  });
})
