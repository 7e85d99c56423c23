// In place of Deno's message ports, which reach between threads: `structuredClone`, and marks that it heeds.
const { core } = require("deno/runtime/bootstrap.js");
const { DOMException } = require("deno/deno_web/01_dom_exception.js");

const uncloneable = new WeakSet();

const markAsUncloneable = (value) => {
  if ((typeof value === "object" && value !== null) || typeof value === "function") uncloneable.add(value);
};

// Prototypes of objects that stand for something which a copy would not have.
const markNotSerializable = (prototype) => void uncloneable.add(prototype);

function isUncloneable(value) {
  for (let at = value; at !== null; at = Object.getPrototypeOf(at)) if (uncloneable.has(at)) return true;
  return false;
}

const ERRORS = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
const LIMIT = 1e6; // objects in one value

const refuse = (what) => {
  throw new DOMException(`${what} could not be cloned.`, "DataCloneError");
};

const describe = (value) => {
  if (typeof value === "symbol") return String(value);
  if (typeof value === "function") return Function.prototype.toString.call(value).slice(0, 100);
  return `#<${value.constructor?.name ?? "Object"}>`;
};

// Copies what one object holds; objects on the way are put on a list, so that depth is no limit.
class Cloner {
  #copies = new Map();
  #open = [];
  #transferred = new Set();

  run(value, transfer) {
    for (const [index, buffer] of transfer.entries()) this.#claim(buffer, index);
    const copy = this.#copy(value);
    for (let fill = this.#open.pop(); fill !== undefined; fill = this.#open.pop()) fill();
    // Nothing can fail any more: now the originals are emptied.
    for (const buffer of this.#transferred) buffer.transfer();
    return copy;
  }

  // A buffer that moves is copied like any other, and emptied when all else is done.
  #claim(buffer, index) {
    if (!core.isArrayBuffer(buffer)) {
      throw new DOMException(`Value at index ${index} does not contain a transferable type`, "DataCloneError");
    }
    if (this.#transferred.has(buffer)) throw new DOMException(`ArrayBuffer at index ${index} is a duplicate of an earlier ArrayBuffer`, "DataCloneError");
    this.#copy(buffer);
    this.#transferred.add(buffer);
  }

  #copy(value) {
    if (typeof value === "function" || typeof value === "symbol") return refuse(describe(value));
    if (typeof value !== "object" || value === null) return value;
    const known = this.#copies.get(value);
    if (known !== undefined) return known;
    if (this.#copies.size >= LIMIT) throw new RangeError(`structuredClone: more than ${LIMIT} objects`);
    if (isUncloneable(value)) throw new DOMException("Cannot clone object of unsupported type.", "DataCloneError");
    const copy = this.#make(value);
    this.#copies.set(value, copy);
    return copy;
  }

  // An empty copy of an object; what it holds is filled in later.
  #make(value) {
    const kind = core.classOf(value);
    switch (kind) {
      case "Boolean": case "Number": case "String": case "BigInt":
        return Object(value.valueOf());
      case "Date": return new Date(Date.prototype.getTime.call(value));
      case "RegExp": return new RegExp(value.source, value.flags);
      case "ArrayBuffer": return this.#buffer(value);
      case "DataView": return this.#view(value, DataView, value.byteLength);
      case "Map": return this.#map(value);
      case "Set": return this.#set(value);
      case "Error": return this.#error(value);
      case "Array": return this.#fill(value, new Array(value.length));
      case "Object": case "Arguments": return this.#object(value);
    }
    if (core.isTypedArray(value)) return this.#view(value, globalThis[kind], value.length);
    return refuse(describe(value));
  }

  #buffer(value) {
    if (value.detached) throw new DOMException("An ArrayBuffer is detached and could not be cloned.", "DataCloneError");
    if (!value.resizable) return value.slice(0);
    const copy = new ArrayBuffer(value.byteLength, { maxByteLength: value.maxByteLength });
    new Uint8Array(copy).set(new Uint8Array(value));
    return copy;
  }

  #view(value, View, length) {
    return new View(this.#copy(value.buffer), value.byteOffset, length);
  }

  #map(value) {
    const copy = new Map();
    const entries = [...Map.prototype.entries.call(value)];
    this.#open.push(() => entries.forEach(([key, item]) => copy.set(this.#copy(key), this.#copy(item))));
    return copy;
  }

  #set(value) {
    const copy = new Set();
    const items = [...Set.prototype.values.call(value)];
    this.#open.push(() => items.forEach((item) => copy.add(this.#copy(item))));
    return copy;
  }

  #error(value) {
    const Class = ERRORS[value.name] ?? Error;
    const message = Object.getOwnPropertyDescriptor(value, "message");
    const made = Reflect.construct(Error, [], Class);
    if (message !== undefined && "value" in message) hidden(made, "message", String(message.value));
    hidden(made, "stack", String(value.stack));
    if (Object.hasOwn(value, "cause")) this.#open.push(() => hidden(made, "cause", this.#copy(value.cause)));
    return made;
  }

  #object(value) {
    if (core.isModuleNamespaceObject(value)) return refuse(describe(value));
    return this.#fill(value, {});
  }

  #fill(value, copy) {
    this.#open.push(() => {
      for (const key of Object.keys(value)) {
        Object.defineProperty(copy, key, { value: this.#copy(value[key]), writable: true, enumerable: true, configurable: true });
      }
    });
    return copy;
  }
}

const hidden = (target, name, value) =>
  Object.defineProperty(target, name, { value, writable: true, enumerable: false, configurable: true });

function structuredClone(...values) {
  if (values.length === 0) {
    const error = new TypeError('The "value" argument must be specified');
    error.code = "ERR_MISSING_ARGS";
    throw error;
  }
  const [value, options] = values;
  return new Cloner().run(value, [...(options?.transfer ?? [])]);
}

module.exports = { structuredClone, markNotSerializable, markAsUncloneable, isUncloneable };
