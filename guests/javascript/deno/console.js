// node:console: the console of cells, and consoles that write to streams.
const { formatWithOptions } = kit.library("inspect");
const codes = require("deno/deno_node/internal/errors.ts");

class Console {
  constructor(options, second, ignoreErrors) {
    const { stdout, stderr = stdout, inspectOptions } = typeof options?.write === "function" ? { stdout: options, stderr: second, ignoreErrors } : (options ?? {});
    if (typeof stdout?.write !== "function") throw new codes.ERR_CONSOLE_WRITABLE_STREAM("stdout");
    let indent = "";
    const counts = new Map();
    const starts = new Map();
    const writer = (stream) => (...values) => void stream.write(`${indent}${formatWithOptions(inspectOptions ?? {}, ...values).replaceAll("\n", `\n${indent}`)}\n`);
    const log = writer(stdout);
    const error = writer(stderr ?? stdout);
    const elapsed = (label) => `${label}: ${(host.now() - (starts.get(label) ?? host.now())).toFixed(3)}ms`;
    Object.assign(this, {
      log, info: log, debug: log, error, warn: error,
      assert: (fine, ...values) => fine || error("Assertion failed" + (values.length > 0 ? ":" : ""), ...values),
      dir: (value, options) => log(kit.library("inspect").inspect(value, { customInspect: false, ...options })),
      group: (...values) => (values.length > 0 && log(...values), void (indent += "  ")),
      groupEnd: () => void (indent = indent.slice(2)),
      count: (label = "default") => (counts.set(label, (counts.get(label) ?? 0) + 1), log(`${label}: ${counts.get(label)}`)),
      countReset: (label = "default") => void counts.delete(label),
      time: (label = "default") => void starts.set(label, host.now()),
      timeLog: (label = "default", ...values) => log(elapsed(label), ...values),
      timeEnd: (label = "default") => (log(elapsed(label)), void starts.delete(label)),
      trace: (...values) => error("Trace:", ...values),
    });
  }
}

module.exports = Object.assign(Object.create(globalThis.console), globalThis.console, { Console });
