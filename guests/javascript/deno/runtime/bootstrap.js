// What Deno's own JavaScript expects of its runtime: `core`, `primordials` and `internals`.
//
// The files of Deno's crates ask the runtime for little: which class a value has, text and bytes, timers, clocks. All
// of it is answered here and in `operations.js`; what concerns threads, processes and sockets is absent.
const { primordials } = require("deno/deno_core/00_primordials.js");
const operations = require("deno/runtime/operations.js");
const { classOf } = operations;

const { queueMicrotask } = globalThis;
primordials.setQueueMicrotask(queueMicrotask);

const TYPED_ARRAY = /^(?:Uint8Clamped|(?:Ui|I)nt(?:8|16|32)|Big(?:Ui|I)nt64|Float(?:16|32|64))Array$/;
const BOXES = ["Number", "String", "Boolean", "Symbol", "BigInt"];

const is = (...names) => (value) => typeof value === "object" && value !== null && names.includes(classOf(value));
const property = (rest) => ({ __proto__: null, configurable: true, ...rest });
const nothing = () => {};

const types = {
  isAnyArrayBuffer: is("ArrayBuffer", "SharedArrayBuffer"),
  isArgumentsObject: is("Arguments"),
  isArrayBuffer: is("ArrayBuffer"),
  isArrayBufferView: ArrayBuffer.isView,
  isAsyncFunction: (value) => typeof value === "function" && /^Async/.test(classOf(value)),
  isBigIntObject: is("BigInt"),
  isBooleanObject: is("Boolean"),
  isBoxedPrimitive: is(...BOXES),
  isDataView: is("DataView"),
  isDate: is("Date"),
  isExternal: () => false,
  isGeneratorFunction: (value) => typeof value === "function" && /Generator/.test(classOf(value)),
  isGeneratorObject: is("Generator", "AsyncGenerator"),
  isMap: is("Map"),
  isMapIterator: is("Map Iterator"),
  isModuleNamespaceObject: (value) => operations.isModuleNamespace(value),
  isNativeError: is("Error"),
  isNumberObject: is("Number"),
  isPromise: is("Promise"),
  isProxy: (value) => (typeof value === "object" || typeof value === "function") && value !== null && classOf(value) === "Proxy",
  isRegExp: is("RegExp"),
  isSet: is("Set"),
  isSetIterator: is("Set Iterator"),
  isSharedArrayBuffer: is("SharedArrayBuffer"),
  isStringObject: is("String"),
  isSymbolObject: is("Symbol"),
  isTypedArray: (value) => typeof value === "object" && value !== null && TYPED_ARRAY.test(classOf(value)),
  isWeakMap: is("WeakMap"),
  isWeakSet: is("WeakSet"),
};

const kNoAsyncContextRestore = Symbol("no context to restore");

// What `AsyncLocalStorage` keeps. A context maps variables to their values and is never changed: code that enters
// another one leaves those alone that jobs and timers hold. The engine hands contexts on.
class AsyncVariable {
  enter(value) {
    const outer = operations.context();
    operations.setContext(new Map(outer).set(this, value));
    return outer;
  }
  enterIfActive(value) {
    return this.get() === undefined ? kNoAsyncContextRestore : this.enter(value);
  }
  get() {
    return operations.context()?.get(this);
  }
}

const core = {
  ...types,
  classOf,
  ops: operations.ops,
  build: { os: "linux", arch: "wasm32", vendor: "unknown", standalone: false },
  hostObjectBrand: Symbol("host object"),
  BadResourcePrototype: {},
  InterruptedPrototype: {},
  encode: (text) => operations.encode(text),
  decode: (bytes) => operations.decode(bytes, false, true),
  byteLength: (text) => operations.byteLength(text),
  propReadOnly: (value) => property({ value, enumerable: true, writable: false }),
  propWritable: (value) => property({ value, enumerable: true, writable: true }),
  propNonEnumerable: (value) => property({ value, enumerable: false, writable: true }),
  propGetterOnly: (get) => property({ get, enumerable: true }),
  propWritableLazyLoaded: (get, load) => property({ get: () => get(load()), enumerable: true }),
  AsyncVariable,
  kNoAsyncContextRestore,
  getAsyncContext: () => operations.context(),
  setAsyncContext: (context) => operations.setContext(context),
  setAsyncHooksEmit: nothing,
  registerCloneableResource: nothing,
  registerTransferableResource: nothing,
  // A timer of the platform's own, as of `AbortSignal.timeout`: it must not look at what cells made of `setTimeout`.
  createSystemTimer: (task, delay) => operations.startTimer(task, delay),
  cancelTimer: (id) => operations.stopTimer(id),
  refTimer: nothing,
  unrefTimer: nothing,
  // An error that a listener threw: ends the cell, as an error in a timer does.
  reportUnhandledException: (error) => void Promise.reject(error),
  destructureError: (error) => ({ exceptionMessage: String(error?.message ?? error), frames: [] }),
  print: nothing,
  tryClose: nothing,
};

module.exports = { core, primordials, internals: {} };
