// In place of Deno's console: what its classes use of it to show themselves.

// An object of the same class that has the given properties as its own, and no way of its own to be shown.
function createFilteredInspectProxy({ object, keys }) {
  const shown = Object.create(Object.getPrototypeOf(object), {
    [Symbol.for("nodejs.util.inspect.custom")]: { value: undefined },
  });
  for (const key of keys) Object.defineProperty(shown, key, { value: object[key], enumerable: true });
  return shown;
}

module.exports = { createFilteredInspectProxy };
