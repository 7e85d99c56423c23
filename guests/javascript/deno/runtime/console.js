// node:console: the console of cells, and consoles that write to streams.
const codes = require("deno/deno_node/internal/errors.ts");

class Console {
  constructor(options, second) {
    const { stdout, stderr = stdout, inspectOptions = {} } = typeof options?.write === "function" ? { stdout: options, stderr: second } : (options ?? {});
    if (typeof stdout?.write !== "function") throw new codes.ERR_CONSOLE_WRITABLE_STREAM("stdout");
    const streams = [stdout, stderr ?? stdout];
    Object.assign(this, kit.consoleOf((to, text) => void streams[to].write(text), inspectOptions));
  }
}

module.exports = Object.assign(Object.create(globalThis.console), globalThis.console, { Console });
