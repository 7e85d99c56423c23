// Modules that are loaded: which there are, how a graph of them is loaded, when one is read again, when it goes.
//
// A request first makes everything and then says that it is there, because it may be stopped anywhere, and then no
// `finally` runs. What a stopped request left half made is found and removed by the next one.
(function (host, kit) {
  "use strict";

  const { folderOf, isInstalled } = kit.paths;
  const SOURCE_BYTES_MAX = 32 << 20;
  const MODULES_MAX = 50000;
  const TYPESCRIPT = /\.(?:[cm]?ts|[jt]sx)$/;
  const NO_EXPORT = /^The requested module '(.*)' does not provide an export named '(.*)'$/;

  // Everything loaded, by path and query, `data:` URL, or `node:` name. A record is
  //   kind: "module", "commonjs", "json", "builtin"    key, path: its own    stamp: what its file was like
  //   deps: records that it uses    handle: of its ES module, or of the one that stands for it in `import`
  //   module, body, source: of CommonJS    cell: the one that loaded it    lost: that cell was stopped
  //   gone: no longer here
  const cache = new Map();
  // Loaded, and not known to have been evaluated.
  const unsettled = new Set();
  // Handles of modules that no request will find any more.
  let retired = [];
  // Handles that the request at hand has made and not connected.
  let loading = [];
  // The file whose text an error record showed last.
  let shown = {};
  // Records whose files were looked at during the request at hand.
  let checked = new Set();

  // ---- What goes

  // Takes records, and all that use them, out of what is there.
  function invalidate(list) {
    const users = new Map();
    for (const record of cache.values()) {
      for (const dep of record.deps) {
        if (!users.has(dep)) users.set(dep, []);
        users.get(dep).push(record);
      }
    }
    const gone = new Set(list);
    for (const record of gone) for (const user of users.get(record) ?? []) gone.add(user);
    for (const record of gone) {
      if (cache.get(record.key) === record) cache.delete(record.key);
      kit.dropCommonJs(record);
      unsettled.delete(record);
      if (record.handle !== undefined && !record.gone) retired.push(record);
      record.gone = true;
    }
  }

  const isWaiting = (record) => record.handle !== undefined && host.moduleState(record.handle) === "waiting";

  // Has what is to be run of a record been run?
  function isDone(record) {
    if (record.kind === "commonjs" || record.kind === "json") return record.module === undefined ? record.handle === undefined : record.module.loaded;
    return record.handle === undefined || host.moduleState(record.handle) === "done";
  }

  // Removes what was loaded and did not come to its end, and frees what nobody can reach.
  function sweep() {
    const dead = [];
    let waits = false;
    for (const record of unsettled) {
      if (isDone(record)) unsettled.delete(record);
      else if (isWaiting(record) && !record.lost) waits = true;
      else dead.push(record);
    }
    if (dead.length > 0) invalidate(dead);
    if (waits || retired.some((record) => isWaiting(record) && !record.lost)) return;
    const free = retired.filter((record) => !isWaiting(record));
    if (free.length > 0 && host.freeModules(free.map((record) => record.handle))) retired = [];
  }

  // Starts a request.
  function begin() {
    kit.forgetLookups();
    checked = new Set();
    if (loading.length > 0) host.freeModules(loading);
    loading = [];
    shown = {};
    if (host.moduleDepth() === 0) sweep();
  }

  // A cell has ended before its time: what it was waiting for does not come any more.
  const forget = kit.forget;
  kit.forget = (cell) => {
    forget(cell);
    for (const record of unsettled) if (record.cell === cell) record.lost = true;
  };

  // Takes out those of a record and what it uses whose files have changed. Packages do not change.
  function refresh(root) {
    if (checked.has(root)) return;
    const stale = [];
    const seen = new Set([root]);
    for (const record of seen) {
      if (!record.local || checked.has(record)) continue;
      checked.add(record);
      if (host.stamp(record.path) !== record.stamp) stale.push(record);
      for (const dep of record.deps) seen.add(dep);
    }
    if (stale.length > 0) invalidate(stale);
  }

  // ---- Reading files

  function readSource(path, stamp) {
    if (stamp === undefined) throw kit.coded("ERR_MODULE_NOT_FOUND", `Cannot find module '${path}'`);
    if (Number.parseInt(stamp, 10) > SOURCE_BYTES_MAX) {
      throw new RangeError(`'${path}' is too large for a module: ${Number.parseInt(stamp, 10)} bytes of ${SOURCE_BYTES_MAX}`);
    }
    const text = kit.decode(host.readFile(path));
    return text.startsWith("\ufeff") ? text.slice(1) : text;
  }

  // "module", "commonjs", "json", or "either" when only the source can tell.
  function kindOf(path, required) {
    const name = path.slice(path.lastIndexOf("/") + 1);
    const extension = name.includes(".", 1) ? name.slice(name.lastIndexOf(".")) : "";
    if (extension === ".mjs" || extension === ".mts") return "module";
    if (extension === ".cjs" || extension === ".cts") return "commonjs";
    if (extension === ".json") return "json";
    const known = ["", ".js", ".ts", ".jsx", ".tsx"].includes(extension);
    if (extension === ".node" || extension === ".wasm" || (!known && !required)) {
      throw kit.coded("ERR_UNKNOWN_FILE_EXTENSION", `Unknown file extension "${extension}" for ${path}. Known are .js, .mjs, .cjs, .json, .ts, .mts, .cts, .jsx, .tsx`, TypeError);
    }
    const type = kit.packageOf(path)?.content.type;
    return type === "module" ? "module" : type === "commonjs" || !known ? "commonjs" : "either";
  }

  const lineOf = (error) => Number(/:(\d+):\d+\)?$/m.exec(error.stack ?? "")?.[1] ?? 0);

  function compileModule(record, source) {
    const handle = host.compileModule(source, record.key);
    loading.push(handle);
    record.kind = "module";
    record.handle = handle;
  }

  function compileCommonJs(record, source, path) {
    try {
      record.body = host.compileCommonJs(source, path);
    } catch (error) {
      throw kit.withSource(error, source, path);
    }
  }

  // Compiles what need not say whether it is CommonJS. When it is neither, the error of the better guess is thrown.
  function compileEither(record, source) {
    try {
      compileCommonJs(record, source, record.key);
      record.kind = "commonjs";
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      try {
        compileModule(record, source);
      } catch (other) {
        if (other instanceof SyntaxError && lineOf(other) < lineOf(error)) throw error;
        throw kit.withSource(other, source, record.key);
      }
    }
  }

  function parseJson(source, path) {
    try {
      return JSON.parse(source);
    } catch (error) {
      error.message = `${path}: ${error.message}`;
      throw error;
    }
  }

  // What a text of TypeScript or of a module has, and most JavaScript that fails to compile has not.
  const MAYBE_TYPED = /[:<!]|\b(?:abstract|as|export|declare|enum|interface|namespace|override|private|protected|public|readonly|satisfies|type)\b/;

  // Does the first place in the stack of a syntax error lie behind that of another?
  function isLater(error, other) {
    const [a, b] = [error, other].map(({ stack }) => /:(\d+):(\d+)\)?$/m.exec(stack)?.slice(1).map(Number));
    return a !== undefined && b !== undefined && (a[0] > b[0] || (a[0] === b[0] && a[1] > b[1]));
  }

  // A cell that is no JavaScript, for the reason `error`: the same without types and exports when it has some, else undefined.
  // Later cells see what a cell declares, exported or not.
  kit.strip = (source, file, error) => {
    if (!(error instanceof SyntaxError) || !MAYBE_TYPED.test(source)) return undefined;
    try {
      const script = kit.library("typescript").strip(source, file, { exports: false });
      return script === source ? undefined : script;
    } catch (failure) {
      // What is neither is wrong where it ceases to be the one or the other, whichever comes later.
      if (failure?.code === "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX" || isLater(failure, error)) throw failure;
      return undefined;
    }
  };

  // A record of a file, compiled and neither connected nor run.
  function readRecord(path, query, required) {
    const stamp = host.stamp(path);
    const kind = kindOf(path, required);
    const record = { kind, key: path + query, path, stamp, local: !isInstalled(path), deps: new Set(), cell: host.currentCell() };
    let source = readSource(path, stamp);
    if (kind === "json") {
      record.source = source;
      record.value = parseJson(source, path);
      record.key = path;
      return record;
    }
    if (source.startsWith("#!")) source = `//${source.slice(2)}`;
    if (TYPESCRIPT.test(path)) source = kit.library("typescript").strip(source, path);
    if (kind === "module") compileModule(record, source);
    else if (kind === "either") compileEither(record, source);
    else compileCommonJs(record, source, path);
    if (record.kind === "commonjs") {
      record.key = path;
      record.source = source;
    }
    return record;
  }

  function dataRecord(url) {
    const match = /^data:([^,;]*)(?:;[^,]*?)?(;base64)?,(.*)$/is.exec(url);
    const type = match?.[1].toLowerCase();
    if (match === null || !["text/javascript", "application/json"].includes(type)) {
      throw kit.coded("ERR_UNKNOWN_MODULE_FORMAT", `Unknown module format: ${type ?? "none"} for URL ${url.slice(0, 100)}`, RangeError);
    }
    const source = match[2] === undefined ? decodeURIComponent(match[3]) : kit.decode(Uint8Array.fromBase64(decodeURIComponent(match[3])));
    const record = { kind: "json", key: url, path: url, local: false, deps: new Set(), cell: host.currentCell() };
    if (type === "application/json") record.value = parseJson(source, "data:");
    else compileModule(record, source);
    return record;
  }

  // ---- What stands for something in `import` that is no ES module

  function namesOf(record) {
    if (record.kind === "json") return [];
    if (record.kind === "builtin") return kit.namesOf(kit.requireBuiltin(record.key)).filter((name) => name !== "default");
    return kit.exportedNames(record);
  }

  const valueOf = (exports, name) => {
    try {
      return exports?.[name];
    } catch {
      return undefined; // a getter that throws
    }
  };

  function handleOf(record) {
    if (record.handle === undefined) {
      const names = namesOf(record);
      record.handle = host.makeModule(record.key, ["default", ...names], () => {
        const exports = record.kind === "builtin" ? kit.requireBuiltin(record.key) : kit.runCommonJs(record);
        return [exports, ...names.map((name) => valueOf(exports, name))];
      });
    }
    return record.handle;
  }

  // ---- Loading graphs

  // The record that a target of `kit.resolveImport` has, from `fresh`, from what is there, or made and put in `fresh`.
  function recordOf(target, fresh) {
    const key = target.builtin !== undefined ? `node:${target.builtin.replace(/^node:/, "")}` : target.data ?? target.path + (target.query ?? "");
    const place = target.path ?? key;
    for (const known of [cache, fresh]) {
      for (const name of key === place ? [key] : [key, place]) {
        let record = known.get(name);
        if (record !== undefined && known === cache) {
          refresh(record);
          record = cache.get(name);
        }
        // A query makes another instance of an ES module alone.
        if (record !== undefined && (name === key || record.kind !== "module")) return record;
      }
    }
    if (fresh.size >= MODULES_MAX) throw new RangeError(`more than ${MODULES_MAX} modules are imported at once`);
    const record = target.builtin !== undefined ? { kind: "builtin", key, path: key, local: false, deps: new Set() }
      : target.data !== undefined ? dataRecord(target.data) : readRecord(target.path, target.query ?? "", false);
    fresh.set(record.key, record);
    return record;
  }

  function checkAttributes(record, attributes, specifier) {
    const type = attributes?.type;
    for (const name of Object.keys(attributes ?? {})) {
      if (name !== "type" || type !== "json") {
        throw kit.coded("ERR_IMPORT_ATTRIBUTE_UNSUPPORTED", `Import attribute "${name}" with value "${attributes[name]}" is not supported`, TypeError);
      }
    }
    if (type === "json" && record.kind !== "json") {
      throw kit.coded("ERR_IMPORT_ATTRIBUTE_TYPE_INCOMPATIBLE", `Module "${specifier}" is not of type "json"`, TypeError);
    }
  }

  function connect(record, fresh) {
    const requests = host.moduleRequests(record.handle);
    const handles = [];
    for (let i = 0; i < requests.length; i += 2) {
      const dep = recordOf(kit.resolveImport(requests[i], record.path), fresh);
      checkAttributes(dep, requests[i + 1], requests[i]);
      record.deps.add(dep);
      handles.push(dep);
    }
    return handles;
  }

  // Loads a record's whole graph. Returns what is there when all of it is.
  function loadGraph(root, fresh) {
    const links = [];
    // Records that are put in while this goes on are met as well.
    for (const record of fresh.values()) if (record.kind === "module") links.push([record, connect(record, fresh)]);
    for (const [record, deps] of links) host.connectModule(record.handle, deps.map(handleOf));
    handleOf(root);
    for (const record of fresh.values()) {
      cache.set(record.key, record);
      unsettled.add(record);
      checked.add(record);
    }
    loading = [];
    return root;
  }

  function load(target, attributes, specifier) {
    const fresh = new Map();
    const root = recordOf(target, fresh);
    checkAttributes(root, attributes, specifier);
    return loadGraph(root, fresh);
  }

  // The folder that cells import from, as the path of a file in it.
  const cellFile = () => `${host.workingDirectory()}/<cell>`;
  const importerOf = (file) => (file.startsWith("/") ? file.replace(/[?#].*$/, "") : cellFile());

  kit.importModule = async (specifier, importer, attributes) => {
    await undefined; // so that who imports it is known to wait, and stands in the stacks of what is loaded
    begin();
    const record = load(kit.resolveImport(specifier, importerOf(importer)), attributes, specifier);
    await host.evaluateModule(record.handle);
    return host.moduleNamespace(record.handle);
  };

  // The message of an import that asks a module for what it does not export, with what to write when that is CommonJS, whose
  // names cannot all be known before it runs.
  kit.explainExport = (message) => {
    const [, specifier, name] = NO_EXPORT.exec(message) ?? [];
    if (specifier === undefined) return message;
    try {
      const { path } = kit.resolveImport(specifier, cellFile());
      if (cache.get(path)?.kind !== "commonjs") return message;
    } catch {
      return message;
    }
    return `Named export '${name}' not found. The requested module '${specifier}' is a CommonJS module, which may not support all module.exports as named exports.
CommonJS modules can always be imported via the default export, for example using:

import pkg from '${specifier}';
const { ${name} } = pkg;
`;
  };

  // Every ES module below a record that has not been evaluated.
  function pendingBelow(root) {
    const seen = new Set([root]);
    const pending = [];
    for (const record of seen) {
      if (record.kind !== "module" || host.moduleState(record.handle) === "done") continue;
      pending.push(record);
      for (const dep of record.deps) seen.add(dep);
    }
    return pending;
  }

  // The namespace of an ES module that was required: in place, so nothing in it may await.
  function requireModule(record, specifier) {
    for (const one of pendingBelow(record)) {
      const state = host.moduleState(one.handle);
      if (state === "running") {
        throw kit.coded("ERR_REQUIRE_CYCLE_MODULE", `Cannot require() ES Module ${one.path} in a cycle`);
      }
      if (host.moduleAwaits(one.handle) || state === "waiting") {
        throw kit.coded("ERR_REQUIRE_ASYNC_MODULE", `require() cannot be used on an ESM graph with top-level await (in ${one.path}). Use import('${specifier}') instead`);
      }
    }
    const promise = host.evaluateModule(record.handle);
    const [state, result] = host.promiseState(promise);
    if (state === "rejected") {
      (async () => promise)().catch(() => {}); // it is thrown here
      throw result;
    }
    const namespace = host.moduleNamespace(record.handle);
    if ("module.exports" in namespace) return namespace["module.exports"];
    if (!("default" in namespace) || "__esModule" in namespace) return namespace;
    record.required ??= Object.freeze(Object.defineProperties({ __proto__: null, __esModule: true }, Object.fromEntries(
      Object.keys(namespace).map((name) => [name, { get: () => namespace[name], enumerable: true }]))));
    return record.required;
  }

  // The record of a file that is required, run to its end unless it is being run. `fromCell` looks at files again.
  kit.requireFile = (path, specifier, fromCell) => {
    if (fromCell) begin();
    let record = cache.get(path);
    if (record !== undefined && fromCell) {
      refresh(record);
      record = cache.get(path);
    }
    if (record !== undefined && record.kind !== "module" && kit.wasRemoved(record)) {
      invalidate([record]);
      record = undefined;
    }
    if (record === undefined) {
      record = readRecord(path, "", true);
      const fresh = new Map([[record.key, record]]);
      if (record.kind === "module") loadGraph(record, fresh);
      else {
        cache.set(record.key, record);
        unsettled.add(record);
      }
    }
    return { record, exports: record.kind === "module" ? requireModule(record, specifier) : undefined };
  };

  kit.invalidateModule = (record) => invalidate([record]);

  // ---- What a module knows of itself

  const fileUrl = (path) => `file://${encodeURI(path.toWellFormed()).replace(/[?#]/g, encodeURIComponent)}`;

  // What cells have, which are no file: as if they were one in the folder where they work.
  let cellMeta;
  kit.fillImportMeta = (meta, file) => {
    if (file === undefined) {
      if (cellMeta === undefined) {
        cellMeta = Object.create(null);
        kit.fillImportMeta(cellMeta, kit.cellFile());
        cellMeta.main = true;
      }
      return cellMeta;
    }
    if (!file.startsWith("/")) {
      meta.url = file;
      return;
    }
    const { path } = cache.get(file) ?? { path: file };
    meta.dirname = folderOf(path);
    meta.filename = path;
    meta.resolve = (specifier) => {
      const target = kit.resolveImport(String(specifier), path, false);
      return target.builtin !== undefined ? `node:${target.builtin.replace(/^node:/, "")}` : target.data ?? fileUrl(target.path) + target.query;
    };
    meta.url = fileUrl(path) + file.slice(path.length);
  };

  // The text of a module's file, when it is still what was loaded; undefined when it is not, or cannot be read. The last
  // one is kept: a stack names the same file many times.
  kit.moduleSource = (file) => {
    const record = cache.get(file);
    const path = record?.path ?? file;
    const stamp = path.startsWith("/") ? host.stamp(path) : undefined;
    if (stamp === undefined || (record !== undefined && record.stamp !== stamp)) return undefined;
    if (shown.path === path && shown.stamp === stamp) return shown.text;
    try {
      shown = { path, stamp, text: readSource(path, stamp) };
    } catch {
      return undefined;
    }
    return shown.text;
  };
})
