// Modules of Node's that a sandbox cannot have. Programs and packages often import them and never use them, so each is
// there with its names; what is called or constructed says why it cannot be, and what to use instead.
const { EventEmitter } = kit.requireBuiltin("events");
const { isIP } = require("deno/network/addresses.js");
const { ASK, ENGINE, NETWORK, PROCESSES, SERVER, THREADS, hollow, refusing } = require("deno/runtime/refusing.js");

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
    Worker: require("deno/processes/worker.js").make(base),
  });
  return module;
}

// ---- The modules

const LOOKUPS = "lookup lookupService resolve resolve4 resolve6 resolveAny resolveCaa resolveCname resolveMx resolveNaptr resolveNs resolvePtr " +
  "resolveSoa resolveSrv resolveTxt reverse setServers Resolver";
// Names of this machine, and addresses, need no network.
function lookupLocal(module, hostname, options) {
  const family = isIP(hostname) || (hostname === "localhost" ? 4 : 0);
  if (family === 0) throw kit.unsupported(`${module}.lookup`, NETWORK);
  const found = { address: hostname === "localhost" ? "127.0.0.1" : hostname, family };
  return options?.all ? [found] : found;
}
const lookups = {
  dns: (hostname, options, callback = options) => {
    const given = typeof options === "function" ? undefined : options;
    const found = lookupLocal("dns", hostname, given);
    process.nextTick(() => (given?.all ? callback(null, found) : callback(null, found.address, found.family)));
  },
  "dns.promises": async (hostname, options) => lookupLocal("dns.promises", hostname, options),
};

const dns = (module) => hollow(module, NETWORK, LOOKUPS, {
  lookup: lookups[module],
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
  repl: () => hollow("repl", ASK, "REPLServer Recoverable start writer", { builtinModules: kit.builtinNames() }),
  tls: () => hollow("tls", NETWORK, "SecureContext TLSSocket checkServerIdentity connect createSecureContext createSecurePair", {
    ...hollow("tls", SERVER, "Server createServer"), DEFAULT_MIN_VERSION: "TLSv1.2", DEFAULT_MAX_VERSION: "TLSv1.3", rootCertificates: [],
    getCiphers: () => [],
  }),
  trace_events: () => hollow("trace_events", ENGINE, "createTracing", { getEnabledCategories: () => undefined }),
  v8: () => hollow("v8", ENGINE, "DefaultDeserializer DefaultSerializer Deserializer GCProfiler Serializer cachedDataVersionTag " +
    "getHeapCodeStatistics getHeapSnapshot getHeapSpaceStatistics queryObjects setHeapSnapshotNearHeapLimit " +
    "stopCoverage takeCoverage writeHeapSnapshot", { setFlagsFromString() {}, getHeapStatistics, ...require("deno/runtime/v8_values.js") }),
  wasi: () => hollow("wasi", "WebAssembly has no folders and no streams here; give its imports functions of your own", "WASI"),
  worker_threads: workerThreads,
};
