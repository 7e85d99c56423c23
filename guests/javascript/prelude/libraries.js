// What is made when something first needs it: bundled libraries, globals, Node's own modules.
(function (host, kit) {
  "use strict";

  const { define } = kit;

  // Exports of bundled libraries that are in use.
  const loaded = new Map();

  // The exports of a bundled library, evaluated when it is first asked for. One that throws, because the stack is
  // nearly full or its cell must stop, is evaluated again the next time.
  kit.library = (name) => {
    let exports = loaded.get(name);
    if (exports === undefined) {
      const module = { exports: {} };
      host.library(name)(module, module.exports, kit.requireBuiltin, host, kit);
      exports = module.exports;
      loaded.set(name, exports);
    }
    return exports;
  };

  // Defines properties that are made when one of them is first read. `make` returns an object with a value for each.
  kit.lazy = (target, names, make) => {
    const getters = new Map();
    const fill = () => {
      const values = make();
      for (const [name, getter] of getters) {
        // What has been replaced in the meantime stays.
        if (Object.getOwnPropertyDescriptor(target, name)?.get === getter) define(target, name, values[name]);
      }
      return values;
    };
    for (const name of names) {
      const property = {
        get: () => fill()[name],
        set: (value) => void define(target, name, value),
        enumerable: false,
        configurable: true,
      };
      getters.set(name, property.get);
      Object.defineProperty(target, name, property);
    }
  };

  // ---- Node's own modules

  // By name without `node:`.
  const builtins = new Map();

  // Registers a module of Node's. `make` returns its exports and is called when they are first needed; with
  // `schemeOnly` the name is known with `node:` in front only; with `isHidden` it is in no list.
  kit.builtin = (name, make, { schemeOnly = false, isHidden = false } = {}) => {
    builtins.set(name, { make, schemeOnly, isHidden, exports: undefined, made: false });
  };

  // What `import` sees of a module: those of `process` that are made when they are first read, too.
  kit.namesOf = (exports) => (exports === globalThis.process ? Object.getOwnPropertyNames(exports) : Object.keys(exports));

  kit.builtinNames = () => [...builtins].filter(([, { isHidden }]) => !isHidden).map(([name, { schemeOnly }]) => (schemeOnly ? `node:${name}` : name));

  // Is this how a module of Node's is asked for?
  kit.isBuiltin = (specifier) => {
    const withScheme = specifier.startsWith("node:");
    const builtin = builtins.get(withScheme ? specifier.slice(5) : specifier);
    return builtin !== undefined && (withScheme || !builtin.schemeOnly);
  };

  kit.requireBuiltin = (specifier) => {
    const builtin = builtins.get(specifier.startsWith("node:") ? specifier.slice(5) : specifier);
    if (builtin === undefined) throw kit.unknownBuiltin(specifier);
    if (!builtin.made) {
      builtin.exports = builtin.make();
      builtin.made = true;
    }
    return builtin.exports;
  };

  const coded = (code, message) => Object.defineProperty(new Error(message), "code", { value: code, writable: true, enumerable: true, configurable: true });

  kit.unknownBuiltin = (specifier) => coded("ERR_UNKNOWN_BUILTIN_MODULE", `No such built-in module: ${specifier}`);

  // As Node words that an argument is of the wrong type.
  kit.invalidArgument = (name, type, value) => new (kit.platform("codes").ERR_INVALID_ARG_TYPE)(name, type, value);

  // What Node offers and a sandbox does not: processes, sockets, threads and the like. `why` says what to use instead.
  kit.unsupported = (what, why = "it has no processes, sockets or threads") =>
    coded("ERR_UNSUPPORTED_IN_SANDBOX", `'${what}' is not available in this sandbox: ${why}`);
})
