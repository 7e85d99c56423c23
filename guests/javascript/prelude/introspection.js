// What editors and hosts ask of a session: its variables, their values, completions and hovers.
(function (host, kit) {
  "use strict";

  const ITEMS = 200;
  const PREVIEW_LENGTH = 120;
  const KEYWORDS = ("async await break case catch class const continue debugger default delete do else export extends false finally for " +
    "function if import in instanceof let new null of return static super switch this throw true try typeof undefined var void while with yield").split(" ");

  // Everything that was there before the first cell.
  const builtin = new Set(Object.getOwnPropertyNames(globalThis));

  // The bindings that cells made: lexical ones first, then properties of the global object that are no accessors.
  function bindings() {
    const found = new Map();
    const flat = host.lexicals();
    for (let i = 0; i < flat.length; i += 2) found.set(flat[i], flat[i + 1]);
    for (const name of Object.getOwnPropertyNames(globalThis)) {
      if (builtin.has(name) || found.has(name)) continue;
      const own = Object.getOwnPropertyDescriptor(globalThis, name);
      if ("value" in own) found.set(name, own.value);
    }
    return found;
  }

  function typeName(value) {
    if (value === null) return "null";
    if (typeof value === "function") return Function.prototype.toString.call(value).startsWith("class") ? "class" : "function";
    return typeof value === "object" ? (kit.constructorName(value) ?? "Object") : typeof value;
  }

  function sizeOf(value) {
    if (typeof value === "string" || Array.isArray(value)) return value.length;
    if (value instanceof Map || value instanceof Set) return value.size;
    if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return value.byteLength;
    return undefined;
  }

  function preview(value) {
    // Only a beginning is wanted: no long text is copied or searched.
    const start = typeof value === "string" ? value.slice(0, PREVIEW_LENGTH) : value;
    const text = kit.inspect(start, { depth: 1 }).slice(0, 16 * PREVIEW_LENGTH).replace(/\s+/g, " ");
    return text.length > PREVIEW_LENGTH ? text.slice(0, PREVIEW_LENGTH - 1) + "…" : text;
  }

  kit.variables = () =>
    [...bindings()].map(([name, value]) => ({ name, type: typeName(value), size: sizeOf(value), preview: preview(value) }));

  kit.value = (name) => {
    const found = bindings();
    return found.has(name) ? kit.bundle(found.get(name)) : undefined;
  };

  // ---- Names that cells bind, for whoever asks

  const NAMES_MAX = 4096;
  const NAME_LENGTH_MAX = 256;

  // What was bound when each cell that is traced began. A name that is bound to the value that it had is not told apart from
  // one that is left alone; nor is it known which of several cells that await has bound a name: it counts as that of the
  // one that ends first.
  const traced = new Map();
  const sources = new Map();

  const isTold = (name) => name !== "_" && name.length <= NAME_LENGTH_MAX;

  kit.trace = (cell, source) => {
    traced.set(cell, bindings());
    sources.set(cell, source);
  };

  // Names that a source has in it, but for those of members, of texts and of comments. Functions that it calls are looked through.
  const APART = /\/\*[^]*?\*\/|\/\/[^\n]*|'(?:[^'\\\n]|\\[^])*'|"(?:[^"\\\n]|\\[^])*"|(\?\.|\.)?\s*([\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*)/gu;
  const FUNCTIONS_MAX = 500;
  function readBy(source, names) {
    const found = new Set();
    const ahead = [source];
    for (let i = 0; i < ahead.length && i < FUNCTIONS_MAX; i += 1) {
      for (const [, member, name] of ahead[i].matchAll(APART)) {
        if (name === undefined || member !== undefined || found.has(name) || !names.has(name)) continue;
        found.add(name);
        const value = names.get(name);
        if (typeof value === "function") ahead.push(Function.prototype.toString.call(value));
      }
    }
    return [...found].filter(isTold).slice(0, NAMES_MAX).sort();
  }

  kit.traced = (cell) => {
    const before = traced.get(cell);
    if (before === undefined) return;
    const source = sources.get(cell);
    traced.delete(cell);
    sources.delete(cell);
    const now = bindings();
    const differs = ([name, value]) => !before.has(name) || !Object.is(before.get(name), value);
    const all = [...now].filter(differs).map(([name]) => name).filter(isTold).sort();
    const bound = all.slice(0, NAMES_MAX);
    const deleted = [...before.keys()].filter((name) => !now.has(name) && isTold(name)).slice(0, NAMES_MAX);
    for (const other of traced.values()) {
      for (const name of bound) other.set(name, now.get(name));
      for (const name of deleted) other.delete(name);
    }
    const read = bound.length > 0 ? readBy(source, before) : [];
    host.bound(cell, bound, deleted, read, all.length - bound.length);
  };

  // ---- Names that the host binds

  const NAME = /^[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*$/u;

  kit.bind = (name, text) => {
    if (!NAME.test(name) || KEYWORDS.includes(name)) {
      throw new TypeError(`the binding '${name}' is not a name that JavaScript can assign to`);
    }
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      throw new TypeError(`the binding '${name}' is not JSON: ${error.message}`);
    }
    Object.defineProperty(globalThis, name, { value, writable: true, enumerable: true, configurable: true });
  };

  // ---- Completion

  const isWord = (c) => /[\p{ID_Continue}$]/u.test(c);

  // The dotted path that ends at `end`: its names before the last dot, and what stands after it.
  function pathBefore(text, end) {
    const names = [];
    let at = end;
    for (;;) {
      let start = at;
      while (start > 0 && isWord(text[start - 1])) start--;
      names.unshift(text.slice(start, at).join(""));
      if (start === 0 || text[start - 1] !== ".") return { start: end - [...names.at(-1)].length, names };
      at = start - 1;
      if (text[at - 1] === "?") at--;
    }
  }

  // The value of a path, through data properties alone: a completion must run no code of the user's.
  function resolve(names) {
    const found = bindings();
    let value = found.has(names[0]) ? found.get(names[0]) : dataProperty(globalThis, names[0]);
    for (const name of names.slice(1)) {
      if (value === undefined || value === null) return undefined;
      value = dataProperty(Object(value), name);
    }
    return value;
  }

  function dataProperty(object, name) {
    for (let at = object; at !== null; at = Object.getPrototypeOf(at)) {
      const own = Object.getOwnPropertyDescriptor(at, name);
      if (own !== undefined) return own.value;
    }
    return undefined;
  }

  const kindOf = (value, fallback) => {
    const type = typeName(value);
    return type === "function" || type === "class" ? type : fallback;
  };

  function members(value) {
    const found = new Map();
    let start = Object(value);
    // What has millions of elements has as many names, none of which is offered.
    if (typeof value === "string" || Array.isArray(value) || ArrayBuffer.isView(value)) {
      found.set("length", "property");
      start = Object.getPrototypeOf(start);
    }
    for (let at = start; at !== null; at = Object.getPrototypeOf(at)) {
      for (const name of Object.getOwnPropertyNames(at)) {
        if (found.has(name) || /^\d/.test(name)) continue;
        const own = Object.getOwnPropertyDescriptor(at, name);
        found.set(name, kindOf(own.value, "property"));
      }
    }
    return found;
  }

  function globalNames() {
    const found = new Map([...bindings()].map(([name, value]) => [name, kindOf(value, "variable")]));
    for (const name of Object.getOwnPropertyNames(globalThis)) {
      if (!found.has(name)) found.set(name, kindOf(dataProperty(globalThis, name), "variable"));
    }
    for (const word of KEYWORDS) if (!found.has(word)) found.set(word, "keyword");
    return found;
  }

  kit.complete = (code, cursor) => {
    const text = [...code];
    const { start, names } = pathBefore(text, Math.min(cursor, text.length));
    const prefix = names.at(-1);
    let candidates;
    if (names.length === 1) {
      candidates = globalNames();
    } else {
      const value = resolve(names.slice(0, -1));
      candidates = value === undefined || value === null ? new Map() : members(value);
    }
    const items = [...candidates]
      .filter(([name]) => name.startsWith(prefix) && name !== prefix)
      .map(([name, kind]) => ({ text: name, kind }))
      .sort((a, b) => (a.text < b.text ? -1 : 1));
    return { start, items: items.slice(0, ITEMS) };
  };

  // What `isComplete` answers, as the kernel world numbers it.
  const [COMPLETE, INCOMPLETE, INVALID] = [0, 1, 2];
  const OPENS = "([{";
  const CLOSES = ")]}";
  // An expression cannot end with these, so a slash behind them begins a regular expression.
  const EXPECTS_MORE = /(?:^|[=(,:[!&|?{};+\-*%~^<>]|=>|\b(?:return|typeof|case|in|of|delete|void|throw|new|await|yield|else|do))$/;
  const GOES_ON = /(?:[=(,:[&|?+*%~^<.]|=>|[^+]\+|[^-]-|\b(?:typeof|case|in|of|delete|void|new|await|else|do|extends|import|export|from))$/;

  // What is open at the end of a text: brackets, strings, comments; and the text without comments.
  function openAt(code) {
    const open = [];
    let bare = "";
    for (let at = 0; at < code.length; at++) {
      const [char, next] = [code[at], code[at + 1]];
      if (char === "/" && next === "/") {
        while (at < code.length && code[at] !== "\n") at++;
      } else if (char === "/" && next === "*") {
        const end = code.indexOf("*/", at + 2);
        if (end < 0) return { open: [...open, "/*"], bare };
        at = end + 1;
      } else if (char === "`" || (char === "}" && open.at(-1) === "${")) {
        if (char === "}") open.pop();
        bare += char;
        for (at++; at < code.length && code[at] !== "`"; at++) {
          if (code[at] === "\\") at++;
          else if (code[at] === "$" && code[at + 1] === "{") break;
        }
        if (at >= code.length) return { open: [...open, "`"], bare };
        if (code[at] === "$") {
          open.push("${");
          at++;
        } else bare += "`";
      } else if (char === "'" || char === '"' || (char === "/" && EXPECTS_MORE.test(bare.trimEnd()))) {
        let inClass = false;
        bare += char;
        for (at++; at < code.length && (code[at] !== char || inClass) && code[at] !== "\n"; at++) {
          if (code[at] === "\\") at++;
          else if (char === "/" && code[at] === "[") inClass = true;
          else if (code[at] === "]") inClass = false;
        }
        bare += char;
      } else {
        if (OPENS.includes(char)) open.push(char);
        else if (CLOSES.includes(char) && open.pop() === undefined) return { open: undefined, bare };
        bare += char;
      }
    }
    return { open, bare };
  }

  const AsyncFunction = (async () => {}).constructor;
  // `new` code is parsed and never run. Imports stand at the top of a cell, and in no function.
  const parses = (code) => {
    try {
      new AsyncFunction(code.replace(/^\s*(?:import\b(?!\s*[(.])|export\b).*$/gm, ""));
      return true;
    } catch {
      return false;
    }
  };

  kit.isComplete = (code) => {
    const { open, bare } = openAt(code);
    if (open === undefined) return { tag: INVALID };
    const indent = "  ".repeat(open.length);
    if (open.length > 0) return { tag: INCOMPLETE, indent };
    if (parses(code)) return { tag: COMPLETE };
    if (GOES_ON.test(bare.trimEnd())) return { tag: INCOMPLETE, indent };
    try {
      const script = kit.strip(code, "<input>", new SyntaxError(""));
      return { tag: script !== undefined && parses(script) ? COMPLETE : INVALID };
    } catch {
      return { tag: INVALID };
    }
  };

  kit.inspectAt = (code, cursor) => {
    const text = [...code];
    let end = Math.min(cursor, text.length);
    while (end < text.length && isWord(text[end])) end++;
    const { names } = pathBefore(text, end);
    if (names.at(-1) === "") return undefined;
    const value = resolve(names);
    if (value === undefined) return undefined;
    const head = typeof value === "function" ? Function.prototype.toString.call(value).split("\n")[0] : preview(value);
    return ["text/plain", `${names.join(".")}: ${typeName(value)}\n${head}`];
  };

  kit.library("inspect"); // while the guest is baked, so that its first use need not wait for it
})
