// WebAssembly within the guest: modules are turned into JavaScript, function by function, when each is first called.
const { readModule } = require("deno/wasm/wasm_reader.js");
const { sourceOf } = require("deno/wasm/wasm_compiler.js");

const PAGE = 65536;
// A session has no more memory than this anyway.
const PAGES_MAX = 16384;
const TABLE_MAX = 10000000;

const error = (name) => ({ [name]: class extends Error {
  constructor(message, options) {
    super(message, options);
  }
  get name() {
    return name;
  }
} })[name];
const CompileError = error("CompileError");
const LinkError = error("LinkError");
const RuntimeError = error("RuntimeError");

const trap = (message) => {
  throw new RuntimeError(message);
};
const outOfMemory = () => trap("memory access out of bounds");
const outOfTable = () => trap("table index is out of bounds");

const secret = Symbol("secret");
const inner = (object) => object[secret];
const hide = (object, value) => Object.defineProperty(object, secret, { value });

// ---- What the code of modules calls

const scratch = new DataView(new ArrayBuffer(8));
const I64_MIN = -(2n ** 63n);

function whole(value, low, high) {
  if (Number.isNaN(value)) trap("float unrepresentable in integer range");
  const cut = Math.trunc(value);
  if (cut < low || cut > high) trap("float unrepresentable in integer range");
  return cut;
}
const clamp = (value, low, high) => (Number.isNaN(value) ? 0 : Math.min(high, Math.max(low, Math.trunc(value))));
const clamp64 = (value, low, high) => {
  if (Number.isNaN(value)) return 0n;
  if (value === Infinity || value === -Infinity) return value > 0 ? high : low;
  const cut = BigInt(Math.trunc(value));
  return cut < low ? low : cut > high ? high : cut;
};
const unsigned = (value) => BigInt.asUintN(64, value);
const signed = (value) => BigInt.asIntN(64, value);

const helpers = {
  trap,
  ctz: (a) => (a === 0 ? 32 : 31 - Math.clz32(a & -a)),
  popcnt: (a) => {
    let count = 0;
    for (let rest = a >>> 0; rest !== 0; rest &= rest - 1) count++;
    return count;
  },
  rotl: (a, b) => (a << (b & 31)) | (a >>> (-b & 31)),
  div: (a, b) => {
    if (b === 0) trap("divide by zero");
    if (a === -2147483648 && b === -1) trap("divide result unrepresentable");
    return (a / b) | 0;
  },
  divU: (a, b) => (b === 0 ? trap("divide by zero") : ((a >>> 0) / (b >>> 0)) | 0),
  rem: (a, b) => (b === 0 ? trap("remainder by zero") : (a % b) | 0),
  remU: (a, b) => (b === 0 ? trap("remainder by zero") : ((a >>> 0) % (b >>> 0)) | 0),
  clz64: (a) => BigInt(a === 0n ? 64 : 64 - unsigned(a).toString(2).length),
  ctz64: (a) => (a === 0n ? 64n : BigInt(unsigned(a & -a).toString(2).length - 1)),
  popcnt64: (a) => BigInt(unsigned(a).toString(2).replaceAll("0", "").length),
  rotl64: (a, b) => {
    const count = b & 63n;
    return signed((unsigned(a) << count) | (unsigned(a) >> (64n - count)));
  },
  div64: (a, b) => {
    if (b === 0n) trap("divide by zero");
    if (a === I64_MIN && b === -1n) trap("divide result unrepresentable");
    return a / b;
  },
  divU64: (a, b) => (b === 0n ? trap("divide by zero") : signed(unsigned(a) / unsigned(b))),
  rem64: (a, b) => (b === 0n ? trap("remainder by zero") : a % b),
  remU64: (a, b) => (b === 0n ? trap("remainder by zero") : signed(unsigned(a) % unsigned(b))),
  nearest: (a) => {
    if (!Number.isFinite(a) || a === 0) return a;
    const low = Math.floor(a);
    const rest = a - low;
    const near = rest < 0.5 ? low : rest > 0.5 ? low + 1 : low % 2 === 0 ? low : low + 1;
    return near === 0 && a < 0 ? -0 : near;
  },
  copysign: (a, b) => ((Object.is(b, -0) || b < 0) === (Object.is(a, -0) || a < 0) ? a : -a),
  trunc: (a) => whole(a, -2147483648, 2147483647) | 0,
  truncU: (a) => whole(a, 0, 4294967295) | 0,
  trunc64: (a) => BigInt(whole(a, -9223372036854775808, 9223372036854774784)),
  truncU64: (a) => signed(BigInt(whole(a, 0, 18446744073709549568))),
  sat: (a) => clamp(a, -2147483648, 2147483647) | 0,
  satU: (a) => clamp(a, 0, 4294967295) | 0,
  sat64: (a) => clamp64(a, I64_MIN, -I64_MIN - 1n),
  satU64: (a) => signed(clamp64(a, 0n, 2n ** 64n - 1n)),
  float32: (a) => {
    const near = Number(a);
    return Math.fround(near);
  },
  bits32: (a) => (scratch.setFloat32(0, a), scratch.getInt32(0)),
  bits64: (a) => (scratch.setFloat64(0, a), scratch.getBigInt64(0)),
  fromBits32: (a) => (scratch.setInt32(0, a), scratch.getFloat32(0)),
  fromBits64: (a) => (scratch.setBigInt64(0, a), scratch.getFloat64(0)),
  tableGet: (table, at) => (at >>> 0 < table.items.length ? table.items[at >>> 0] : outOfTable()),
  tableSet: (table, at, value) => void (at >>> 0 < table.items.length ? (table.items[at >>> 0] = value) : outOfTable()),
  tableFill: (table, at, value, size) => {
    if ((at >>> 0) + (size >>> 0) > table.items.length) outOfTable();
    table.items.fill(value, at >>> 0, (at >>> 0) + (size >>> 0));
  },
  tableCopy: (to, from, a, b, size) => {
    const count = size >>> 0;
    if ((a >>> 0) + count > to.items.length || (b >>> 0) + count > from.items.length) outOfTable();
    const moved = from.items.slice(b >>> 0, (b >>> 0) + count);
    moved.forEach((value, i) => (to.items[(a >>> 0) + i] = value));
  },
  memoryCopy: (memory, to, from, size) => {
    if ((to >>> 0) + (size >>> 0) > memory.bytes.length || (from >>> 0) + (size >>> 0) > memory.bytes.length) outOfMemory();
    memory.bytes.copyWithin(to >>> 0, from >>> 0, (from >>> 0) + (size >>> 0));
  },
  memoryFill: (memory, to, value, size) => {
    if ((to >>> 0) + (size >>> 0) > memory.bytes.length) outOfMemory();
    memory.bytes.fill(value, to >>> 0, (to >>> 0) + (size >>> 0));
  },
};

// ---- Memories, tables and globals

class MemoryState {
  constructor(minimum, maximum) {
    this.maximum = maximum;
    this.#take(new ArrayBuffer(minimum * PAGE));
  }
  #take(buffer) {
    this.buffer = buffer;
    this.bytes = new Uint8Array(buffer);
    this.view = new DataView(buffer);
  }
  size() {
    return this.buffer.byteLength / PAGE;
  }
  extend(count) {
    const before = this.size();
    const after = before + (count >>> 0);
    if (after > Math.min(this.maximum ?? PAGES_MAX, PAGES_MAX)) return -1;
    try {
      this.#take(this.buffer.transfer(after * PAGE));
    } catch (problem) {
      if (!(problem instanceof RangeError) && !kit.isOutOfMemory(problem)) throw problem;
      return -1;
    }
    return before;
  }
}

class TableState {
  constructor(minimum, maximum, value = null) {
    this.maximum = maximum;
    this.items = Array(minimum).fill(value);
  }
  extend(count, value) {
    const before = this.items.length;
    if (before + (count >>> 0) > Math.min(this.maximum ?? TABLE_MAX, TABLE_MAX)) return -1;
    try {
      for (let i = count >>> 0; i > 0; i--) this.items.push(value);
    } catch (problem) {
      this.items.length = before;
      if (!kit.isOutOfMemory(problem)) throw problem;
      return -1;
    }
    return before;
  }
}

function sizeOf(what, descriptor, most) {
  const read = (name) => {
    const value = descriptor[name];
    if (value === undefined) return undefined;
    const number = Number(value);
    if (Number.isInteger(number) && number >= 0 && number < 2 ** 32) return number;
    throw new TypeError(`${what}: Property '${name}': value ${String(value)} is not an integer in range`);
  };
  const [minimum, maximum] = [read("initial") ?? read("minimum"), read("maximum")];
  if (minimum === undefined) throw new TypeError(`${what}: Property 'initial' is required`);
  if (minimum > most) throw new RangeError(`${what}: could not allocate so much`);
  if (maximum !== undefined && maximum < minimum) throw new RangeError(`${what}: Property 'maximum': value ${maximum} is below the lower bound ${minimum}`);
  return [minimum, maximum];
}

class Memory {
  constructor(descriptor) {
    if (descriptor?.[secret]) return void hide(this, descriptor[secret]);
    if (typeof descriptor !== "object" || descriptor === null) throw new TypeError("WebAssembly.Memory(): Argument 0 must be a memory descriptor");
    if (descriptor.shared) throw kit.unsupported("WebAssembly.Memory with shared", "there is one thread");
    hide(this, new MemoryState(...sizeOf("WebAssembly.Memory()", descriptor, PAGES_MAX)));
  }
  get buffer() {
    return inner(this).buffer;
  }
  grow(count) {
    const before = inner(this).extend(Number(count));
    if (before < 0) throw new RangeError("WebAssembly.Memory.grow(): Maximum memory size exceeded");
    return before;
  }
}

const isFunction = (value) => typeof value === "function" && inner(value) !== undefined;
// What tables hold is the code of functions, or a function of the program's that was imported.
const itemFrom = (value, element) => {
  if (element === "externref") return value;
  if (value === null || value === undefined) return null;
  if (!isFunction(value)) throw new TypeError("WebAssembly.Table: Argument 1 is invalid: function-typed object expected");
  return inner(value);
};
const itemTo = (value, element) => (element === "externref" || value === null ? value : value.exported());

class Table {
  constructor(descriptor, value) {
    if (descriptor?.[secret]) return void hide(this, descriptor[secret]);
    if (typeof descriptor !== "object" || descriptor === null) throw new TypeError("WebAssembly.Table(): Argument 0 must be a table descriptor");
    const element = descriptor.element === "anyfunc" ? "funcref" : descriptor.element;
    if (element !== "funcref" && element !== "externref") throw new TypeError("WebAssembly.Table(): Descriptor property 'element' must be a WebAssembly reference type");
    const item = element === "externref" ? value : itemFrom(value, element);
    hide(this, Object.assign(new TableState(...sizeOf("WebAssembly.Table()", descriptor, TABLE_MAX), item), { element }));
  }
  get length() {
    return inner(this).items.length;
  }
  #at(name, index) {
    const { items } = inner(this);
    if (Number.isInteger(index) && index >= 0 && index < items.length) return items;
    throw new RangeError(`WebAssembly.Table.${name}(): invalid address ${index} in ${inner(this).element} table of size ${items.length}`);
  }
  get(index) {
    return itemTo(this.#at("get", index)[index], inner(this).element);
  }
  set(index, value = null) {
    this.#at("set", index)[index] = itemFrom(value, inner(this).element);
  }
  grow(count, value = null) {
    const before = inner(this).extend(count, itemFrom(value, inner(this).element));
    if (before < 0) throw new RangeError("WebAssembly.Table.grow(): failed to grow table");
    return before;
  }
}

const CONVERT = {
  i32: (value) => value | 0, i64: (value) => BigInt.asIntN(64, BigInt(typeof value === "number" ? refuseNumber(value) : value)),
  f32: (value) => Math.fround(value), f64: (value) => Number(value), externref: (value) => value, funcref: (value) => itemFrom(value, "funcref"),
};
function refuseNumber(value) {
  throw new TypeError(`Cannot convert ${value} to a BigInt`);
}
const outward = (type, value) => (type === "funcref" ? itemTo(value, type) : value);

class Global {
  constructor(descriptor, value) {
    if (descriptor?.[secret]) return void hide(this, descriptor[secret]);
    const { value: type, mutable = false } = descriptor ?? {};
    const kept = type === "anyfunc" ? "funcref" : type;
    if (!Object.hasOwn(CONVERT, kept)) throw new TypeError("WebAssembly.Global(): Descriptor property 'value' must be a WebAssembly type");
    const usual = kept === "i64" ? 0n : kept === "externref" ? undefined : kept === "funcref" ? null : 0;
    hide(this, { type: kept, mutable: Boolean(mutable), v: value === undefined ? usual : CONVERT[kept](value) });
  }
  get value() {
    return outward(inner(this).type, inner(this).v);
  }
  set value(value) {
    const state = inner(this);
    if (!state.mutable) throw new TypeError("set WebAssembly.Global.value: Can't set the value of an immutable global.");
    state.v = CONVERT[state.type](value);
  }
  valueOf() {
    return this.value;
  }
}

// ---- Modules

function bytesOf(source, what) {
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength).slice();
  if (source instanceof ArrayBuffer || source instanceof SharedArrayBuffer) return new Uint8Array(source).slice();
  throw new TypeError(`WebAssembly.${what}: Argument 0 must be a buffer source`);
}

function load(source, what) {
  const bytes = bytesOf(source, what);
  const fail = (message, at) => {
    throw new CompileError(`WebAssembly.${what}: ${message}${at === undefined ? "" : ` @+${at}`}`);
  };
  const module = readModule(bytes, fail);
  const imported = module.imports.filter(({ kind }) => kind === "function").map(({ what: { type } }) => type);
  const all = [...imported, ...module.functions];
  Object.assign(module, { bytes, importCount: imported.length, typeOf: (index) => module.types[all[index]], typeNumber: (index) => all[index] });
  // All code is looked at now, so that what is wrong with it is told now, and kept for the instances.
  module.sources = module.codes.map((code, i) => sourceOf(module, code, module.types[module.functions[i]], fail));
  return module;
}

class Module {
  constructor(source) {
    hide(this, load(source, "Module()"));
  }
  static exports(module) {
    return inner(module).exports.map(({ name, kind }) => ({ name, kind }));
  }
  static imports(module) {
    return inner(module).imports.map(({ module: from, name, kind }) => ({ module: from, name, kind }));
  }
  static customSections(module, name) {
    return inner(module).custom.filter((one) => one.name === name).map(({ bytes }) => bytes.slice().buffer);
  }
}

// A function of an instance: `run` takes and gives what code has, and `exported` is what programs call.
class Code {
  #exported;
  constructor(type, run, name) {
    Object.assign(this, { type, run, name });
  }
  exported() {
    if (this.#exported !== undefined) return this.#exported;
    const { parameters, results } = this.type;
    const code = this;
    const exported = function (...given) {
      const values = parameters.map((type, i) => CONVERT[type](given[i]));
      let result;
      try {
        result = code.run(...values);
      } catch (problem) {
        // What a view of the memory says of a place that it does not have.
        if (problem instanceof RangeError && /\bbounds?\b/i.test(problem.message)) throw new RuntimeError("memory access out of bounds");
        throw problem;
      }
      if (results.length < 2) return results.length === 0 ? undefined : outward(results[0], result);
      return result.map((value, i) => outward(results[i], value));
    };
    Object.defineProperties(exported, { name: { value: String(this.name) }, length: { value: parameters.length } });
    hide(exported, this);
    return (this.#exported = exported);
  }
}

const same = (a, b) => a.parameters.join() === b.parameters.join() && a.results.join() === b.results.join();

// What an import is in code.
function importOf({ module: from, name, kind, what }, i, module, imports) {
  const where = `WebAssembly.Instance(): Import #${i} "${from}"`;
  const object = imports?.[from];
  if (typeof object !== "object" && typeof object !== "function" || object === null) throw new TypeError(`${where}: module is not an object or function`);
  const value = object[name];
  const fail = (message) => {
    throw new LinkError(`${where} "${name}": ${message}`);
  };
  if (kind === "function") {
    const type = module.types[what.type];
    if (typeof value !== "function") fail("function import requires a callable");
    if (isFunction(value)) return same(inner(value).type, type) ? inner(value) : fail("imported function does not match the expected type");
    const { results } = type;
    return new Code(type, (...given) => {
      const result = value(...given.map((one, at) => outward(type.parameters[at], one)));
      if (results.length === 0) return undefined;
      return results.length === 1 ? CONVERT[results[0]](result) : [...result].map((one, at) => CONVERT[results[at]](one));
    }, value.name);
  }
  if (kind === "memory") {
    if (!(value instanceof Memory)) fail("memory import must be a WebAssembly.Memory object");
    const size = inner(value).size();
    if (size < what.minimum) fail(`memory import has ${size} pages which is smaller than the declared initial of ${what.minimum}`);
    return inner(value);
  }
  if (kind === "table") return value instanceof Table ? inner(value) : fail("table import requires a WebAssembly.Table");
  if (value instanceof Global) {
    const fits = inner(value).type === what.type && inner(value).mutable === what.mutable;
    return fits ? inner(value) : fail("imported global does not match the expected type");
  }
  if (what.mutable) fail("imported mutable global must be a WebAssembly.Global object");
  const wanted = what.type === "i64" ? "bigint" : "number";
  if (typeof value !== wanted && !what.type.endsWith("ref")) fail(`global import must be a ${wanted === "bigint" ? "BigInt" : "number"}`);
  return { type: what.type, mutable: false, v: CONVERT[what.type](value) };
}

function instantiate(module, imports) {
  const state = { functions: [], tables: [], memories: [], globals: [] };
  const of = { function: state.functions, table: state.tables, memory: state.memories, global: state.globals };
  module.imports.forEach((one, i) => of[one.kind].push(importOf(one, i, module, imports)));
  const callable = state.functions.map((code) => code.run);
  state.functionAt = (index) => state.functions[index];
  for (const { minimum, maximum, element } of module.tables) state.tables.push(Object.assign(new TableState(minimum, maximum), { element }));
  for (const { minimum, maximum } of module.memories) {
    if (minimum > PAGES_MAX) throw new RangeError("WebAssembly.Instance(): Out of memory: Cannot allocate Wasm memory for new instance");
    state.memories.push(new MemoryState(minimum, maximum));
  }
  const segments = module.data.map(({ bytes }) => bytes);
  const elements = module.elements.map(({ items }) => items);
  const own = {
    ...helpers,
    functionAt: state.functionAt,
    indirect: (table, index, type) => {
      const at = index >>> 0;
      if (at >= table.items.length) outOfTable();
      const code = table.items[at];
      if (code === null || !same(code.type, module.types[type])) trap("null function or function signature mismatch");
      return code.run;
    },
    memoryInit: (memory, segment, to, from, size) => {
      const bytes = segments[segment];
      if ((from >>> 0) + (size >>> 0) > bytes.length || (to >>> 0) + (size >>> 0) > memory.bytes.length) outOfMemory();
      memory.bytes.set(bytes.subarray(from >>> 0, (from >>> 0) + (size >>> 0)), to >>> 0);
    },
    dataDrop: (segment) => void (segments[segment] = new Uint8Array(0)),
    tableInit: (table, segment, to, from, size) => {
      const items = elements[segment];
      if ((from >>> 0) + (size >>> 0) > items.length || (to >>> 0) + (size >>> 0) > table.items.length) outOfTable();
      for (let i = 0; i < size >>> 0; i++) table.items[(to >>> 0) + i] = items[(from >>> 0) + i](state);
    },
    elementDrop: (segment) => void (elements[segment] = []),
  };
  module.functions.forEach((type, i) => {
    const index = module.importCount + i;
    // Compiled when it is first called.
    const first = (...given) => {
      const made = new Function("h", "F", "G", "T", "M", module.sources[i])(own, callable, state.globals, state.tables, state.memories[0]);
      callable[index] = made;
      state.functions[index].run = made;
      return made(...given);
    };
    callable[index] = first;
    state.functions[index] = new Code(module.types[type], first, index);
  });
  for (const { type, mutable, start } of module.globals) state.globals.push({ type, mutable, v: start(state) });
  const exports = Object.create(null);
  for (const { name, kind, index } of module.exports) exports[name] = exportOf(state, kind, index);
  Object.freeze(exports);
  module.elements.forEach(({ table, offset, items }, i) => {
    if (offset === undefined) return;
    own.tableInit(state.tables[table], i, offset(state), 0, items.length);
    elements[i] = [];
  });
  module.data.forEach(({ offset, bytes }, i) => {
    if (offset === undefined) return;
    const at = offset(state) >>> 0;
    const memory = state.memories[0].bytes;
    if (at + bytes.length > memory.length) {
      const sizes = `(offset ${at} + size ${bytes.length} > memory_size ${memory.length} bytes)`;
      throw new RuntimeError(`WebAssembly.Instance(): data segment ${i} is out of bounds ${sizes}`);
    }
    memory.set(bytes, at);
    segments[i] = new Uint8Array(0);
  });
  if (module.start !== undefined) state.functions[module.start].exported()();
  return exports;
}

// Objects of programs for what instances have, the same for the same.
const shown = new WeakMap();
function exportOf(state, kind, index) {
  if (kind === "function") return state.functions[index].exported();
  const [list, Class] = { table: [state.tables, Table], memory: [state.memories, Memory], global: [state.globals, Global] }[kind];
  const known = list[index][secret];
  if (!shown.has(list[index])) shown.set(list[index], known ?? new Class({ [secret]: list[index] }));
  return shown.get(list[index]);
}

class Instance {
  constructor(module, imports) {
    if (!(module instanceof Module)) throw new TypeError("WebAssembly.Instance(): Argument 0 must be a WebAssembly.Module");
    hide(this, instantiate(inner(module), imports));
  }
  get exports() {
    return inner(this);
  }
}

const moduleOf = (source, what) => {
  const module = Object.create(Module.prototype);
  hide(module, load(source, what));
  return module;
};
const bytesFrom = async (response) => (await response).arrayBuffer();

const WebAssembly = {
  Module, Instance, Memory, Table, Global, CompileError, LinkError, RuntimeError,
  validate(source) {
    try {
      load(source, "validate()");
      return true;
    } catch (problem) {
      if (problem instanceof CompileError) return false;
      throw problem;
    }
  },
  async compile(source) {
    return moduleOf(source, "compile()");
  },
  async instantiate(source, imports) {
    if (source instanceof Module) return new Instance(source, imports);
    const module = moduleOf(source, "instantiate()");
    return { module, instance: new Instance(module, imports) };
  },
  compileStreaming: async (response) => WebAssembly.compile(await bytesFrom(response)),
  instantiateStreaming: async (response, imports) => WebAssembly.instantiate(await bytesFrom(response), imports),
};
Object.defineProperty(WebAssembly, Symbol.toStringTag, { value: "WebAssembly", configurable: true });
for (const Class of [Module, Instance, Memory, Table, Global]) {
  Object.defineProperty(Class.prototype, Symbol.toStringTag, { value: `WebAssembly.${Class.name}`, configurable: true });
}

module.exports = { WebAssembly };
