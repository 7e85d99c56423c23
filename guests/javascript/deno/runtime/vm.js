// node:vm. A context is another global scope in the same interpreter: its own `Object`, `Array` and the rest, and the
// properties of the object that it was made of.
const codes = require("deno/deno_node/internal/errors.ts");
const { validateObject, validateString } = require("deno/deno_node/internal/validators.js");

// The global objects of contexts, by the objects that they were made of.
const realms = new WeakMap();

const optionsOf = (options) => (typeof options === "string" ? { filename: options } : (options ?? {}));

function textOf(code) {
  if (typeof code === "string") return code;
  throw new codes.ERR_INVALID_ARG_TYPE("code", "string", code);
}

function realmOf(contextified) {
  const realm = realms.get(contextified);
  if (realm === undefined) throw new codes.ERR_INVALID_ARG_TYPE("contextifiedObject", "vm.Context", contextified);
  return realm;
}

// Lets code in a context read and write a property of its object as a global variable.
function link(realm, object, name) {
  const mine = Object.getOwnPropertyDescriptor(realm, name);
  if (mine !== undefined && !mine.configurable) return;
  Object.defineProperty(realm, name, {
    get: () => object[name],
    set: (value) => void (object[name] = value),
    enumerable: true,
    configurable: true,
  });
}

const isLinked = (realm, name) => Object.getOwnPropertyDescriptor(realm, name)?.get !== undefined;

// Throws what is wrong with a script that is none.
function check(code, filename) {
  try {
    host.checkScript(code, filename);
  } catch (error) {
    throw kit.withSource(error, code, filename);
  }
}

function runScript(code, filename, scope, timeout) {
  try {
    return host.runScript(code, filename, scope, timeout);
  } catch (error) {
    if (error?.name === "SyntaxError") check(code, filename);
    throw error;
  }
}

function run(code, options, object) {
  const { filename = "evalmachine.<anonymous>", timeout } = optionsOf(options);
  if (timeout !== undefined && !(Number.isInteger(timeout) && timeout > 0)) throw new codes.ERR_OUT_OF_RANGE("options.timeout", ">= 1", timeout);
  if (object === undefined) return runScript(textOf(code), filename, eval, timeout);
  const realm = realmOf(object);
  for (const name of Object.keys(object)) if (!isLinked(realm, name)) link(realm, object, name);
  for (const name of Object.keys(realm)) if (isLinked(realm, name) && !(name in object)) delete realm[name];
  try {
    return runScript(textOf(code), filename, realm.eval, timeout);
  } finally {
    // What the code declared is there for the next script, and for who looks at the object.
    for (const name of Object.keys(realm)) {
      if (isLinked(realm, name)) continue;
      object[name] = realm[name];
      link(realm, object, name);
    }
  }
}

function createContext(object = {}) {
  validateObject(object, "contextObject");
  if (!realms.has(object)) {
    const realm = host.newRealm();
    // What the engine gives a scope besides JavaScript's own objects, a context of Node's has not.
    for (const name of Object.keys(realm)) delete realm[name];
    realms.set(object, realm);
  }
  return object;
}

const isContext = (object) => (validateObject(object, "object"), realms.has(object));
const runInThisContext = (code, options) => run(code, options);
const runInContext = (code, object, options) => (realmOf(object), run(code, options, object));
const runInNewContext = (code, object, options) => run(code, options, createContext(object));

class Script {
  #code;
  #options;
  constructor(code, options) {
    this.#code = String(code);
    this.#options = optionsOf(options);
    check(this.#code, this.#options.filename ?? "evalmachine.<anonymous>");
  }
  runInThisContext(options) {
    return run(this.#code, { ...this.#options, ...options });
  }
  runInContext(object, options) {
    return runInContext(this.#code, object, { ...this.#options, ...options });
  }
  runInNewContext(object, options) {
    return runInNewContext(this.#code, object, { ...this.#options, ...options });
  }
  createCachedData() {
    return kit.requireBuiltin("buffer").Buffer.alloc(0);
  }
}

function compileFunction(code, parameters = []) {
  validateString(code, "code");
  return new Function(...parameters, code);
}

module.exports = {
  Script, compileFunction, constants: {}, createContext, createScript: (code, options) => new Script(code, options), isContext,
  measureMemory: async () => ({ total: { jsMemoryEstimate: host.memoryBytes(), jsMemoryRange: [0, host.memoryBytes()] } }),
  runInContext, runInNewContext, runInThisContext,
};
