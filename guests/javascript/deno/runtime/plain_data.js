// What calls carry is JSON: values that it cannot hold are refused in words, so that none arrives as something else.
const { isArray } = Array;
const { isRawJSON } = JSON;
const { getPrototypeOf, getOwnPropertySymbols, prototype: { toString, propertyIsEnumerable } } = Object;

// Objects whose contents are not their properties.
const OPAQUE = [Promise, Error, RegExp, ArrayBuffer, SharedArrayBuffer, WeakMap, WeakSet, WeakRef, DataView];
const isOpaque = (value) => ArrayBuffer.isView(value) || OPAQUE.some((Class) => value instanceof Class) || kit.isError(value);
const HINTS = { Promise: "; await it first", Date: "; it is none that a calendar has", BigInt: "; Number(…) or String(…) makes one that is" };

const classOf = (value) => {
  const tag = toString.call(value).slice(8, -1);
  if (tag !== "Object") return tag;
  return value.constructor?.name || "an object";
};

function refuse(name, hint = HINTS[name] ?? "") {
  throw new TypeError(`${name} is not JSON${hint}`);
}

// A plain object's members; those whose value is undefined are as if they were not there.
function members(value, around) {
  if (getOwnPropertySymbols(value).some((key) => propertyIsEnumerable.call(value, key))) refuse("a symbol as a name");
  const made = {};
  for (const key of Object.keys(value)) {
    if (value[key] !== undefined) Object.defineProperty(made, key, { value: plain(value[key], around, key), enumerable: true, writable: true, configurable: true });
  }
  return made;
}

// A map is an object by its keys, where these are texts and such, as a dictionary of Python.
function mapped(map, around) {
  const made = {};
  for (const [key, value] of map) {
    if (key !== null && !["string", "number", "boolean"].includes(typeof key)) throw new TypeError(`keys must be texts, numbers, booleans or null, not ${classOf(key)}`);
    const name = String(key);
    if (Object.hasOwn(made, name)) throw new TypeError(`the key ${JSON.stringify(name)} stands twice in a Map`);
    Object.defineProperty(made, name, { value: plain(value, around, name), enumerable: true, writable: true, configurable: true });
  }
  return made;
}

function contents(value, around, key) {
  if (isRawJSON(value)) return value;
  // What says itself what JSON it is, such as a Date or a URL.
  if (typeof value.toJSON === "function") {
    if (value instanceof Date && Number.isNaN(value.getTime())) refuse("Date");
    return plain(value.toJSON(key), around, key);
  }
  if (value instanceof Number || value instanceof String || value instanceof Boolean) return plain(value.valueOf(), around, key);
  if (isArray(value) || value instanceof Set || toString.call(value) === "[object Arguments]") return Array.from(value, (item, i) => plain(item, around, String(i)));
  if (value instanceof Map) return mapped(value, around);
  if (isOpaque(value)) refuse(classOf(value));
  const kind = getPrototypeOf(value);
  const isPlain = kind === null || getPrototypeOf(kind) === null;
  // An instance of a class is what its own properties are; one without any keeps its contents elsewhere.
  if (!isPlain && Object.keys(value).length === 0) refuse(classOf(value));
  return members(value, around);
}

function plain(value, around, key) {
  switch (typeof value) {
    case "string": case "boolean": return value;
    case "number":
      if (!Number.isFinite(value)) throw new TypeError(`Out of range float values are not JSON compliant: ${value}`);
      return value;
    case "undefined": return refuse("undefined");
    case "bigint": return typeof value.toJSON === "function" ? plain(value.toJSON(key), around, key) : refuse("BigInt");
    case "symbol": return refuse("a symbol");
    case "function": return refuse("a function");
  }
  if (value === null) return null;
  if (around.includes(value)) throw new TypeError("Circular reference detected");
  return contents(value, [...around, value], key);
}

// The same value of plain data only; or an error that says which part is none. `what` are the arguments of whom.
function carried(what, value) {
  try {
    return plain(value, [], "");
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new TypeError(`${what} must be plain data (JSON): ${error.message}`);
  }
}

module.exports = { carried };
