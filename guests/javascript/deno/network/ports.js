// What listens within this kernel, by port or by path: servers of node:net and node:http. Nothing else can connect to them.
const PORT_FIRST = 49152; // of those that are chosen where a program leaves the choice
const PORT_LAST = 65535;
const SERVERS_MAX = 256;

const LOCAL = new Set(["localhost", "127.0.0.1", "::1", "[::1]", "0.0.0.0", "::", "[::]"]);

const servers = new Map();
// Ports that servers had and gave back, besides those that they have.
const had = new Set();

// What servers say of themselves to this runtime alone: how many connections they have, and that one may have been the last.
const connections = Symbol("connections");
const settle = Symbol("settle");

const coded = (code, message, more = {}, Class = Error) => Object.assign(new Class(message), { code, ...more });
const isLocal = (host) => LOCAL.has(host) || /^127\.\d+\.\d+\.\d+$/.test(host);
const find = (place) => servers.get(place);
const wasServed = (port) => had.has(port);

function freePort() {
  for (let port = PORT_FIRST; port <= PORT_LAST; port++) if (!servers.has(port)) return port;
  throw coded("EADDRINUSE", "no port is free");
}

// Where the arguments of `listen` or `connect` lead: a path, or a port and a host; and the function among them.
function placeOf(given) {
  const callback = given.find((one) => typeof one === "function");
  const [first, second] = given;
  let options = first;
  if (typeof first === "string" && !/^\d+$/.test(first)) options = { path: first };
  else if (typeof first !== "object" || first === null) {
    options = { port: typeof first === "function" ? undefined : first, host: typeof second === "string" ? second : undefined };
  }
  return { options, callback };
}

// A port that was asked for, as a number.
function portOf(port, name = "options.port") {
  const number = typeof port === "string" && port.trim() !== "" ? Number(port) : port;
  if (Number.isInteger(number) && number >= 0 && number <= PORT_LAST) return number;
  const given = typeof port === "string" ? `type string ('${port}')` : `type ${typeof port} (${port})`;
  throw coded("ERR_SOCKET_BAD_PORT", `${name} should be >= 0 and < 65536. Received ${given}.`, {}, RangeError);
}

const ERRNOS = { EADDRINUSE: -98, ECONNREFUSED: -111, ECONNRESET: -104, EPIPE: -32, ENOENT: -2 };

// What fails as a call of the system does.
function failed(code, syscall, { address, port, path } = {}) {
  const where = path ?? (address === undefined ? undefined : `${address}:${port}`);
  const words = code === "EADDRINUSE" ? ": address already in use" : "";
  return coded(code, `${syscall} ${code}${words}${where === undefined ? "" : ` ${where}`}`, {
    errno: ERRNOS[code], syscall, ...(path === undefined ? (address === undefined ? {} : { address, port }) : { address: path }),
  });
}

// The side of a server that listens: it takes a place, and gives it back.
class Listening {
  #place;
  #host;
  #isClosing = false;

  get isOpen() {
    return this.#place !== undefined;
  }

  // Starts `server` at a place, and emits what comes of it in the next tick.
  start(server, given) {
    const { options, callback } = placeOf(given);
    if (callback) server.once("listening", callback);
    if (this.isOpen) throw coded("ERR_SERVER_ALREADY_LISTEN", "Listen method has been called more than once without closing.");
    const { path, signal } = options;
    const place = path ?? (options.port === undefined || options.port === null || Number(options.port) === 0 ? freePort() : portOf(options.port));
    const host = options.host ?? "::";
    const isTaken = servers.has(place) || servers.size >= SERVERS_MAX;
    if (!isTaken) {
      servers.set(place, server);
      if (path === undefined) had.add(place);
      this.#place = place;
      this.#host = host === "localhost" ? "127.0.0.1" : host;
      signal?.addEventListener("abort", () => server.close(), { once: true });
    }
    process.nextTick(() => {
      if (isTaken) server.emit("error", failed("EADDRINUSE", "listen", path === undefined ? { address: host, port: place } : { path }));
      else if (this.isOpen) server.emit("listening");
    });
    return server;
  }

  address() {
    if (!this.isOpen) return null;
    if (typeof this.#place === "string") return this.#place;
    return { address: this.#host, family: this.#host.includes(":") ? "IPv6" : "IPv4", port: this.#place };
  }

  // Gives the place back. The server has closed when `settle` finds that nothing is under way.
  close(server, callback) {
    if (!this.isOpen) {
      if (callback) process.nextTick(() => callback(coded("ERR_SERVER_NOT_RUNNING", "Server is not running.")));
      return;
    }
    if (callback) server.once("close", callback);
    servers.delete(this.#place);
    this.#place = undefined;
    this.#isClosing = true;
  }
  settle(server, isBusy) {
    if (!this.#isClosing || isBusy) return;
    this.#isClosing = false;
    process.nextTick(() => server.emit("close"));
  }
}

module.exports = { Listening, coded, connections, failed, find, isLocal, placeOf, portOf, settle, wasServed };
