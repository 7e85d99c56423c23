// fetch: a request goes to the host, which asks the grants of the session and answers with the whole response. A redirect
// that is followed is another request, and asked for anew.
const { Request } = require("deno/deno_fetch/23_request.js");
const { fromInnerResponse, newInnerResponse } = require("deno/deno_fetch/23_response.js");
const { InnerBody } = require("deno/deno_fetch/22_body.js");
const { blobFromObjectUrl } = require("deno/deno_web/09_file.js");
const STATUS_CODES = require("deno/network/status_codes.js");
const percent = require("deno/network/percent.js");
const { isLocal } = require("deno/network/ports.js");
const { ReadableStream, TransformStream } = require("deno/deno_web/06_streams.js");
const { Coder, NO_FLUSH, finishOf } = require("deno/streams/coders.js");

const NO_BODY = [101, 103, 204, 205, 304];
const REDIRECTS = [301, 302, 303, 307, 308];
const REDIRECTS_MAX = 20;
// What says something of a body, and goes with it; and what is meant for one origin alone.
const OF_BODY = ["content-encoding", "content-language", "content-length", "content-location", "content-type"];
const OF_ORIGIN = ["authorization", "cookie", "host", "proxy-authorization"];

// What the host says is in the message, since it is what is to be done; else the words are Node's.
const failed = (cause) => new TypeError(cause.code?.startsWith("ECONN") ? "fetch failed" : `fetch failed: ${cause.message}`, { cause });

// No grant lets an answer be larger than it comes; unpacked it must not be, either.
const UNPACKED_BYTES_MAX = 64 << 20;
// What undoes each coding of a body.
const CODINGS = { gzip: "Gunzip", "x-gzip": "Gunzip", deflate: "Inflate", br: "BrotliDecompress" };

function inflated(name, bytes) {
  const pieces = [];
  let size = 0;
  new Coder(name).push(bytes, finishOf(name), (piece) => {
    pieces.push(piece);
    size += piece.length;
    if (size > UNPACKED_BYTES_MAX) throw new RangeError(`the body has ${bytes.length} bytes, and unpacked more than ${UNPACKED_BYTES_MAX}`);
  });
  const whole = new Uint8Array(size);
  pieces.reduce((place, piece) => (whole.set(piece, place), place + piece.length), 0);
  return whole;
}

// What undoes the codings that headers name, the last first, up to one that is not known. Servers are not asked to pack what
// they send: some do it unasked.
function decodersOf(headers) {
  const at = headers.findIndex((text, i) => i % 2 === 0 && text.toLowerCase() === "content-encoding");
  if (at < 0) return [];
  const names = headers[at + 1].toLowerCase().split(",").reverse().map((coding) => CODINGS[coding.trim()]);
  return names.includes(undefined) ? names.slice(0, names.indexOf(undefined)) : names;
}

function unpacked(headers, bytes) {
  if (bytes.length === 0) return bytes;
  for (const name of decodersOf(headers)) {
    try {
      bytes = inflated(name, bytes);
    } catch (error) {
      throw failed(error);
    }
  }
  return bytes;
}

function unpackedStream(headers, stream) {
  for (const name of decodersOf(headers)) {
    const coder = new Coder(name);
    const push = (bytes, flush, controller) => coder.push(bytes, flush, (piece) => controller.enqueue(piece));
    stream = stream.pipeThrough(new TransformStream({
      transform: (piece, controller) => void push(piece, NO_FLUSH, controller),
      flush: (controller) => void push(new Uint8Array(0), finishOf(name), controller),
    }));
  }
  return stream;
}

// What a stream of Node's gives, as one of the web; it is given up with the signal.
function streamOf(readable, signal) {
  const pieces = readable[Symbol.asyncIterator]();
  const abort = () => readable.destroy(signal.reason);
  signal?.addEventListener("abort", abort, { once: true });
  readable.once("close", () => signal?.removeEventListener("abort", abort));
  return new ReadableStream({
    async pull(controller) {
      let next;
      try {
        next = await pieces.next();
      } catch (error) {
        return controller.error(signal?.aborted ? signal.reason : new TypeError("terminated", { cause: error }));
      }
      if (next.done) controller.close();
      else controller.enqueue(new Uint8Array(next.value));
    },
    cancel: () => void readable.destroy(),
  }, { highWaterMark: 0 });
}

// A response with a body that is there already, or comes as a stream.
function respond(urls, status, headers, bytes, statusText = STATUS_CODES[status] ?? "") {
  const inner = newInnerResponse(status, statusText);
  inner.urlList = urls;
  for (let i = 0; i < headers.length; i += 2) inner.headerList.push([headers[i], headers[i + 1]]);
  if (bytes instanceof ReadableStream) {
    inner.body = new InnerBody(bytes);
  } else if (!NO_BODY.includes(status)) {
    inner.body = new InnerBody({ body: bytes, consumed: false });
    inner.body.length = bytes.length;
    inner.body.source = bytes;
  }
  inner.type = "basic";
  return fromInnerResponse(inner, "immutable");
}

// `data:[<type>][;base64],<text>`
function fromDataUrl(url) {
  const comma = url.indexOf(",");
  if (comma < 0) throw failed(new TypeError("a data URL without a comma"));
  const head = url.slice("data:".length, comma);
  const plain = head.replace(/; *base64$/i, "");
  const bytes = percent.decode(url.slice(comma + 1).split("#", 1)[0]);
  const text = head === plain ? bytes : Uint8Array.fromBase64(kit.decode(bytes).replace(/[\t\n\f\r ]+/g, ""));
  return respond([url], 200, ["content-type", plain === "" ? "text/plain;charset=US-ASCII" : plain], text);
}

async function fromBlob(url) {
  const blob = blobFromObjectUrl(url);
  if (blob === null) throw failed(new TypeError("there is no such blob"));
  return respond([url], 200, ["content-type", blob.type], new Uint8Array(await blob.arrayBuffer()));
}

// Gives up waiting, and `giveUp`s what is waited for, when the signal says so.
function unlessAborted(signal, promise, giveUp) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      giveUp?.();
      reject(signal.reason);
    };
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

async function ask(signal, { method, url, headers, body }) {
  if (isLocal(url.hostname)) require("deno/network/http_server.js"); // servers of this kernel answer, if there are any
  const { answer, giveUp } = kit.request(method, url.href.split("#", 1)[0], headers.flat(), body);
  const found = await unlessAborted(signal, answer.catch((error) => {
    throw failed(error);
  }), giveUp);
  return { ...found, headers: found.headers.map((text, i) => (i % 2 === 0 ? text.toLowerCase() : text)) };
}

// The request that a redirect asks for.
function redirected(request, status, location) {
  const { method, body } = request;
  const url = URL.parse(location, request.url);
  if (url === null) throw failed(new TypeError(`a redirect to what is no URL: ${location}`));
  if (!["http:", "https:"].includes(url.protocol)) throw failed(new TypeError(`a redirect to ${url.protocol}`));
  if (url.username !== "" || url.password !== "") throw failed(new TypeError("a redirect to a URL with a user name or a password"));
  if (url.hash === "") url.hash = request.url.hash;
  const without = (names) => (request = { ...request, headers: request.headers.filter(([name]) => !names.includes(name)) });
  if (url.origin !== request.url.origin) without(OF_ORIGIN);
  const isGet = status === 303 ? !["GET", "HEAD"].includes(method) : status < 303 && method === "POST";
  if (isGet) without(OF_BODY);
  return { ...request, url, method: isGet ? "GET" : method, body: isGet ? undefined : body };
}

function requestOf(input, init) {
  try {
    return new Request(input, init);
  } catch (error) {
    if (error.code !== "ERR_INVALID_URL") throw error;
    throw new TypeError(`Failed to parse URL from ${input}`, { cause: error });
  }
}

// What a server of this kernel is told besides, as Node tells any.
const OF_NODE = [["accept-language", "*"], ["sec-fetch-mode", "cors"], ["user-agent", "node"], ["accept-encoding", "gzip, deflate"]];

async function fetch(input, init) {
  if (arguments.length === 0) throw new TypeError("1 argument required, but only 0 present.");
  const given = requestOf(input, init);
  const { signal, url } = given;
  signal.throwIfAborted();
  if (url.startsWith("data:")) return fromDataUrl(url);
  if (url.startsWith("blob:")) return fromBlob(url);
  if (!/^https?:/.test(url)) throw new TypeError("fetch failed", { cause: new Error(url.startsWith("file:") ? "not implemented... yet..." : "unknown scheme") });
  let request = { method: given.method, url: new URL(url), headers: [...given.headers] };
  if (!given.headers.has("accept")) request.headers.push(["accept", "*/*"]);
  if (isLocal(request.url.hostname)) request.headers.push(...OF_NODE.filter(([name]) => !given.headers.has(name)));
  if (given.body !== null) request.body = new Uint8Array(await unlessAborted(signal, given.arrayBuffer()));
  const urls = [];
  while (true) {
    urls.push(request.url.href);
    const { status, statusMessage, headers, body } = await ask(signal, request);
    const at = REDIRECTS.includes(status) ? headers.findIndex((text, i) => i % 2 === 0 && text === "location") : -1;
    if (at < 0 || given.redirect === "manual") {
      if (body instanceof Uint8Array) return respond(urls, status, headers, unpacked(headers, body), statusMessage);
      return respond(urls, status, headers, unpackedStream(headers, streamOf(body, signal)), statusMessage);
    }
    if (given.redirect === "error") throw failed(new TypeError("unexpected redirect"));
    if (urls.length > REDIRECTS_MAX) throw failed(new TypeError("redirect count exceeded"));
    request = redirected(request, status, headers[at + 1]);
  }
}

module.exports = { fetch };
