// Modules of Node's that a sandbox cannot have. Programs and packages often import them and never use them, so each is
// there with its names; what is called or constructed says why it cannot be, and what to use instead.
const { EventEmitter } = kit.requireBuiltin("events");
const { ASK, ENGINE, NETWORK, PROCESSES, SERVER, THREADS, hollow, refusing } = require("deno/refusing.js");

// ---- Addresses need no network to be told apart.

const V4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.|$)){4}$/;
const isIPv4 = (text) => V4.test(String(text)) && !String(text).endsWith(".");
const isIPv6 = (text) => {
  const [, address] = /^([\da-f:.]*:[\da-f:.]*)(?:%[\da-z.:-]+)?$/i.exec(String(text)) ?? [];
  return address !== undefined && host.parseUrl(`http://[${address}]/`, undefined, new Uint32Array(8)) !== undefined;
};
const isIP = (text) => (isIPv4(text) ? 4 : isIPv6(text) ? 6 : 0);

function getHeapStatistics() {
  const bytes = host.memoryBytes();
  return { total_heap_size: bytes, used_heap_size: bytes, total_available_size: 0, heap_size_limit: 0, malloced_memory: bytes };
}

const environmentData = new Map();

function workerThreads() {
  const base = () => module;
  const module = hollow("worker_threads", THREADS, "moveMessagePortToContext postMessageToThread", {
    isMainThread: true, parentPort: null, resourceLimits: {}, threadId: 0, workerData: null, SHARE_ENV: Symbol.for("nodejs.worker_threads.SHARE_ENV"),
    markAsUntransferable() {}, getEnvironmentData: (key) => environmentData.get(key),
    setEnvironmentData: (key, value) => void (value === undefined ? environmentData.delete(key) : environmentData.set(key, value)),
    ...kit.platform("messages"),
    Worker: require("deno/worker.js").make(base),
  });
  return module;
}

// ---- The modules

const LOOKUPS = "lookup lookupService resolve resolve4 resolve6 resolveAny resolveCaa resolveCname resolveMx resolveNaptr resolveNs resolvePtr " +
  "resolveSoa resolveSrv resolveTxt reverse setServers Resolver";
const dns = (module) => hollow(module, NETWORK, LOOKUPS, {
  ADDRCONFIG: 32, ALL: 16, V4MAPPED: 8, NOTFOUND: "ENOTFOUND", NODATA: "ENODATA", SERVFAIL: "ESERVFAIL", TIMEOUT: "ETIMEOUT",
  getServers: () => [], getDefaultResultOrder: () => "verbatim", setDefaultResultOrder() {},
});

module.exports = {
  cluster: () => Object.assign(new EventEmitter(), hollow("cluster", PROCESSES, "Worker disconnect fork setupMaster setupPrimary", {
    isMaster: true, isPrimary: true, isWorker: false, workers: {}, settings: {}, SCHED_NONE: 1, SCHED_RR: 2, schedulingPolicy: 2,
  })),
  dgram: () => hollow("dgram", NETWORK, "Socket createSocket"),
  dns: () => ({ ...dns("dns"), promises: kit.requireBuiltin("dns/promises") }),
  "dns/promises": () => dns("dns.promises"),
  domain: () => hollow("domain", "Node has given it up: use try, catch and await", "Domain create createDomain"),
  http2: () => hollow("http2", NETWORK, "Http2ServerRequest Http2ServerResponse connect createSecureServer createServer getDefaultSettings", {
    constants: {}, sensitiveHeaders: Symbol("nodejs.http2.sensitiveHeaders"),
  }),
  inspector: () => hollow("inspector", ENGINE, "Session open waitForDebugger", { close() {}, url: () => undefined, console: globalThis.console }),
  "inspector/promises": () => kit.requireBuiltin("inspector"),
  net: () => hollow("net", NETWORK, "BlockList Socket SocketAddress Stream connect createConnection", {
    ...hollow("net", SERVER, "Server createServer"), isIP, isIPv4, isIPv6,
    getDefaultAutoSelectFamily: () => true, setDefaultAutoSelectFamily() {},
  }),
  repl: () => hollow("repl", ASK, "REPLServer Recoverable start writer", { builtinModules: kit.builtinNames() }),
  tls: () => hollow("tls", NETWORK, "SecureContext TLSSocket checkServerIdentity connect createSecureContext createSecurePair", {
    ...hollow("tls", SERVER, "Server createServer"), DEFAULT_MIN_VERSION: "TLSv1.2", DEFAULT_MAX_VERSION: "TLSv1.3", rootCertificates: [],
    getCiphers: () => [],
  }),
  trace_events: () => hollow("trace_events", ENGINE, "createTracing", { getEnabledCategories: () => undefined }),
  v8: () => hollow("v8", ENGINE, "DefaultDeserializer DefaultSerializer Deserializer GCProfiler Serializer cachedDataVersionTag deserialize " +
    "getHeapCodeStatistics getHeapSnapshot getHeapSpaceStatistics queryObjects serialize setHeapSnapshotNearHeapLimit " +
    "stopCoverage takeCoverage writeHeapSnapshot", { setFlagsFromString() {}, getHeapStatistics }),
  wasi: () => hollow("wasi", "WebAssembly cannot be run inside this sandbox", "WASI"),
  worker_threads: workerThreads,
};
