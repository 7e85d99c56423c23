// Small helpers for files and text. Those that touch the host are async and say what they did in a status event.
(function (host, kit) {
  "use strict";

  const { define } = kit;
  const TREE_DEPTH = 3;
  const TREE_ENTRIES = 2000;
  const DIFF_CONTEXT = 3;
  const DIFF_LINES = 20000;

  // A path as the file functions take it. Addresses of other kinds are for tools.
  function filePath(path) {
    if (typeof path !== "string" || path === "") throw new TypeError("a path is needed");
    if (/^[a-z][a-z0-9+.-]*:\/\//i.test(path)) throw new Error(`'${path}' is not a file; use tool.read for it`);
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
    const { text, bytes } = readText(filePath(path));
    host.status("read", "path", path, "bytes", bytes);
    if (offset <= 1 && limit === undefined) return text;
    const lines = text.split("\n");
    const first = Math.max(offset, 1) - 1;
    return lines.slice(first, limit === undefined ? undefined : first + limit).join("\n");
  });

  const writer = (operation, append) => async (path, content) => {
    const data = typeof content === "string" || ArrayBuffer.isView(content) || content instanceof ArrayBuffer ? content : String(content);
    const bytes = host.writeFile(filePath(path), data, append);
    host.status(operation, "path", path, "bytes", bytes);
    return path;
  };
  define(globalThis, "write", writer("write", false));
  define(globalThis, "append", writer("append", true));

  // ---- tree

  function walk(path, depth, hidden, prefix, lines) {
    const flat = host.list(path);
    const entries = [];
    for (let i = 0; i < flat.length; i += 2) {
      if (hidden || !flat[i].startsWith(".")) entries.push([flat[i], flat[i + 1]]);
    }
    entries.sort(([a], [b]) => (a < b ? -1 : 1));
    entries.forEach(([name, type], i) => {
      if (lines.length >= TREE_ENTRIES) return;
      const last = i === entries.length - 1;
      lines.push(`${prefix}${last ? "└── " : "├── "}${name}${type === "directory" ? "/" : ""}`);
      if (type === "directory" && depth > 1) {
        walk(`${path}/${name}`, depth - 1, hidden, prefix + (last ? "    " : "│   "), lines);
      }
    });
  }

  define(globalThis, "tree", async function tree(path = ".", options) {
    const { maxDepth = TREE_DEPTH, hidden = false } = kit.options("tree", options, { maxDepth: "size", hidden: "flag" });
    const lines = [path];
    walk(filePath(path), maxDepth, hidden, "", lines);
    if (lines.length >= TREE_ENTRIES) lines.push("...");
    host.status("tree", "path", path, "entries", lines.length - 1);
    return lines.join("\n");
  });

  define(globalThis, "env", async function env(name, value) {
    if (name === undefined) return { ...kit.environment };
    if (value !== undefined) kit.environment[name] = String(value);
    return kit.environment[name];
  });

  // ---- Text

  const linesOf = (text) => {
    if (Array.isArray(text)) return text.map(String);
    const lines = String(text).split("\n");
    if (lines.at(-1) === "") lines.pop();
    return lines;
  };

  define(globalThis, "sort", function sort(text, options) {
    const { reverse = false, unique = false } = kit.options("sort", options, { reverse: "flag", unique: "flag" });
    let lines = linesOf(text);
    if (unique) lines = [...new Set(lines)];
    lines.sort();
    if (reverse) lines.reverse();
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
    return count ? runs : runs.map(([, line]) => line).join("\n");
  });

  // Pairs of how often and what, most frequent first.
  define(globalThis, "counter", function counter(items, options) {
    const { limit, reverse = false } = kit.options("counter", options, { limit: "count", reverse: "flag" });
    if (typeof items?.[Symbol.iterator] !== "function") throw new TypeError(`counter takes a list or a text, not ${kit.inspect(items)}`);
    const counts = new Map();
    for (const item of typeof items === "string" ? linesOf(items) : items) counts.set(item, (counts.get(item) ?? 0) + 1);
    const pairs = [...counts].map(([item, count]) => [count, item]);
    pairs.sort(([a], [b]) => (reverse ? a - b : b - a));
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
      out.push(`@@ -${lineOf("+")},${sizeOf("+")} +${lineOf("-")},${sizeOf("-")} @@`);
      out.push(...hunk.map(([mark, line]) => mark + line));
    }
    return out;
  }

  define(globalThis, "diff", async function diff(pathA, pathB) {
    const a = linesOf(readText(filePath(pathA)).text);
    const b = linesOf(readText(filePath(pathB)).text);
    if (a.length + b.length > DIFF_LINES) throw new RangeError(`diff: more than ${DIFF_LINES} lines`);
    const lines = unified(edits(a, b));
    host.status("diff", "from", pathA, "to", pathB, "identical", lines.length === 0);
    return lines.length === 0 ? "" : [`--- ${pathA}`, `+++ ${pathB}`, ...lines].join("\n") + "\n";
  });
})
