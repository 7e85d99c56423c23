// Small helpers for files and text. Those that touch the host are async and say what they did in a status event.
(function (host, kit) {
  "use strict";

  const { define } = kit;
  const TREE_DEPTH = 3;
  const TREE_ENTRIES = 2000;
  const DIFF_CONTEXT = 3;
  const DIFF_LINES = 20000;

  // What to use for an address, by its scheme and by what was asked for.
  function remedyFor(scheme, what) {
    if (scheme === "http" || scheme === "https") return what === "read" ? "use fetch" : "name a file in the workspace";
    if (scheme === "file") return "give the path alone";
    return what === "read" || what === "diff" ? "use tool.read for it" : "name a file in the workspace";
  }

  // A path as the file functions take it. Addresses of other kinds are for tools.
  function filePath(path, what) {
    if (typeof path !== "string" || path === "") throw new TypeError(`${what} takes a path, and not ${kit.inspect(path)}`);
    const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(path)?.[1].toLowerCase();
    if (scheme !== undefined) throw new Error(`'${path}' is an address, and not a path: ${remedyFor(scheme, what)}`);
    if (path === "~" || path.startsWith("~/")) return host.workingDirectory() + path.slice(1);
    return path;
  }

  function readText(path) {
    try {
      const bytes = host.readFile(path);
      return { text: kit.decode(bytes), bytes: bytes.length };
    } catch (error) {
      if (error.code === "EISDIR") throw new Error(`'${path}' is a folder; use tree, or tool.read`, { cause: error });
      throw error;
    }
  }

  define(globalThis, "read", async function read(path, options) {
    const { offset = 1, limit } = kit.options("read", options, { offset: "count", limit: "count" });
    const { text } = readText(filePath(path, "read"));
    const isWhole = offset <= 1 && limit === undefined;
    const first = Math.max(offset, 1) - 1;
    // Lines with their ends, as the file has them: parts that follow one another make the whole.
    const lines = () => text.match(/[^\n]*\n|[^\n]+/g) ?? [];
    const part = isWhole ? text : lines().slice(first, limit === undefined ? undefined : first + limit).join("");
    host.status("read", "path", path, "bytes", host.byteLength(part), "chars", part.length);
    return part;
  });

  const isContent = (value) => typeof value === "string" || ArrayBuffer.isView(value) || value instanceof ArrayBuffer;

  // What is neither text nor bytes would be in the file as something that nobody meant.
  function refuseContent(content, what) {
    const remedy = host.promiseState(content) !== undefined ? "await it first"
      : Array.isArray(content) ? 'join it, or use JSON.stringify'
      : typeof content === "object" && content !== null ? "use JSON.stringify" : "use String";
    throw new TypeError(`${what} takes a text or bytes, and not ${kit.inspect(content, { depth: 0 })}: ${remedy}`);
  }

  const writer = (operation, append) => async (path, content) => {
    const target = filePath(path, operation);
    const data = isContent(content) ? content : content instanceof Blob ? await content.arrayBuffer() : refuseContent(content, operation);
    const bytes = host.writeFile(target, data, append);
    host.status(operation, "path", path, "bytes", bytes);
    return path;
  };
  define(globalThis, "write", writer("write", false));
  define(globalThis, "append", writer("append", true));

  // ---- tree

  const isFolder = (type) => type === "directory";

  function walk(path, depth, hidden, prefix, lines) {
    const flat = host.list(path);
    const entries = [];
    for (let i = 0; i < flat.length; i += 2) {
      if (hidden || !flat[i].startsWith(".")) entries.push([flat[i], flat[i + 1]]);
    }
    entries.sort(([a, one], [b, two]) => isFolder(two) - isFolder(one) || (a < b ? -1 : 1));
    entries.forEach(([name, type], i) => {
      lines.found[isFolder(type) ? "folders" : "files"]++;
      if (lines.length >= TREE_ENTRIES) return;
      const last = i === entries.length - 1;
      lines.push(`${prefix}${last ? "└── " : "├── "}${name}${isFolder(type) ? "/" : ""}`);
      if (isFolder(type) && depth > 1) {
        walk(`${path}/${name}`, depth - 1, hidden, prefix + (last ? "    " : "│   "), lines);
      }
    });
  }

  define(globalThis, "tree", async function tree(path = ".", options) {
    if (typeof path === "object" && path !== null) [path, options] = [".", path];
    const { maxDepth = TREE_DEPTH, hidden = false } = kit.options("tree", options, { maxDepth: "size", hidden: "flag" });
    const root = filePath(path, "tree");
    const lines = Object.assign([`${root.replace(/\/+$/, "")}/`], { found: { files: 0, folders: 0 } });
    walk(root, maxDepth, hidden, "", lines);
    const { files, folders } = lines.found;
    const leftOut = files + folders - (lines.length - 1);
    if (leftOut > 0) lines.push(`… ${leftOut} more; name a folder below, or a smaller maxDepth`);
    host.status("tree", "path", root, "files", files, "folders", folders);
    return lines.join("\n");
  });

  define(globalThis, "env", async function env(name, value) {
    if (name === undefined || name === null) {
      host.status("env", "count", Object.keys(kit.environment).length, "action", "list");
      return { ...kit.environment };
    }
    if (typeof name !== "string" || name === "" || name.includes("=")) throw new TypeError(`env takes the name of a variable, and not ${kit.inspect(name)}`);
    const isSet = value !== undefined && value !== null;
    if (isSet) kit.setVariable(name, String(value));
    host.status("env", "key", name, "action", isSet ? "set" : "get");
    return kit.environment[name];
  });

  // ---- Text

  const linesOf = (text) => {
    if (Array.isArray(text)) return text.map(String);
    if (typeof text !== "string") throw new TypeError(`a text or a list of lines is needed, and not ${kit.inspect(text, { depth: 0 })}`);
    const lines = text.split(/\r?\n/);
    if (lines.at(-1) === "") lines.pop();
    return lines;
  };

  define(globalThis, "sort", function sort(text, options) {
    const { reverse = false, unique = false } = kit.options("sort", options, { reverse: "flag", unique: "flag" });
    let lines = linesOf(text);
    if (unique) lines = [...new Set(lines)];
    lines.sort();
    if (reverse) lines.reverse();
    host.status("sort", "lines", lines.length, "reverse", reverse, "unique", unique);
    return lines.join("\n");
  });

  // Drops lines that repeat the one before; with `count`, pairs of how often and what.
  define(globalThis, "uniq", function uniq(text, options) {
    const { count = false } = kit.options("uniq", options, { count: "flag" });
    const runs = [];
    for (const line of linesOf(text)) {
      if (runs.length > 0 && runs.at(-1)[1] === line) runs.at(-1)[0]++;
      else runs.push([1, line]);
    }
    host.status("uniq", "groups", runs.length, "count", count);
    return count ? runs : runs.map(([, line]) => line).join("\n");
  });

  // Pairs of how often and what, most frequent first; `reverse: false` turns the order round.
  define(globalThis, "counter", function counter(items, options) {
    const { limit, reverse = true } = kit.options("counter", options, { limit: "count", reverse: "flag" });
    if (typeof items?.[Symbol.iterator] !== "function") throw new TypeError(`counter takes a list or a text, not ${kit.inspect(items)}`);
    const counts = new Map();
    for (const item of typeof items === "string" ? linesOf(items) : items) counts.set(item, (counts.get(item) ?? 0) + 1);
    const pairs = [...counts].map(([item, count]) => [count, item]);
    pairs.sort(([a], [b]) => (reverse ? b - a : a - b));
    host.status("counter", "unique", pairs.length, "total", pairs.reduce((total, [count]) => total + count, 0));
    return limit === undefined ? pairs : pairs.slice(0, limit);
  });

  // ---- diff

  // The shortest edit script, by Myers: a list of [" ", "-" or "+", line].
  function edits(a, b) {
    let start = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) start++;
    let end = 0;
    while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
    const x = a.slice(start, a.length - end);
    const y = b.slice(start, b.length - end);
    return [
      ...a.slice(0, start).map((line) => [" ", line]),
      ...myers(x, y),
      ...a.slice(a.length - end).map((line) => [" ", line]),
    ];
  }

  function myers(a, b) {
    const trace = [];
    const furthest = new Map([[1, 0]]);
    for (let d = 0; d <= a.length + b.length; d++) {
      // Two texts with little in common: removing the one and adding the other is as good an answer.
      if (d * d > 4e6) return [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])];
      trace.push(new Map(furthest));
      for (let k = -d; k <= d; k += 2) {
        const down = k === -d || (k !== d && furthest.get(k - 1) < furthest.get(k + 1));
        let x = down ? furthest.get(k + 1) : furthest.get(k - 1) + 1;
        while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
        furthest.set(k, x);
        if (x >= a.length && x - k >= b.length) return backtrack(a, b, trace);
      }
    }
    return [];
  }

  function backtrack(a, b, trace) {
    const script = [];
    let x = a.length;
    let y = b.length;
    for (let d = trace.length - 1; d >= 0; d--) {
      const furthest = trace[d];
      const k = x - y;
      const down = k === -d || (k !== d && furthest.get(k - 1) < furthest.get(k + 1));
      const previousK = down ? k + 1 : k - 1;
      const previousX = d === 0 ? 0 : furthest.get(previousK);
      const previousY = d === 0 ? 0 : previousX - previousK;
      while (x > previousX && y > previousY) {
        script.push([" ", a[--x]]);
        y--;
      }
      if (d > 0) script.push(down ? ["+", b[--y]] : ["-", a[--x]]);
    }
    return script.reverse();
  }

  // Groups of changes with the lines around them, as `diff -u` prints them.
  function unified(script) {
    const changed = script.flatMap(([mark], i) => (mark === " " ? [] : [i]));
    const out = [];
    for (let at = 0; at < changed.length;) {
      const first = Math.max(0, changed[at] - DIFF_CONTEXT);
      let last = changed[at];
      while (at < changed.length && changed[at] <= last + 2 * DIFF_CONTEXT) last = changed[at++];
      const hunk = script.slice(first, last + DIFF_CONTEXT + 1);
      const before = script.slice(0, first);
      const lineOf = (mark) => before.filter(([m]) => m !== mark).length + 1;
      const sizeOf = (mark) => hunk.filter(([m]) => m !== mark).length;
      // As `diff` has it: a size of one is not named, and what is empty stands behind the line before it.
      const range = (mark) => (sizeOf(mark) === 1 ? `${lineOf(mark)}` : `${sizeOf(mark) === 0 ? lineOf(mark) - 1 : lineOf(mark)},${sizeOf(mark)}`);
      out.push(`@@ -${range("+")} +${range("-")} @@\n`);
      out.push(...hunk.map(([mark, line]) => mark + (line.endsWith("\n") ? line : `${line}\n\\ No newline at end of file\n`)));
    }
    return out;
  }

  define(globalThis, "diff", async function diff(pathA, pathB) {
    const [a, b] = [pathA, pathB].map((path) => readText(filePath(path, "diff")).text.match(/[^\n]*\n|[^\n]+$/g) ?? []);
    if (a.length + b.length > DIFF_LINES) throw new RangeError(`diff: more than ${DIFF_LINES} lines`);
    const lines = unified(edits(a, b));
    host.status("diff", "a", pathA, "b", pathB, "identical", lines.length === 0);
    return lines.length === 0 ? "" : [`--- ${pathA}\n`, `+++ ${pathB}\n`, ...lines].join("");
  });
})
