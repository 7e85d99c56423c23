// Modules and functions that a sandbox cannot have: what is called or constructed says why, and what to use instead.
const { EventEmitter } = kit.requireBuiltin("events");

const TOOLS = "a tool that the host grants (await tool.name({...}))";
const NETWORK = `there are no sockets; use fetch, when the session was granted network access, or ${TOOLS}`;
const PROCESSES = "kernels cannot share a server; child_process starts node and python as further kernels";
const THREADS = "there is one thread; await, Promise.all and parallel([...]) overlap what waits";
const SERVER = `nothing can listen for connections but http.createServer, for requests of its own kernel; use that, or ${TOOLS}`;
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

module.exports = { ENGINE, ASK, NETWORK, PROCESSES, SERVER, THREADS, hollow, refusing };
