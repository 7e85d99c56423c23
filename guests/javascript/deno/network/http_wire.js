// HTTP/1.1 on sockets of node:net: what a server of node:http reads of those that connect to it, and requests that change the
// protocol or go to a server of node:net. What this kernel asks of its own servers of node:http needs none of it.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const { Pipe } = require("deno/network/http_messages.js");
const { coded } = require("deno/network/ports.js");

const HEAD_BYTES = 16384;
const SIZE_BYTES = 1024; // of the line before a piece of a body
const AHEAD_BYTES = 65536; // of requests that come while one is answered
const EMPTY = Buffer.alloc(0);

const malformed = (code, words) => coded(code, `Parse Error: ${words}`);

// What stands in a message's head under a name in small letters.
const valueOf = (pairs, name) => pairs.find((_, i) => i % 2 === 1 && pairs[i - 1].toLowerCase() === name);

// How long a body is: in bytes, in pieces that say it, or as `otherwise` has it.
function extentOf(pairs, otherwise) {
  if (/\bchunked\b/i.test(valueOf(pairs, "transfer-encoding"))) return "pieces";
  const length = valueOf(pairs, "content-length");
  if (length === undefined) return otherwise;
  if (!/^\d{1,15}$/.test(length)) throw malformed("HPE_INVALID_CONTENT_LENGTH", "Invalid character in Content-Length");
  return Number(length);
}

// Takes messages apart, one after the other. Its owner is told of each: of its `head`, and answers how long the body is, or
// nothing when what follows is no HTTP; of each `piece` of the body; and of its `end`.
class Parser {
  #owner;
  #kept = EMPTY;
  #left = 0;
  #step = "head";

  constructor(owner) {
    this.#owner = owner;
  }

  push(bytes) {
    this.#kept = this.#kept.length === 0 ? bytes : Buffer.concat([this.#kept, bytes]);
    while (this.#advance());
  }
  // The next message may begin.
  next() {
    this.#step = "head";
    this.push(EMPTY);
  }
  // There is no more, which ends a body that goes on until then.
  close() {
    if (this.#step === "rest") this.#end();
  }
  // What has come and was not looked at.
  get rest() {
    return this.#kept;
  }

  #take(count) {
    const taken = this.#kept.subarray(0, count);
    this.#kept = this.#kept.subarray(count);
    return taken;
  }
  #until(mark, most) {
    const end = this.#kept.indexOf(mark);
    if (end > most || (end < 0 && this.#kept.length > most)) throw malformed("HPE_HEADER_OVERFLOW", "Header overflow");
    return end < 0 ? undefined : this.#take(end + mark.length).toString("latin1", 0, end);
  }
  #end() {
    this.#step = "waiting";
    this.#owner.end();
  }

  // One step; false when more must come first.
  #advance() {
    switch (this.#step) {
      case "head":
        return this.#head();
      case "body":
      case "piece": {
        if (this.#left > 0 && this.#kept.length === 0) return false;
        const taken = this.#take(this.#left);
        this.#left -= taken.length;
        if (taken.length > 0) this.#owner.piece(taken);
        if (this.#left > 0) return false;
        if (this.#step === "body") this.#end();
        else this.#step = "mark";
        return true;
      }
      case "mark":
        if (this.#until("\r\n", SIZE_BYTES) === undefined) return false;
        this.#step = "size";
        return true;
      case "size": {
        const line = this.#until("\r\n", SIZE_BYTES);
        if (line === undefined) return false;
        const [digits] = /^[\da-f]{1,12}(?=\s*(?:;|$))/i.exec(line) ?? [];
        if (digits === undefined) throw malformed("HPE_INVALID_CHUNK_SIZE", "Invalid character in chunk size");
        this.#left = parseInt(digits, 16);
        this.#step = this.#left === 0 ? "trailers" : "piece";
        return true;
      }
      case "trailers": {
        const line = this.#until("\r\n", HEAD_BYTES);
        if (line === "") this.#end();
        return line !== undefined;
      }
      case "rest":
        if (this.#kept.length > 0) this.#owner.piece(this.#take(this.#kept.length));
        return false;
      default:
        return false;
    }
  }

  #head() {
    while (this.#kept.indexOf("\r\n") === 0) this.#take(2);
    const text = this.#until("\r\n\r\n", HEAD_BYTES);
    if (text === undefined) return false;
    const [first, ...lines] = text.split("\r\n");
    const pairs = lines.flatMap((line) => {
      const found = /^([^\s:]+):[ \t]*(.*?)[ \t]*$/.exec(line);
      if (found === null) throw malformed("HPE_INVALID_HEADER_TOKEN", "Invalid header token");
      return [found[1], found[2]];
    });
    const extent = this.#owner.head(first, pairs);
    if (extent === undefined) this.#step = "over";
    else if (typeof extent === "number") [this.#step, this.#left] = ["body", extent];
    else this.#step = extent === "pieces" ? "size" : "rest";
    return true;
  }
}

// Hears a socket until it leaves it; returns what leaves.
function hear(socket, hearers) {
  for (const [name, hearer] of Object.entries(hearers)) socket.on(name, hearer);
  return () => {
    for (const [name, hearer] of Object.entries(hearers)) socket.off(name, hearer);
    // Who takes the socket over starts its flow.
    socket.readableFlowing = null;
  };
}

// Hands on a piece of a body, and stops the flow until there is room for more.
function handOn(pipe, bytes, socket) {
  let hasRoom = false;
  pipe.write(bytes, () => {
    hasRoom = true;
    socket.resume();
  });
  if (!hasRoom) socket.pause();
}

// Resolves when a socket takes more, or has gone.
function hasRoom(socket) {
  return new Promise((resolve) => {
    const go = () => {
      socket.off("drain", go).off("close", go);
      resolve();
    };
    socket.on("drain", go).on("close", go);
  });
}

// Writes a message, of which the body is bytes or a stream; resolves when all of it is written.
async function write(socket, first, pairs, body) {
  let head = `${first}\r\n`;
  for (let i = 0; i < pairs.length; i += 2) head += `${pairs[i]}: ${pairs[i + 1]}\r\n`;
  socket.write(`${head}\r\n`, "latin1");
  const isInPieces = extentOf(pairs) === "pieces";
  const put = async (bytes) => {
    if (bytes.length === 0) return;
    if (isInPieces) socket.write(`${bytes.length.toString(16)}\r\n`);
    const goesOn = socket.write(bytes);
    if (isInPieces) socket.write("\r\n");
    if (!goesOn) await hasRoom(socket);
  };
  if (body instanceof Uint8Array) await put(body);
  else for await (const bytes of body) await put(bytes);
  if (isInPieces && !(body instanceof Uint8Array && body.length === 0)) socket.write("0\r\n\r\n");
}

// Answers what comes to a server by a socket, one request after the other. `take` answers a request, `meet` makes one that
// changes the protocol. Returns what is known of the connection.
function serve(socket, server, take, meet) {
  const connection = { socket, isBusy: false };
  let taken; // the request that is answered
  let pipe;
  let [isRead, isAnswered, isLast] = [false, false, false];
  let [isRefused, hasEnded] = [false, false];
  const refuse = (error) => {
    leave();
    socket.on("error", () => {});
    isRefused = true;
    taken?.giveUp();
    if (server.listenerCount("clientError") > 0) return void server.emit("clientError", error, socket);
    const status = error.code === "HPE_HEADER_OVERFLOW" ? "431 Request Header Fields Too Large" : "400 Bad Request";
    socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`);
  };
  const careful = (action) => {
    try {
      action();
    } catch (error) {
      if (!error.code?.startsWith("HPE_")) throw error;
      refuse(error);
    }
  };
  const goOn = () => {
    if (!isRead || !isAnswered) return;
    [taken, connection.isBusy] = [undefined, false];
    if (isLast) return void socket.end();
    careful(() => parser.next());
    if (hasEnded && taken === undefined) socket.end();
    socket.resume();
  };
  const answer = async ({ status, statusMessage, headers, body }) => {
    if (isRefused) return;
    isLast ||= /^close$/i.test(valueOf(headers, "connection"));
    try {
      await write(socket, `HTTP/1.1 ${status} ${statusMessage}`, headers, body);
    } catch {
      return void (isRefused || socket.destroy()); // the answer was given up
    }
    if (isRefused) return;
    isAnswered = true;
    taken.request.resume(); // what nobody has read of it
    goOn();
  };
  const parser = new Parser({
    head(line, pairs) {
      const [, method, target, minor] = /^([A-Z-]+) (\S+) HTTP\/1\.([01])$/.exec(line) ?? [];
      if (method === undefined) throw malformed("HPE_INVALID_CONSTANT", "Expected HTTP/");
      const wish = valueOf(pairs, "connection") ?? "";
      const change = method === "CONNECT" ? "connect" : /\bupgrade\b/i.test(wish) && valueOf(pairs, "upgrade") !== undefined ? "upgrade" : undefined;
      if (change !== undefined && server.listenerCount(change) > 0) {
        leave();
        const head = parser.rest;
        setImmediate(() => server.emit(change, meet(method, target, pairs, socket), socket, head));
        return undefined;
      }
      const extent = extentOf(pairs, 0);
      [isRead, isAnswered, isLast] = [false, false, minor === "0" ? !/keep-alive/i.test(wish) : /\bclose\b/i.test(wish)];
      if (/^100-continue$/i.test(valueOf(pairs, "expect"))) socket.write("HTTP/1.1 100 Continue\r\n\r\n");
      pipe = new Pipe();
      connection.isBusy = true;
      taken = take(method, target, pairs, extent === 0 ? EMPTY : pipe.readable, socket);
      taken.answer.then(answer, () => isRefused || socket.destroy());
      return extent;
    },
    piece: (bytes) => handOn(pipe, bytes, socket),
    end() {
      isRead = true;
      pipe.end();
      goOn();
    },
  });
  const leave = hear(socket, {
    data(bytes) {
      careful(() => parser.push(bytes));
      if (isRead && parser.rest.length > AHEAD_BYTES) socket.pause();
    },
    end() {
      hasEnded = true;
      if (taken === undefined) socket.end();
      else if (!isRead) pipe.readable.destroy(); // a body that was cut off
    },
    error() {},
    close() {
      pipe?.readable.destroy();
      taken?.giveUp();
    },
  });
  return connection;
}

// Asks by a socket: the answer, and what gives it up. After a change of protocol the answer has the `socket`, and the `head` of what came by it.
function ask(socket, method, target, headers, body = EMPTY) {
  const pipe = new Pipe();
  const giveUp = () => socket.destroy();
  const answer = new Promise((resolve, reject) => {
    let [isInterim, isOver] = [false, false];
    const fail = (error) => {
      isOver = true;
      reject(error);
      pipe.readable.destroy(error);
      socket.destroy();
    };
    const parser = new Parser({
      head(line, pairs) {
        const [, digits, statusMessage] = /^HTTP\/1\.[01] (\d{3})(?: (.*))?$/.exec(line) ?? [];
        if (digits === undefined) throw malformed("HPE_INVALID_CONSTANT", "Expected HTTP/");
        const status = Number(digits);
        isInterim = status < 200 && status !== 101;
        if (isInterim) return 0;
        const changes = status === 101 || (method === "CONNECT" && status < 300);
        const found = { status, statusMessage: statusMessage ?? "", headers: pairs, body: changes ? EMPTY : pipe.readable };
        if (changes) leave();
        resolve(changes ? { ...found, socket, head: parser.rest } : found);
        if (changes) return undefined;
        return method === "HEAD" || status === 204 || status === 304 ? 0 : extentOf(pairs, "rest");
      },
      piece: (bytes) => handOn(pipe, bytes, socket),
      end() {
        if (isInterim) return void setImmediate(() => parser.next());
        isOver = true;
        pipe.end();
        socket.end();
      },
    });
    const over = () => {
      parser.close();
      if (!isOver) fail(coded("ECONNRESET", "socket hang up"));
    };
    const leave = hear(socket, {
      data(bytes) {
        try {
          parser.push(bytes);
        } catch (error) {
          fail(error);
        }
      },
      end: over,
      close: over,
      error: fail,
    });
    write(socket, `${method} ${target} HTTP/1.1`, headers, body).catch(fail);
  });
  return { answer, giveUp };
}

module.exports = { ask, serve };
