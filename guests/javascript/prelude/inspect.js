// Values as text, as Node shows them: what `console.log` and a cell's last expression print. The library `inspect` does
// the work; here is what it asks of the engine.
(function (host, kit) {
  "use strict";

  const { getOwnPropertyDescriptor, getPrototypeOf } = Object;
  const { ownKeys } = Reflect;

  kit.isError = Error.isError;

  // Name of the nearest constructor on the prototype chain; null for an object without one.
  kit.constructorName = (value) => {
    for (let object = value; object !== null; object = getPrototypeOf(object)) {
      const own = getOwnPropertyDescriptor(object, "constructor");
      if (own !== undefined && typeof own.value === "function" && own.value.name !== "") return String(own.value.name);
    }
    return null;
  };

  // ---- Asked by the library

  kit.promiseDetails = (promise, pending, rejected) => {
    const [state, result] = host.promiseState(promise) ?? ["pending"];
    return [state === "pending" ? pending : state === "rejected" ? rejected : state, result];
  };

  // Proxies of the prelude's, which are shown as what they stand for.
  const transparent = new WeakSet();
  kit.transparent = (proxy) => {
    transparent.add(proxy);
    return proxy;
  };

  kit.proxyDetails = (value, both = true) => {
    const details = transparent.has(value) ? undefined : host.proxyDetails(value);
    return details === undefined || both ? details : details[0];
  };

  kit.previewEntries = (value, isIterator) => {
    const [entries, arePairs] = host.iteratorEntries(value) ?? [[], false];
    return isIterator ? [entries, arePairs] : entries;
  };

  const ONLY_ENUMERABLE = 2;
  const isIndex = (key) => typeof key === "string" && /^(0|[1-9]\d*)$/.test(key) && Number(key) < 2 ** 32 - 1;

  kit.namedKeys = (value, filter) => {
    const all = filter !== ONLY_ENUMERABLE;
    const keys = host.namedKeys(value, all);
    if (keys !== undefined) return keys;
    return ownKeys(value).filter((key) => !isIndex(key) && (all || getOwnPropertyDescriptor(value, key)?.enumerable));
  };

  // ---- Asked by the prelude

  // Text of a value; strings are quoted. Options are those of util.inspect.
  kit.inspect = (value, ...options) => kit.library("inspect").inspect(value, ...options);

  // What `console.log` prints for its arguments: %-sequences of the first, the others after blanks. Most lines are of text
  // and numbers, which the library takes five times as long to put together.
  kit.format = (values) => {
    let text = "";
    for (let i = 0; i < values.length; i++) {
      const value = values[i];
      const isPlain = typeof value === "string" ? i > 0 || values.length === 1 || !value.includes("%") : typeof value === "number" && value !== 0;
      if (!isPlain) return kit.library("inspect").format(...values);
      text += i === 0 ? value : " " + value;
    }
    return text;
  };
})
