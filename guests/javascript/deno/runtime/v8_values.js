// `serialize` and `deserialize` of node:v8. The bytes are this guest's own: a text in JSON that lists all values, each of which
// names those in it by their numbers.
const { Buffer } = require("deno/deno_node/internal/buffer.js");

const HEAD = Buffer.from([0xff, 0x0f]);
const ARRAYS = [
  Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array,
];
const ERRORS = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

function serialize(value) {
  const nodes = [];
  const numbers = new Map();
  const add = (one) => {
    if (numbers.has(one)) return numbers.get(one);
    const number = nodes.push(undefined) - 1;
    if (typeof one === "object" && one !== null) numbers.set(one, number);
    nodes[number] = describe(one);
    return number;
  };
  const entries = (object) => Object.entries(object).map(([key, each]) => [key, add(each)]);
  const describe = (one) => {
    switch (typeof one) {
      case "undefined": return ["u"];
      case "bigint": return ["b", String(one)];
      case "number": return Number.isFinite(one) && !Object.is(one, -0) ? ["v", one] : ["n", Object.is(one, -0) ? "-0" : String(one)];
      case "string": case "boolean": return ["v", one];
      case "object": break;
      default: throw new Error(`${typeof one === "symbol" ? String(one) : kit.inspect(one)} could not be cloned.`);
    }
    if (one === null) return ["v", null];
    if (Array.isArray(one)) return ["a", one.length, entries(one)];
    if (one instanceof Date) return ["d", add(one.getTime())];
    if (one instanceof RegExp) return ["r", one.source, one.flags];
    if (one instanceof Map) return ["m", [...one].map(([key, each]) => [add(key), add(each)])];
    if (one instanceof Set) return ["s", [...one].map(add)];
    if (one instanceof ArrayBuffer) return ["x", Buffer.from(one).toString("base64")];
    const Class = ARRAYS.findIndex((each) => one instanceof each);
    if (Class >= 0) return ["t", Class, Buffer.from(one.buffer, one.byteOffset, one.byteLength).toString("base64"), Buffer.isBuffer(one)];
    if (one instanceof Error) return ["e", Object.hasOwn(ERRORS, one.name) ? one.name : "Error", one.message, add(one.stack)];
    if (one instanceof Number || one instanceof String || one instanceof Boolean) return ["w", add(one.valueOf())];
    return ["o", entries(one)];
  };
  add(value);
  return Buffer.concat([HEAD, Buffer.from(JSON.stringify(nodes))]);
}

function deserialize(data) {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  if (!bytes.subarray(0, HEAD.length).equals(HEAD)) throw new Error("Unable to deserialize cloned data.");
  const nodes = JSON.parse(bytes.subarray(HEAD.length).toString());
  const made = new Map();
  const plain = (text) => {
    const found = Buffer.from(text, "base64");
    return found.buffer.slice(found.byteOffset, found.byteOffset + found.length);
  };
  const make = (number) => {
    if (made.has(number)) return made.get(number);
    const [kind, a, b, c] = nodes[number];
    const keep = (value) => (made.set(number, value), value);
    switch (kind) {
      case "u": return undefined;
      case "b": return BigInt(a);
      case "n": return Number(a);
      case "v": return a;
      case "d": return keep(new Date(make(a)));
      case "r": return keep(new RegExp(a, b));
      case "x": return keep(plain(a));
      case "t": return keep(c ? Buffer.from(plain(b)) : new ARRAYS[a](plain(b)));
      case "w": return keep(Object(make(a)));
      case "e": {
        const error = keep(new ERRORS[a](b));
        Object.defineProperty(error, "stack", { value: make(c), writable: true, configurable: true });
        return error;
      }
      case "m": {
        const map = keep(new Map());
        for (const [key, each] of a) map.set(make(key), make(each));
        return map;
      }
      case "s": {
        const set = keep(new Set());
        for (const each of a) set.add(make(each));
        return set;
      }
      default: {
        const object = keep(kind === "a" ? Array(a) : {});
        for (const [key, each] of kind === "a" ? b : a) object[key] = make(each);
        return object;
      }
    }
  };
  return make(0);
}

module.exports = { deserialize, serialize };
