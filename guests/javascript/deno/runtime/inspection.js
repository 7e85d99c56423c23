// Lets Node's `inspect` show what Deno's would: both ask objects, under names of their own.
const DENO = Symbol.for("Deno.privateCustomInspect");
const NODE = Symbol.for("nodejs.util.inspect.custom");

function showAsNode(prototype) {
  // Errors are shown as errors are.
  if (Error.prototype.isPrototypeOf(prototype)) return;
  if (!Object.hasOwn(prototype, DENO) || Object.hasOwn(prototype, NODE)) return;
  const value = function (_depth, options, inspect) {
    return this[DENO](inspect, options);
  };
  Object.defineProperty(prototype, NODE, { value, writable: true, configurable: true });
}

module.exports = { showAsNode };
