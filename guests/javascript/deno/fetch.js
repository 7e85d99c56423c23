// fetch: a request goes to the host, which asks the grants of the session and answers with the whole response.
const { Request } = require("deno/deno_fetch/23_request.js");
const { fromInnerResponse, newInnerResponse } = require("deno/deno_fetch/23_response.js");
const { InnerBody } = require("deno/deno_fetch/22_body.js");
const { blobFromObjectUrl } = require("deno/deno_web/09_file.js");
const percent = require("deno/percent.js");

const NO_BODY = [101, 103, 204, 205, 304];

const failed = (cause) => new TypeError(`fetch failed: ${cause.message}`, { cause });

// A response with a body that is there already.
function respond(url, status, headers, bytes) {
  const inner = newInnerResponse(status);
  inner.urlList = [url];
  for (let i = 0; i < headers.length; i += 2) inner.headerList.push([headers[i], headers[i + 1]]);
  if (!NO_BODY.includes(status)) {
    inner.body = new InnerBody({ body: bytes, consumed: false });
    inner.body.length = bytes.length;
    inner.body.source = bytes;
  }
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
  return respond(url, 200, ["content-type", plain === "" ? "text/plain;charset=US-ASCII" : plain], text);
}

async function fromBlob(url) {
  const blob = blobFromObjectUrl(url);
  if (blob === null) throw failed(new TypeError("there is no such blob"));
  return respond(url, 200, ["content-type", blob.type], new Uint8Array(await blob.arrayBuffer()));
}

// Gives up waiting when the signal says so; what the host does then is of no interest any more.
function unlessAborted(signal, promise) {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

async function fetch(input, init) {
  if (arguments.length === 0) throw new TypeError("1 argument required, but only 0 present.");
  const request = new Request(input, init);
  const { signal, url } = request;
  signal.throwIfAborted();
  if (url.startsWith("data:")) return fromDataUrl(url);
  if (url.startsWith("blob:")) return fromBlob(url);
  const body = request.body === null ? undefined : new Uint8Array(await unlessAborted(signal, request.arrayBuffer()));
  const answer = await unlessAborted(signal, kit.request(request.method, url, [...request.headers].flat(), body).catch((error) => {
    throw failed(error);
  }));
  return respond(answer.url, answer.status, answer.headers, answer.body);
}

module.exports = { fetch };
