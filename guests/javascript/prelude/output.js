// display, print and console.
(function (host, kit) {
  "use strict";

  kit.define = (target, name, value) =>
    Object.defineProperty(target, name, { value, writable: true, configurable: true, enumerable: false });
  const define = kit.define;

  // ---- display

  // What was done, as JSON: the host makes a status event of it.
  const STATUS = "application/x-omp-status";

  const isTextType = (type) =>
    type === STATUS || type.startsWith("text/") || type.endsWith("+xml") || type.endsWith("/xml") || type.endsWith("json") || type === "application/javascript";

  // Bytes of base64, with or without the head of a data URL.
  const base64 = (text) => {
    const comma = text.startsWith("data:") ? text.indexOf(",") : -1;
    return Uint8Array.fromBase64(text.slice(comma + 1).replace(/\s+/g, ""));
  };

  // One representation, as the host takes it: text for text types, bytes for the others.
  function representation(type, value) {
    if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return value;
    if (isTextType(type)) return typeof value === "string" ? value : JSON.stringify(value);
    try {
      if (typeof value === "string") return base64(value);
    } catch {
      // It is told what is needed.
    }
    throw new TypeError(`display: ${type} needs base64 text or bytes`);
  }

  function flatten(bundle) {
    const entries = Object.entries(bundle);
    if (entries.length === 0) throw new TypeError("display: a MIME bundle names at least one type");
    return entries.flatMap(([type, value]) => [type, representation(type, value)]);
  }

  const DATA_VALUES = 1e6;
  const DATA_DEPTH = 100;

  // Would JSON say the same as the value? Only of plain data: no NaN, no undefined, no class, no Map, no getter, no cycle.
  function isData(value) {
    let left = DATA_VALUES;
    const isPlain = (one, depth) => {
      if (--left < 0) return false;
      if (one === null || typeof one === "boolean") return true;
      if (typeof one === "string") return one.isWellFormed();
      if (typeof one === "number") return Number.isFinite(one) && !Object.is(one, -0);
      if (typeof one !== "object" || depth === 0) return false;
      const kind = host.classOf(one);
      if (kind === "Array") {
        if (Object.getPrototypeOf(one) !== Array.prototype || Object.keys(one).length !== one.length) return false;
        for (let i = 0; i < one.length; i++) if (!isPlain(one[i], depth - 1)) return false;
        return true;
      }
      const prototype = Object.getPrototypeOf(one);
      if (kind !== "Object" || (prototype !== null && prototype !== Object.prototype)) return false;
      return Reflect.ownKeys(one).every((key) => {
        const property = Object.getOwnPropertyDescriptor(one, key);
        if (key === "toJSON") return false;
        if (!property.enumerable) return true; // neither shows it
        return typeof key === "string" && property.get === undefined && property.set === undefined && isPlain(property.value, depth - 1);
      });
    };
    return isPlain(value, DATA_DEPTH);
  }

  // The type of a chart's specification in the grammar of Vega or Vega-Lite, which says so itself.
  const CHART = /^https?:\/\/vega\.github\.io\/schema\/(vega|vega-lite)\/v(\d+)(?:\.\d+)*\.json#?$/;
  function chartType(value) {
    const schema = typeof value.$schema === "string" ? CHART.exec(value.$schema) : null;
    return schema === null ? undefined : `application/vnd.${schema[1].replace("-", "")}.v${schema[2]}+json`;
  }

  kit.bundle = (value) => {
    if (typeof value === "string") return ["text/plain", value];
    if (typeof value !== "object" || value === null) return ["text/plain", kit.inspect(value)];
    const custom = value[Symbol.for("Jupyter.display")];
    if (typeof custom === "function") return flatten(custom.call(value));
    if (typeof value.mimeBundle === "object" && value.mimeBundle !== null) return flatten(value.mimeBundle);
    if (value.type === "image" && value.data !== undefined && typeof value.mimeType === "string") {
      if (!value.mimeType.startsWith("image/")) throw new TypeError(`display: ${value.mimeType} is no type of images`);
      return [value.mimeType, representation(value.mimeType, value.data)];
    }
    const text = kit.inspect(value);
    const chart = chartType(value);
    if (chart !== undefined && isData(value)) return [chart, JSON.stringify(value), "text/plain", text];
    return isData(value) ? ["application/json", JSON.stringify(value), "text/plain", text] : ["text/plain", text];
  };

  // Shows the value of a cell. What goes wrong when it is looked at is told, and the cell goes on.
  kit.show = (value) => {
    let bundle;
    try {
      bundle = kit.bundle(value);
    } catch (error) {
      if (kit.isOutOfMemory(error)) throw error;
      host.write(1, `The value could not be shown as it asks: ${kit.errorText(error)}\n`);
      bundle = ["text/plain", kit.describe(value)];
    }
    host.display(bundle, undefined, false, true);
  };

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

  // Rows of text under a head, in a frame.
  function frame(grid) {
    const widths = grid[0].map((_, i) => Math.max(...grid.map((row) => kit.columns(row[i]))));
    const text = (row) => "│ " + row.map((value, i) => value + " ".repeat(widths[i] - kit.columns(value))).join(" │ ") + " │";
    const rule = (left, middle, right) => left + widths.map((width) => "─".repeat(width + 2)).join(middle) + right;
    return [rule("┌", "┬", "┐"), text(grid[0]), rule("├", "┼", "┤"), ...grid.slice(1).map(text), rule("└", "┴", "┘")].join("\n");
  }

  const isRow = (value) => typeof value === "object" && value !== null;
  const shown = (value) => kit.inspect(value, { maxArrayLength: 3, depth: isRow(value) && !Array.isArray(value) && Object.keys(value).length > 2 ? -1 : 0 });

  // What `console.table` shows of a value.
  function table(data, columns) {
    if (!isRow(data)) return data;
    if (data instanceof Map) {
      return frame([["(iteration index)", "Key", "Values"], ...[...data].map(([key, value], i) => [String(i), shown(key), shown(value)])]);
    }
    if (data instanceof Set) {
      return frame([["(iteration index)", "Values"], ...[...data].map((value, i) => [String(i), shown(value)])]);
    }
    const rows = Object.entries(data);
    const names = (rows.length > 0 ? columns : []) ?? [...new Set(rows.flatMap(([, row]) => (isRow(row) ? Object.keys(row) : [])))];
    const plain = rows.some(([, row]) => !isRow(row));
    const cell = (row, name) => (isRow(row) && Object.hasOwn(row, name) ? shown(row[name]) : "");
    const head = ["(index)", ...names, ...(plain ? ["Values"] : [])];
    const last = (row) => (plain ? [isRow(row) ? "" : shown(row)] : []);
    return frame([head, ...rows.map(([key, row]) => [key, ...names.map((name) => cell(row, name)), ...last(row)])]);
  }

  // A console. `put` takes lines of one of the two streams; `options` are those of util.inspect, if any.
  kit.consoleOf = (put, options) => {
    let indent = "";
    const counts = new Map();
    const clocks = new Map();
    const format = options === undefined ? kit.format : (values) => kit.library("inspect").formatWithOptions(options, ...values);

    function line(to, values) {
      let text = format(values);
      if (indent !== "") text = indent + text.replaceAll("\n", "\n" + indent);
      put(to, text + "\n");
    }
    const out = (...values) => line(STDOUT, values);
    const err = (...values) => line(STDERR, values);

    function group(...values) {
      if (values.length > 0) out(...values);
      indent += "  ";
    }

    const warn = (message) => globalThis.process.emitWarning(message);
    // How long a clock has run; undefined, and a warning, where there is none.
    const elapsed = (label, name) => {
      const start = clocks.get(label);
      if (start === undefined) return warn(`No such label '${label}' for console.${name}()`);
      return `${label}: ${(host.now() - start).toFixed(3)}ms`;
    };

    return {
      log: (...values) => line(STDOUT, values),
      info: (...values) => line(STDOUT, values),
      debug: (...values) => line(STDOUT, values),
      warn: (...values) => line(STDERR, values),
      error: (...values) => line(STDERR, values),
      dir: (value, given) => out(kit.inspect(value, { ...options, ...given })),
      dirxml: (...values) => line(STDOUT, values),
      table: (data, columns) => out(table(data, columns)),
      trace: (...values) => {
        const here = new Error(kit.format(values));
        here.name = "Trace";
        err(kit.errorText(here));
      },
      assert: (condition, ...values) => {
        if (!condition) err(...(typeof values[0] === "string" ? [`Assertion failed: ${values.shift()}`] : ["Assertion failed"]), ...values);
      },
      count: (label = "default") => {
        counts.set(`${label}`, (counts.get(`${label}`) ?? 0) + 1);
        out(`${label}: ${counts.get(`${label}`)}`);
      },
      countReset: (label = "default") => void (counts.delete(`${label}`) || warn(`Count for '${label}' does not exist`)),
      group,
      groupCollapsed: (...values) => group(...values),
      groupEnd: () => {
        indent = indent.slice(2);
      },
      time: (label = "default") => void (clocks.has(`${label}`) ? warn(`Label '${label}' already exists for console.time()`) : clocks.set(`${label}`, host.now())),
      timeLog: (label = "default", ...values) => {
        const told = elapsed(`${label}`, "timeLog");
        if (told !== undefined) out(told, ...values);
      },
      timeEnd: (label = "default") => {
        const told = elapsed(`${label}`, "timeEnd");
        if (told !== undefined) out(told);
        clocks.delete(`${label}`);
      },
      // For tools that look on, of which there is none.
      profile: () => {},
      profileEnd: () => {},
      timeStamp: () => {},
      clear: () => host.clear(false),
    };
  };

  const console = kit.consoleOf((to, text) => host.write(to, text));
  Object.defineProperty(console, Symbol.toStringTag, { value: "console", configurable: true });
  define(globalThis, "console", console);
  define(globalThis, "print", (...values) => console.log(...values));
})
