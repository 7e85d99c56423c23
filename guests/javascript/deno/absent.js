// Modules of Node's that a sandbox cannot have. Programs and packages often import them and never use them, so each is
// there with its names; what is called or constructed says why it cannot be, and what to use instead.
const { EventEmitter } = kit.requireBuiltin("events");

const TOOLS = "a tool that the host grants (await tool.name({...}))";
const NETWORK = `there are no sockets; use fetch, when the session was granted network access, or ${TOOLS}`;
const PROCESSES = `no processes can be started; use JavaScript itself, or ${TOOLS}`;
const THREADS = "there is one thread; await, Promise.all and parallel([...]) overlap what waits";
const SERVER = `nothing can listen for connections; use ${TOOLS}`;
const ENGINE = "the engine is QuickJS, and this is V8's own";
const ASK = "no terminal is attached: every cell is a prompt already";

const refusing = (name, what, why) => ({
  [name]: function () {
    throw kit.unsupported(what, why);
  },
})[name];

// A class that programs may extend and ask `instanceof` of.
const refused = (name, what, why) => ({
  [name]: class extends EventEmitter {
    constructor() {
      throw kit.unsupported(what, why);
    }
  },
})[name];

// Exports of a module: names in capitals are classes, others functions; `own` comes with values.
function hollow(module, why, names, own = {}) {
  const exports = {};
  for (const name of names.split(" ")) {
    exports[name] = (/^[A-Z]/.test(name) ? refused : refusing)(name, `${module}.${name}`, why);
  }
  return Object.assign(exports, own);
}

// ---- Addresses need no network to be told apart.

const V4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.|$)){4}$/;
const isIPv4 = (text) => V4.test(String(text)) && !String(text).endsWith(".");
const isIPv6 = (text) => {
  const [, address] = /^([\da-f:.]*:[\da-f:.]*)(?:%[\da-z.:-]+)?$/i.exec(String(text)) ?? [];
  return address !== undefined && host.parseUrl(`http://[${address}]/`, undefined, new Uint32Array(8)) !== undefined;
};
const isIP = (text) => (isIPv4(text) ? 4 : isIPv6(text) ? 6 : 0);

// ---- HTTP

const METHODS = ("ACL BIND CHECKOUT CONNECT COPY DELETE GET HEAD LINK LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR MKCOL MOVE NOTIFY OPTIONS PATCH " +
  "POST PROPFIND PROPPATCH PURGE PUT REBIND REPORT SEARCH SOURCE SUBSCRIBE TRACE UNBIND UNLINK UNLOCK UNSUBSCRIBE").split(" ");

const STATUS_CODES = {
  100: "Continue", 101: "Switching Protocols", 102: "Processing", 103: "Early Hints", 200: "OK", 201: "Created", 202: "Accepted",
  203: "Non-Authoritative Information", 204: "No Content", 205: "Reset Content", 206: "Partial Content", 207: "Multi-Status",
  208: "Already Reported", 226: "IM Used", 300: "Multiple Choices", 301: "Moved Permanently", 302: "Found", 303: "See Other",
  304: "Not Modified", 305: "Use Proxy", 307: "Temporary Redirect", 308: "Permanent Redirect", 400: "Bad Request", 401: "Unauthorized",
  402: "Payment Required", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable",
  407: "Proxy Authentication Required", 408: "Request Timeout", 409: "Conflict", 410: "Gone", 411: "Length Required",
  412: "Precondition Failed", 413: "Payload Too Large", 414: "URI Too Long", 415: "Unsupported Media Type", 416: "Range Not Satisfiable",
  417: "Expectation Failed", 418: "I'm a Teapot", 421: "Misdirected Request", 422: "Unprocessable Entity", 423: "Locked",
  424: "Failed Dependency", 425: "Too Early", 426: "Upgrade Required", 428: "Precondition Required", 429: "Too Many Requests",
  431: "Request Header Fields Too Large", 451: "Unavailable For Legal Reasons", 500: "Internal Server Error", 501: "Not Implemented",
  502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout", 505: "HTTP Version Not Supported",
  506: "Variant Also Negotiates", 507: "Insufficient Storage", 508: "Loop Detected", 509: "Bandwidth Limit Exceeded", 510: "Not Extended",
  511: "Network Authentication Required",
};

// Packages make these while they are loaded, for requests that they may never send.
class Agent extends EventEmitter {
  constructor(options) {
    super();
    Object.assign(this, { options: { ...options }, requests: {}, sockets: {}, freeSockets: {}, maxSockets: options?.maxSockets ?? Infinity });
  }
  createConnection() {
    throw kit.unsupported("http.Agent.createConnection", NETWORK);
  }
  destroy() {}
}

const agents = () => ({ Agent, globalAgent: new Agent({ keepAlive: true, scheduling: "lifo", timeout: 5000 }) });

function validateHeader(name) {
  if (typeof name === "string" && /^[\^_`a-zA-Z\-0-9!#$%&'*+.|~]+$/.test(name)) return;
  throw Object.assign(new TypeError(`Header name must be a valid HTTP token ["${name}"]`), { code: "ERR_INVALID_HTTP_TOKEN" });
}

function getHeapStatistics() {
  const bytes = host.memoryBytes();
  return { total_heap_size: bytes, used_heap_size: bytes, total_available_size: 0, heap_size_limit: 0, malloced_memory: bytes };
}

const environmentData = new Map();

// ---- The modules

const LOOKUPS = "lookup lookupService resolve resolve4 resolve6 resolveAny resolveCaa resolveCname resolveMx resolveNaptr resolveNs resolvePtr " +
  "resolveSoa resolveSrv resolveTxt reverse setServers Resolver";
const dns = (module) => hollow(module, NETWORK, LOOKUPS, {
  ADDRCONFIG: 32, ALL: 16, V4MAPPED: 8, NOTFOUND: "ENOTFOUND", NODATA: "ENODATA", SERVFAIL: "ESERVFAIL", TIMEOUT: "ETIMEOUT",
  getServers: () => [], getDefaultResultOrder: () => "verbatim", setDefaultResultOrder() {},
});

module.exports = {
  child_process: () => hollow("child_process", PROCESSES, "ChildProcess exec execFile execFileSync execSync fork spawn spawnSync"),
  cluster: () => Object.assign(new EventEmitter(), hollow("cluster", PROCESSES, "Worker disconnect fork setupMaster setupPrimary", {
    isMaster: true, isPrimary: true, isWorker: false, workers: {}, settings: {}, SCHED_NONE: 1, SCHED_RR: 2, schedulingPolicy: 2,
  })),
  dgram: () => hollow("dgram", NETWORK, "Socket createSocket"),
  dns: () => ({ ...dns("dns"), promises: kit.requireBuiltin("dns/promises") }),
  "dns/promises": () => dns("dns.promises"),
  domain: () => hollow("domain", "Node has given it up: use try, catch and await", "Domain create createDomain"),
  http: () => hollow("http", NETWORK, "ClientRequest IncomingMessage OutgoingMessage ServerResponse get request", {
    ...hollow("http", SERVER, "Server createServer"), ...agents(), METHODS, STATUS_CODES, maxHeaderSize: 16384,
    setMaxIdleHTTPParsers() {}, validateHeaderName: validateHeader, validateHeaderValue() {},
  }),
  http2: () => hollow("http2", NETWORK, "Http2ServerRequest Http2ServerResponse connect createSecureServer createServer getDefaultSettings", {
    constants: {}, sensitiveHeaders: Symbol("nodejs.http2.sensitiveHeaders"),
  }),
  https: () => hollow("https", NETWORK, "get request", { ...hollow("https", SERVER, "Server createServer"), ...agents() }),
  inspector: () => hollow("inspector", ENGINE, "Session open waitForDebugger", { close() {}, url: () => undefined, console: globalThis.console }),
  "inspector/promises": () => kit.requireBuiltin("inspector"),
  net: () => hollow("net", NETWORK, "BlockList Socket SocketAddress Stream connect createConnection", {
    ...hollow("net", SERVER, "Server createServer"), isIP, isIPv4, isIPv6,
    getDefaultAutoSelectFamily: () => true, setDefaultAutoSelectFamily() {},
  }),
  repl: () => hollow("repl", ASK, "REPLServer Recoverable start writer", { builtinModules: kit.builtinNames() }),
  test: () => {
    const why = "there is no test runner: call functions, and compare with node:assert";
    return Object.assign(refusing("test", "node:test", why), hollow("node:test", why, "after afterEach before beforeEach describe it run suite test"));
  },
  tls: () => hollow("tls", NETWORK, "SecureContext TLSSocket checkServerIdentity connect createSecureContext createSecurePair", {
    ...hollow("tls", SERVER, "Server createServer"), DEFAULT_MIN_VERSION: "TLSv1.2", DEFAULT_MAX_VERSION: "TLSv1.3", rootCertificates: [],
    getCiphers: () => [],
  }),
  trace_events: () => hollow("trace_events", ENGINE, "createTracing", { getEnabledCategories: () => undefined }),
  v8: () => hollow("v8", ENGINE, "DefaultDeserializer DefaultSerializer Deserializer GCProfiler Serializer cachedDataVersionTag deserialize " +
    "getHeapCodeStatistics getHeapSnapshot getHeapSpaceStatistics queryObjects serialize setHeapSnapshotNearHeapLimit " +
    "stopCoverage takeCoverage writeHeapSnapshot", { setFlagsFromString() {}, getHeapStatistics }),
  wasi: () => hollow("wasi", "WebAssembly cannot be run inside this sandbox", "WASI"),
  worker_threads: () => hollow("worker_threads", THREADS, "Worker moveMessagePortToContext postMessageToThread", {
    isMainThread: true, parentPort: null, resourceLimits: {}, threadId: 0, workerData: null, SHARE_ENV: Symbol.for("nodejs.worker_threads.SHARE_ENV"),
    markAsUntransferable() {}, getEnvironmentData: (key) => environmentData.get(key),
    setEnvironmentData: (key, value) => void (value === undefined ? environmentData.delete(key) : environmentData.set(key, value)),
    ...kit.platform("messages"),
  }),
};
