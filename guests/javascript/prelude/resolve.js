// Which file a module's name means: Node's algorithms for `import` and `require`, with its error codes.
//
// No library: those there are build regular expressions from the keys of untrusted packages, or know no error codes.
(function (host, kit) {
  "use strict";

  const FILE = 1;
  const FOLDER = 2;
  const LINKS_MAX = 40;
  const PACKAGE_BYTES_MAX = 4 << 20;
  const PATTERN_TARGETS_MAX = 1000;
  // What is tried when a name has no extension: by `require` in fact, by `import` for its message.
  const EXTENSIONS = [".js", ".json", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".tsx", ".jsx"];
  const IMPORT_CONDITIONS = new Set(["node", "import", "module-sync", "default"]);
  const REQUIRE_CONDITIONS = new Set(["node", "require", "module-sync", "default"]);

  function fail(code, message, kind = Error) {
    const error = new kind(message);
    kit.define(error, "code", code);
    Object.defineProperty(error, "code", { enumerable: true });
    return error;
  }

  // ---- Paths

  const folderOf = (path) => path.slice(0, path.lastIndexOf("/")) || "/";

  // An absolute path without `.`, `..` and doubled slashes.
  function normal(path) {
    const parts = [];
    for (const part of path.split("/")) {
      if (part === "..") parts.pop();
      else if (part !== "" && part !== ".") parts.push(part);
    }
    return `/${parts.join("/")}`;
  }

  const join = (folder, path) => normal(path.startsWith("/") ? path : `${folder}/${path}`);

  // ---- What was looked up; kept while one request is answered, and for packages while the session lives.

  let realFolders = new Map();
  let localPackages = new Map();
  const installedPackages = new Map();
  const isInstalled = (path) => path.includes("/node_modules/");

  kit.forgetLookups = () => {
    realFolders = new Map();
    localPackages = new Map();
  };

  // The path of a file with all symbolic links followed.
  function realPath(path, depth = 0) {
    if (depth > LINKS_MAX) throw fail("ELOOP", `too many symbolic links on the way to '${path}'`);
    const folder = folderOf(path);
    let real = folder === "/" ? "" : realFolders.get(folder);
    if (real === undefined) {
      real = realPath(folder, depth);
      realFolders.set(folder, real);
    }
    const whole = `${real}/${path.slice(path.lastIndexOf("/") + 1)}`;
    const target = host.linkTarget(whole);
    return target === undefined ? whole : realPath(join(folderOf(whole), target), depth + 1);
  }

  // `package.json` of a folder, or null.
  function packageIn(folder) {
    const known = isInstalled(folder) ? installedPackages : localPackages;
    let found = known.get(folder);
    if (found !== undefined) return found;
    const path = join(folder, "package.json");
    const stamp = host.stamp(path);
    found = null;
    if (stamp !== undefined) {
      if (Number.parseInt(stamp, 10) > PACKAGE_BYTES_MAX) throw fail("ERR_INVALID_PACKAGE_CONFIG", `Invalid package config ${path}: it is too large`);
      let content;
      try {
        content = JSON.parse(kit.decode(host.readFile(path)));
      } catch (cause) {
        throw fail("ERR_INVALID_PACKAGE_CONFIG", `Invalid package config ${path}: ${cause.message}`);
      }
      if (typeof content === "object" && content !== null) found = { folder, path, content };
    }
    if (found !== null || known === localPackages) known.set(folder, found);
    return found;
  }

  // The package that a file belongs to, or null.
  kit.packageOf = (path) => {
    for (let folder = folderOf(path); ; folder = folderOf(folder)) {
      if (folder.endsWith("/node_modules")) return null;
      const found = packageIn(folder);
      if (found !== null || folder === "/") return found;
    }
  };

  // ---- `exports` and `imports`

  const invalidTarget = (from, key, target, isImports) =>
    fail("ERR_INVALID_PACKAGE_TARGET",
      `Invalid "${isImports ? "imports" : "exports"}" target ${JSON.stringify(target)} defined ${key === "." ? "for the package main" : `for '${key}'`} ` +
      `in the package config ${from.path}${typeof target === "string" && !target.startsWith("./") && !isImports ? '; targets must start with "./"' : ""}`);

  const leavesPackage = (path) => path.split(/[/\\]/).some((part) => /^(\.\.?|node_modules|%2e.*)$/i.test(part));

  // Returns a path, null when the map says that there is nothing, undefined when no condition fits.
  function resolveTarget(from, target, key, match, isImports, context) {
    if (++context.targets > PATTERN_TARGETS_MAX) throw fail("ERR_INVALID_PACKAGE_CONFIG", `Invalid package config ${from.path}: its maps are too large`);
    if (typeof target === "string") {
      const filled = match === undefined ? target : target.replaceAll("*", () => match);
      if (!target.startsWith("./")) {
        if (!isImports || target.startsWith("../") || target.startsWith("/") || /^[a-z]+:/i.test(target) && !target.startsWith("node:")) {
          throw invalidTarget(from, key, target, isImports);
        }
        return resolveBare(filled, join(from.folder, "package.json"), context);
      }
      if (leavesPackage(target.slice(2))) throw invalidTarget(from, key, target, isImports);
      if (match !== undefined && leavesPackage(match)) {
        throw fail("ERR_INVALID_MODULE_SPECIFIER", `Invalid module "${key}": '${match}' leads out of the package ${from.path}`, TypeError);
      }
      return { path: join(from.folder, filled) };
    }
    if (Array.isArray(target)) {
      let last = null;
      for (const one of target) {
        let found;
        try {
          found = resolveTarget(from, one, key, match, isImports, context);
        } catch (error) {
          if (error.code !== "ERR_INVALID_PACKAGE_TARGET") throw error;
          last = error;
          continue;
        }
        if (found === undefined) continue;
        if (found !== null) return found;
        last = null;
      }
      if (last !== null) throw last;
      return target.length === 0 ? null : undefined;
    }
    if (typeof target === "object" && target !== null) {
      for (const condition of Object.keys(target)) {
        if (/^\d+$/.test(condition)) throw fail("ERR_INVALID_PACKAGE_CONFIG", `Invalid package config ${from.path}: "exports" cannot contain numeric property keys`);
        if (!context.conditions.has(condition)) continue;
        const found = resolveTarget(from, target[condition], key, match, isImports, context);
        if (found !== undefined) return found;
      }
      return undefined;
    }
    if (target === null) return null;
    throw invalidTarget(from, key, target, isImports);
  }

  // The entry of a map for a key: as it is, or of the pattern whose part before the star is longest.
  function resolveInMap(from, map, key, isImports, context) {
    if (Object.hasOwn(map, key) && !key.includes("*")) return resolveTarget(from, map[key], key, undefined, isImports, context);
    let best;
    for (const pattern of Object.keys(map)) {
      const star = pattern.indexOf("*");
      if (star < 0 || star !== pattern.lastIndexOf("*")) continue;
      const head = pattern.slice(0, star);
      const tail = pattern.slice(star + 1);
      if (!key.startsWith(head) || key === head || key.length < pattern.length || !key.endsWith(tail)) continue;
      if (best === undefined || head.length > best.head.length || (head.length === best.head.length && pattern.length > best.pattern.length)) {
        best = { pattern, head, match: key.slice(star, key.length - tail.length) };
      }
    }
    if (best === undefined) return undefined;
    return resolveTarget(from, map[best.pattern], best.pattern, best.match, isImports, context);
  }

  function resolveExports(from, subpath, context) {
    const { exports } = from.content;
    let map = exports;
    if (typeof exports !== "object" || exports === null || Array.isArray(exports)) map = { ".": exports };
    else {
      const keys = Object.keys(exports);
      const dotted = keys.filter((name) => name.startsWith(".")).length;
      if (dotted > 0 && dotted < keys.length) {
        throw fail("ERR_INVALID_PACKAGE_CONFIG",
          `Invalid package config ${from.path}: "exports" cannot contain some keys starting with '.' and some not. ` +
          "The exports object must either be an object of package subpath keys or an object of main entry condition name keys only.");
      }
      if (dotted === 0) map = { ".": exports };
    }
    const found = resolveInMap(from, map, subpath, false, context);
    if (found !== undefined && found !== null) return found;
    const where = context.importer === undefined ? "" : ` imported from ${context.importer}`;
    throw fail("ERR_PACKAGE_PATH_NOT_EXPORTED", subpath === "."
      ? `No "exports" main defined in ${from.path}${where}`
      : `Package subpath '${subpath}' is not defined by "exports" in ${from.path}${where}`);
  }

  function resolveImports(specifier, importer, context) {
    const from = kit.packageOf(importer);
    const map = from?.content.imports;
    const valid = specifier !== "#" && !specifier.startsWith("#/");
    if (valid && typeof map === "object" && map !== null) {
      const found = resolveInMap(from, map, specifier, true, context);
      if (found !== undefined && found !== null) return found;
    }
    throw fail(valid ? "ERR_PACKAGE_IMPORT_NOT_DEFINED" : "ERR_INVALID_MODULE_SPECIFIER",
      `Package import specifier "${specifier}" is not defined${from ? ` in package ${from.path}` : ""} imported from ${context.importer ?? importer}`, TypeError);
  }

  // ---- Bare names

  function splitName(specifier) {
    const parts = specifier.split("/");
    const length = specifier.startsWith("@") ? 2 : 1;
    const name = parts.slice(0, length).join("/");
    if (parts.length < length || name === "" || name.startsWith(".") || /[\\%]/.test(name) || name.endsWith("/")) {
      throw fail("ERR_INVALID_MODULE_SPECIFIER", `Invalid module "${specifier}" is not a valid package name`, TypeError);
    }
    return { name, subpath: `.${specifier.slice(name.length)}` };
  }

  // `npm:name@1/file`: a package by its name, whichever version was granted.
  function resolveNpm(specifier, importer, context) {
    const match = /^npm:\/?((?:@[^/@]+\/)?[^/@]+)(?:@[^/]*)?(\/.*)?$/i.exec(specifier);
    if (match === null) throw fail("ERR_INVALID_MODULE_SPECIFIER", `Invalid module "${specifier}" is not a valid package name`, TypeError);
    return resolvePackage(match[1] + (match[2] ?? ""), importer, context);
  }

  function resolveBare(specifier, importer, context) {
    if (kit.isBuiltin(specifier)) return { builtin: specifier };
    if (specifier.startsWith("node:")) throw kit.unknownBuiltin(specifier);
    const { name, subpath } = splitName(specifier);
    const own = kit.packageOf(importer);
    if (own?.content.name === name && own.content.exports !== undefined && own.content.exports !== null) {
      return resolveExports(own, subpath, context);
    }
    return resolvePackage(specifier, importer, context);
  }

  function resolvePackage(specifier, importer, context) {
    const { name } = splitName(specifier);
    const found = findInstalled(specifier, importer, context);
    if (found !== undefined) return found;
    throw fail(context.required ? "MODULE_NOT_FOUND" : "ERR_MODULE_NOT_FOUND",
      `${context.required ? `Cannot find module '${specifier}'` : `Cannot find package '${name}' imported from ${context.importer ?? importer}`}` +
      hintForBare(specifier, importer, context));
  }

  function resolveName(specifier, importer, context) {
    if (specifier.startsWith("#")) return resolveImports(specifier, importer, context);
    return /^npm:/i.test(specifier) ? resolveNpm(specifier, importer, context) : resolveBare(specifier, importer, context);
  }

  function findInstalled(specifier, importer, context) {
    const { name, subpath } = splitName(specifier);
    for (let folder = folderOf(importer); ; folder = folderOf(folder)) {
      if (!folder.endsWith("/node_modules")) {
        const place = join(folder, `node_modules/${name}`);
        if (host.probe(place) === FOLDER) return inPackage(place, subpath, context);
        const file = context.required && host.probe(join(folder, "node_modules")) === FOLDER ? asFile(place) : undefined;
        if (file !== undefined) return { path: file };
      }
      if (folder === "/") return undefined;
    }
  }

  function inPackage(folder, subpath, context) {
    const from = packageIn(folder);
    if (from !== null && from.content.exports !== undefined && from.content.exports !== null) return resolveExports(from, subpath, context);
    if (subpath === "." || subpath === "./") {
      const main = asFolder(folder);
      if (main !== undefined) return { path: main };
      throw fail(context.required ? "MODULE_NOT_FOUND" : "ERR_MODULE_NOT_FOUND",
        `Cannot find package '${folder}' imported from ${context.importer}: it has no main module`);
    }
    const path = join(folder, subpath);
    return { path: context.required ? asFile(path) ?? asFolder(path) ?? path : path };
  }

  // ---- Files

  function asFile(path) {
    if (host.probe(path) === FILE) return path;
    return EXTENSIONS.map((end) => path + end).find((file) => host.probe(file) === FILE);
  }

  function asFolder(path) {
    if (host.probe(path) !== FOLDER) return undefined;
    const main = packageIn(path)?.content.main;
    if (typeof main === "string" && main !== "") {
      const place = join(path, main);
      const found = asFile(place) ?? indexOf(place);
      if (found !== undefined) return found;
    }
    return indexOf(path);
  }

  const indexOf = (folder) => EXTENSIONS.map((end) => join(folder, `index${end}`)).find((file) => host.probe(file) === FILE);

  // A bare name may be that of a file, or of a package that the session was not granted.
  function hintForBare(specifier, importer, context) {
    if (host.probe(join(folderOf(importer), specifier)) === FILE) return `. Did you mean to import "./${specifier}"?`;
    const { name } = splitName(specifier);
    return `${context.required ? "\n" : ". "}The owner of the host runs \`cellar packages add npm:${name}\` and grants it with packages = ["npm:${name}"] in the session's cellar.toml`;
  }

  // What a path that is not there may have meant.
  function hintFor(path, folder) {
    const candidates = EXTENSIONS.map((end) => path + end);
    const stem = path.replace(/\.(?:[cm]?js|jsx)$/, "");
    if (stem !== path) candidates.push(...[".ts", ".tsx", ".mts", ".cts", ".js", ".mjs", ".cjs", ".json"].map((end) => stem + end));
    candidates.push(...EXTENSIONS.map((end) => `${path}/index${end}`));
    const found = candidates.find((file) => host.probe(file) === FILE);
    if (found === undefined) return "";
    const near = found.startsWith(`${folder}/`) ? `./${found.slice(folder.length + 1)}` : found;
    return `. Did you mean to import "${near}"?`;
  }

  function exactFile(path, importer) {
    const kind = host.probe(path);
    if (kind === FILE) return path;
    const hint = hintFor(path, folderOf(importer));
    if (kind === FOLDER) {
      throw fail("ERR_UNSUPPORTED_DIR_IMPORT", `Directory import '${path}' is not supported resolving ES modules imported from ${importer}${hint}`);
    }
    throw fail("ERR_MODULE_NOT_FOUND", `Cannot find module '${path}' imported from ${importer}${hint}`);
  }

  function decodeUrlPath(text, specifier) {
    if (/%2f|%5c/i.test(text)) throw fail("ERR_INVALID_MODULE_SPECIFIER", `Invalid module "${specifier}" must not include encoded "/" or "\\" characters`, TypeError);
    try {
      return text.includes("%") ? decodeURIComponent(text) : text;
    } catch {
      throw fail("ERR_INVALID_MODULE_SPECIFIER", `Invalid module "${specifier}" is not a valid URL`, TypeError);
    }
  }

  // The absolute path of a name that is a path, or undefined.
  function pathOf(specifier, importer) {
    if (specifier === "~" || specifier.startsWith("~/")) return join(host.workingDirectory(), `.${specifier.slice(1)}`);
    if (specifier.startsWith("/")) return normal(specifier);
    if (/^\.\.?(\/|$)/.test(specifier)) return join(folderOf(importer), specifier);
    return undefined;
  }

  function checkScheme(specifier) {
    const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(specifier)?.[1].toLowerCase();
    if (scheme === undefined || ["node", "file", "data", "npm"].includes(scheme)) return scheme;
    if (scheme === "http" || scheme === "https") {
      throw fail("ERR_UNSUPPORTED_IN_SANDBOX",
        `'${specifier}' cannot be imported: this sandbox loads no modules from the network. Save the file in the workspace and import that, or import an installed package by its name`);
    }
    throw fail("ERR_UNSUPPORTED_ESM_URL_SCHEME", `Only URLs with a scheme in: file, data, and node are supported by the default ESM loader. Received protocol '${scheme}:'`);
  }

  // What `import` means: `{builtin}`, `{data}`, or `{path, query}` of a file, which exists unless a path is only asked for.
  kit.resolveImport = (specifier, importer, mustExist = true) => {
    const scheme = checkScheme(specifier);
    if (scheme === "data") return { data: specifier };
    const context = { conditions: IMPORT_CONDITIONS, required: false, importer, targets: 0 };
    let query = "";
    let found;
    const isPath = scheme === "file" || /^(\.{0,2}\/|~\/|\.\.?$|~$)/.test(specifier);
    if (isPath) {
      const cut = /[?#]/.exec(specifier)?.index ?? specifier.length;
      query = specifier.slice(cut);
      let path = specifier.slice(0, cut);
      if (scheme === "file") {
        const match = /^file:(?:\/\/(?:localhost)?)?(\/.*)$/i.exec(path);
        if (match === null) throw fail("ERR_INVALID_FILE_URL_PATH", `'${specifier}' is not the URL of a file`, TypeError);
        path = match[1];
      }
      found = { path: pathOf(decodeUrlPath(path, specifier), importer) };
    } else {
      found = resolveName(specifier, importer, context);
    }
    if (found.builtin !== undefined) return found;
    if (isPath && !mustExist) return { path: found.path, query };
    return { path: realPath(exactFile(found.path, importer)), query };
  };

  // What `require` means: `{builtin}` or `{path}`.
  kit.resolveRequire = (specifier, importer) => {
    const context = { conditions: REQUIRE_CONDITIONS, required: true, importer, targets: 0 };
    if (/^(https?|data|file):/i.test(specifier)) throw fail("MODULE_NOT_FOUND", `Cannot find module '${specifier}': require takes paths and names of packages, not URLs`);
    const place = pathOf(specifier, importer);
    let found;
    if (place !== undefined) {
      const path = (/(^|\/)\.{0,2}$/.test(specifier) ? undefined : asFile(place)) ?? asFolder(place);
      if (path === undefined) throw fail("MODULE_NOT_FOUND", `Cannot find module '${specifier}'`);
      found = { path };
    } else {
      found = resolveName(specifier, importer, context);
    }
    if (found.builtin !== undefined) return found;
    if (host.probe(found.path) !== FILE) throw fail("MODULE_NOT_FOUND", `Cannot find module '${found.path}'`);
    return { path: realPath(found.path) };
  };

  // The folders in which `require` looks for packages.
  kit.packageFolders = (folder) => {
    const folders = [];
    for (let at = folder; ; at = folderOf(at)) {
      if (!at.endsWith("/node_modules")) folders.push(join(at, "node_modules"));
      if (at === "/") return folders;
    }
  };

  kit.paths = { folderOf, join, isInstalled };
  kit.coded = fail;
})
