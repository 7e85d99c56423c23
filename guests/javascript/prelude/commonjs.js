// CommonJS: `require`, `module`, and the names that `import` sees of such modules.
(function (host, kit) {
  "use strict";

  const { folderOf } = kit.paths;
  const NAMES_MAX = 5000;
  const REEXPORTS_MAX = 200;

  class Module {
    constructor(id = "", parent = undefined) {
      this.id = id;
      this.path = folderOf(id);
      this.exports = {};
      this.filename = null;
      this.loaded = false;
      this.children = [];
      this.paths = [];
      kit.define(this, "parent", parent);
      parent?.children.push(this);
    }
    require(specifier) {
      return requireFrom(specifier, this);
    }
  }

  // What `require.cache` shows: a program may take modules out, and put its own in.
  const loaded = { __proto__: null };
  let main;
  // The file that a process runs.
  let mainPath;
  kit.setMain = (path) => void (mainPath = path);

  function moduleOf(path, parent) {
    const module = new Module(path, parent);
    module.filename = path;
    module.paths = kit.packageFolders(folderOf(path));
    return module;
  }

  kit.wasRemoved = (record) => record.module !== undefined && loaded[record.path] !== record.module;

  kit.dropCommonJs = (record) => {
    if (record.module !== undefined && loaded[record.path] === record.module) delete loaded[record.path];
  };

  // The exports of a CommonJS or JSON record, which is run unless it has been, or is being.
  kit.runCommonJs = (record, parent) => {
    if (record.module !== undefined) return record.module.exports;
    const module = moduleOf(record.path, parent);
    kit.define(module, "record", record);
    record.module = module;
    loaded[record.path] = module;
    if (record.path === mainPath) [main, process.mainModule] = [module, module];
    const { body } = record;
    record.body = record.source = undefined;
    try {
      if (record.kind === "json") module.exports = record.value;
      else host.callCommonJs(body, module.exports, [module.exports, requireOf(module), module, record.path, module.path]);
    } catch (error) {
      kit.invalidateModule(record);
      throw error;
    }
    module.loaded = true;
    return module.exports;
  };

  function explain(error, module) {
    if (error?.code !== "MODULE_NOT_FOUND" || error.requireStack !== undefined) return error;
    const stack = [];
    for (let at = module; at !== undefined && stack.length < 20; at = at.parent) stack.push(at.filename ?? "<cell>");
    error.message += `\nRequire stack:\n- ${stack.join("\n- ")}`;
    error.requireStack = stack;
    return error;
  }

  function resolveFrom(specifier, module) {
    if (typeof specifier !== "string") {
      throw kit.invalidArgument("id", "string", specifier);
    }
    if (specifier === "") throw kit.coded("ERR_INVALID_ARG_VALUE", "The argument 'id' must be a non-empty string. Received ''", TypeError);
    try {
      return kit.resolveRequire(specifier, module.filename ?? `${host.workingDirectory()}/<cell>`);
    } catch (error) {
      throw explain(error, module);
    }
  }

  function requireFrom(specifier, module) {
    if (module === main) kit.forgetLookups();
    const target = resolveFrom(specifier, module);
    if (target.builtin !== undefined) return kit.requireBuiltin(target.builtin);
    const { path } = target;
    const own = loaded[path];
    if (own !== undefined && !(own instanceof Module)) return own.exports;
    const { record, exports } = kit.requireFile(path, specifier, module === main);
    module.record?.deps.add(record);
    if (record.kind === "module") return exports;
    const result = kit.runCommonJs(record, module);
    if (module !== main && !module.children.includes(record.module)) module.children.push(record.module);
    return result;
  }

  function requireOf(module) {
    const require = (specifier) => requireFrom(specifier, module);
    kit.define(require, "name", "require");
    require.resolve = (specifier) => {
      const target = resolveFrom(specifier, module);
      return target.builtin ?? target.path;
    };
    require.resolve.paths = (specifier) => (kit.isBuiltin(specifier) ? null : kit.packageFolders(folderOf(module.filename ?? `${host.workingDirectory()}/<cell>`)));
    require.main = main;
    require.extensions = { __proto__: null, ".js": undefined, ".json": undefined, ".node": undefined };
    require.cache = loaded;
    return require;
  }

  // ---- Names for `import`

  // The names that the source of a module exports, as Node finds them: by reading it, not by running it.
  kit.exportedNames = (record) => {
    const names = new Set();
    // What was run by `require` has let go of its source.
    const queue = [[record.path, record.source ?? kit.decode(host.readFile(record.path))]];
    const seen = new Set([record.path]);
    for (const [path, source] of queue) {
      let found;
      try {
        found = kit.library("cjs-lexer").parse(source);
      } catch {
        continue; // what the lexer cannot read has no names, and perhaps an error when it is run
      }
      for (const name of found.exports) if (names.size < NAMES_MAX && name !== "default" && name.isWellFormed()) names.add(name);
      for (const specifier of found.reexports) addReexport(specifier, path, seen, queue, names);
    }
    return [...names];
  };

  function addReexport(specifier, from, seen, queue, names) {
    try {
      const target = kit.resolveRequire(specifier, from);
      if (target.builtin !== undefined) {
        for (const name of Object.keys(kit.requireBuiltin(target.builtin))) names.add(name);
      } else if (/\.c?js$/.test(target.path) && !seen.has(target.path) && seen.size < REEXPORTS_MAX) {
        seen.add(target.path);
        queue.push([target.path, kit.decode(host.readFile(target.path))]);
      }
    } catch {
      // what is not there is an error when the module is run
    }
  }

  // ---- What cells see

  const forCells = () => {
    if (main === undefined) {
      main = new Module("<cell>");
      main.path = ".";
      main.paths = kit.packageFolders(host.workingDirectory());
      process.mainModule ??= main;
    }
    return { require: requireOf(main), module: main, exports: main.exports, __filename: kit.cellFile(), __dirname: host.workingDirectory() };
  };
  kit.lazy(globalThis, ["require", "module", "exports", "__filename", "__dirname"], forCells);

  kit.builtin("module", () => {
    forCells();
    const isBuiltin = (name) => kit.isBuiltin(String(name));
    const createRequire = (from) => {
      const path = String(from?.href ?? from).replace(/^file:\/\//, "");
      if (!path.startsWith("/")) {
        throw kit.coded("ERR_INVALID_ARG_VALUE", `The argument 'filename' must be a file URL object, file URL string, or absolute path string. Received ${kit.inspect(from)}`, TypeError);
      }
      return requireOf(moduleOf(decodeURIComponent(path), undefined));
    };
    const register = () => {
      throw kit.unsupported("module.register", "modules are loaded in one way");
    };
    return Object.assign(Module, { Module, findSourceMap: () => undefined, register, syncBuiltinESMExports() {}, builtinModules: kit.builtinNames(), createRequire, isBuiltin, _cache: loaded });
  });
})
