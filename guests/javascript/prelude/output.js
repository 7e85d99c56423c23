// display, print and console.
(function (host, kit) {
  "use strict";

  kit.define = (target, name, value) =>
    Object.defineProperty(target, name, { value, writable: true, configurable: true, enumerable: false });
  const define = kit.define;

  // ---- display

  const isTextType = (type) =>
    type.startsWith("text/") || type.endsWith("+xml") || type.endsWith("/xml") || type.endsWith("json") || type === "application/javascript";

  // Bytes of base64, with or without the head of a data URL.
  const base64 = (text) => {
    const comma = text.startsWith("data:") ? text.indexOf(",") : -1;
    return Uint8Array.fromBase64(text.slice(comma + 1).replace(/\s+/g, ""));
  };

  // One representation, as the host takes it: text for text types, bytes for the others.
  function representation(type, value) {
    if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return value;
    if (isTextType(type)) return typeof value === "string" ? value : JSON.stringify(value);
    if (typeof value === "string") return base64(value);
    throw new TypeError(`display: ${type} needs base64 text or bytes`);
  }

  const flatten = (bundle) => Object.entries(bundle).flatMap(([type, value]) => [type, representation(type, value)]);

  // An object that its own constructor does not make special: its JSON says what it is.
  function isData(value) {
    if (Array.isArray(value)) return true;
    const text = Object.prototype.toString.call(value);
    return text === "[object Object]" && typeof value !== "function" && !(value instanceof Map) && !(value instanceof Set) &&
      host.promiseState(value) === undefined && !(value instanceof WeakMap) && !(value instanceof WeakSet);
  }

  function json(value) {
    try {
      return JSON.stringify(value);
    } catch (error) {
      if (error instanceof TypeError || error instanceof RangeError) return undefined; // a cycle, a BigInt, too deep
      throw error;
    }
  }

  kit.bundle = (value) => {
    if (typeof value === "string") return ["text/plain", value];
    if (typeof value !== "object" || value === null) return ["text/plain", kit.inspect(value)];
    const custom = value[Symbol.for("Jupyter.display")];
    if (typeof custom === "function") return flatten(custom.call(value));
    if (typeof value.mimeBundle === "object" && value.mimeBundle !== null) return flatten(value.mimeBundle);
    if (value.type === "image" && value.data !== undefined && typeof value.mimeType === "string") {
      return [value.mimeType, representation(value.mimeType, value.data)];
    }
    const text = kit.inspect(value);
    const data = !kit.isError(value) && isData(value) ? json(value) : undefined;
    return data === undefined ? ["text/plain", text] : ["application/json", data, "text/plain", text];
  };

  kit.show = (value) => host.display(kit.bundle(value), undefined, false);

  let displays = 0;
  define(globalThis, "display", function display(value, options) {
    const { id, update = false } = options ?? {};
    host.display(kit.bundle(value), id, update);
  });
  // Shows a value that can be replaced later.
  define(globalThis.display, "handle", (value) => {
    const id = `js-${host.currentCell()}-${++displays}`;
    host.display(kit.bundle(value), id, false);
    return { id, update: (next) => host.display(kit.bundle(next), id, true) };
  });
  define(globalThis.display, "clear", (options) => host.clear(options?.wait === true));

  // ---- console

  const STDOUT = 0;
  const STDERR = 1;
  let indent = "";
  const counts = new Map();
  const clocks = new Map();

  function line(to, values) {
    let text = kit.format(values);
    if (indent !== "") text = indent + text.replaceAll("\n", "\n" + indent);
    host.write(to, text + "\n");
  }
  const out = (...values) => line(STDOUT, values);
  const err = (...values) => line(STDERR, values);

  // Rows of text under a head, in a frame.
  function frame(grid) {
    const widths = grid[0].map((_, i) => Math.max(...grid.map((row) => row[i].length)));
    const text = (row) => "│ " + row.map((value, i) => value.padEnd(widths[i])).join(" │ ") + " │";
    const rule = (left, middle, right) => left + widths.map((width) => "─".repeat(width + 2)).join(middle) + right;
    return [rule("┌", "┬", "┐"), text(grid[0]), rule("├", "┼", "┤"), ...grid.slice(1).map(text), rule("└", "┴", "┘")].join("\n");
  }

  const isRow = (value) => typeof value === "object" && value !== null;
  const shown = (value) => kit.inspect(value, { maxArrayLength: 3, depth: isRow(value) && !Array.isArray(value) && Object.keys(value).length > 2 ? -1 : 0 });

  function table(data, columns) {
    if (!isRow(data)) return out(data);
    if (data instanceof Map) {
      return out(frame([["(iteration index)", "Key", "Values"], ...[...data].map(([key, value], i) => [String(i), shown(key), shown(value)])]));
    }
    if (data instanceof Set) {
      return out(frame([["(iteration index)", "Values"], ...[...data].map((value, i) => [String(i), shown(value)])]));
    }
    const rows = Object.entries(data);
    const names = (rows.length > 0 ? columns : []) ?? [...new Set(rows.flatMap(([, row]) => (isRow(row) ? Object.keys(row) : [])))];
    const plain = rows.some(([, row]) => !isRow(row));
    const cell = (row, name) => (isRow(row) && Object.hasOwn(row, name) ? shown(row[name]) : "");
    const head = ["(index)", ...names, ...(plain ? ["Values"] : [])];
    const last = (row) => (plain ? [isRow(row) ? "" : shown(row)] : []);
    return out(frame([head, ...rows.map(([key, row]) => [key, ...names.map((name) => cell(row, name)), ...last(row)])]));
  }

  function group(...values) {
    if (values.length > 0) line(STDOUT, values);
    indent += "  ";
  }

  const elapsed = (label) => {
    const start = clocks.get(label);
    if (start === undefined) return err(`no timer '${label}'`);
    return `${label}: ${(host.now() - start).toFixed(3)}ms`;
  };

  const console = {
    log: (...values) => line(STDOUT, values),
    info: (...values) => line(STDOUT, values),
    debug: (...values) => line(STDOUT, values),
    warn: (...values) => line(STDERR, values),
    error: (...values) => line(STDERR, values),
    dir: (value, options) => out(kit.inspect(value, options)),
    dirxml: (...values) => line(STDOUT, values),
    table,
    trace: (...values) => {
      const here = new Error(kit.format(values));
      here.name = "Trace";
      err(kit.errorText(here));
    },
    assert: (condition, ...values) => {
      if (!condition) err(...(typeof values[0] === "string" ? [`Assertion failed: ${values.shift()}`] : ["Assertion failed"]), ...values);
    },
    count: (label = "default") => {
      counts.set(label, (counts.get(label) ?? 0) + 1);
      out(`${label}: ${counts.get(label)}`);
    },
    countReset: (label = "default") => void counts.delete(label),
    group,
    groupCollapsed: (...values) => group(...values),
    groupEnd: () => {
      indent = indent.slice(2);
    },
    time: (label = "default") => void clocks.set(label, host.now()),
    timeLog: (label = "default", ...values) => out(elapsed(label), ...values),
    timeEnd: (label = "default") => {
      out(elapsed(label));
      clocks.delete(label);
    },
    clear: () => host.clear(false),
  };
  Object.defineProperty(console, Symbol.toStringTag, { value: "console", configurable: true });
  define(globalThis, "console", console);
  define(globalThis, "print", out);
})
