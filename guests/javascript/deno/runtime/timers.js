// node:timers and node:timers/promises.
const { AbortError } = require("deno/deno_node/internal/errors.ts");
const { validateAbortSignal } = require("deno/deno_node/internal/validators.js");
const { kEmptyObject, promisify } = require("deno/deno_node/internal/util.js");

const { clearImmediate, clearInterval, clearTimeout, setImmediate, setInterval, setTimeout } = globalThis;

// A promise that a timer fulfils, unless a signal rejects it first.
function wait(start, stop, value, { signal } = kEmptyObject) {
  if (signal !== undefined) validateAbortSignal(signal, "options.signal");
  if (signal?.aborted) return Promise.reject(new AbortError(undefined, { cause: signal.reason }));
  return new Promise((resolve, reject) => {
    const abort = () => {
      stop(timer);
      reject(new AbortError(undefined, { cause: signal.reason }));
    };
    const timer = start(() => {
      signal?.removeEventListener("abort", abort);
      resolve(value);
    });
    signal?.addEventListener("abort", abort, { once: true });
  });
}

async function* ticks(delay, value, options = kEmptyObject) {
  for (;;) yield await promises.setTimeout(delay, value, options);
}

const promises = {
  setTimeout: (delay, value, options) => wait((done) => setTimeout(done, delay), clearTimeout, value, options),
  setImmediate: (value, options) => wait(setImmediate, clearImmediate, value, options),
  setInterval: ticks,
  scheduler: {
    wait: (delay, options) => promises.setTimeout(delay, undefined, options),
    yield: () => promises.setImmediate(),
  },
};
setTimeout[promisify.custom] = promises.setTimeout;
setImmediate[promisify.custom] = promises.setImmediate;

module.exports = { clearImmediate, clearInterval, clearTimeout, promises, setImmediate, setInterval, setTimeout };
