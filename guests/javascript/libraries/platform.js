// The web platform and Node's own modules, from the JavaScript of Deno's crates. One library, because its parts share
// classes: a `Blob` must be the same for `fetch` and for `node:buffer`. Each part runs when it is first asked for.
// As CommonJS has a module of Deno's: what it exports by default, if it does.
const common = (module) => module.default ?? module;

const parts = {
  abort: () => require("deno/deno_web/03_abort_signal.js"),
  base64: () => require("deno/deno_web/05_base64.js"),
  blob: () => require("deno/deno_web/09_file.js"),
  clone: () => require("deno/deno_web/13_message_port.js"),
  codes: () => require("deno/deno_node/internal/errors.ts"),
  compression: () => require("deno/streams/stream_shapes.js")(require("deno/streams/compression.js")),
  crypto: () => require("deno/crypto/web_crypto.js"),
  encoding: () => require("deno/streams/stream_shapes.js")(require("deno/deno_web/08_text_encoding.js")),
  event: () => require("deno/deno_web/02_event.js"),
  exception: () => require("deno/deno_web/01_dom_exception.js"),
  fetch: () => require("deno/network/fetch.js"),
  formData: () => require("deno/deno_fetch/21_formdata.js"),
  absent: () => require("deno/runtime/absent.js"),
  headers: () => require("deno/deno_fetch/20_headers.js"),
  intl: () => require("deno/intl/intl.js"),
  plainData: () => require("deno/runtime/plain_data.js"),
  zones: () => require("deno/intl/zones.js"),
  messages: () => require("deno/processes/messages.js"),
  performance: () => {
    const performance = require("deno/deno_web/15_performance.js");
    performance.setTimeOrigin(); // that of the session which asks first, not of the bake
    return performance;
  },
  request: () => require("deno/deno_fetch/23_request.js"),
  response: () => require("deno/deno_fetch/23_response.js"),
  streams: () => require("deno/streams/stream_shapes.js")(require("deno/deno_web/06_streams.js")),
  url: () => require("deno/deno_web/00_url.js"),
  wasm: () => require("deno/wasm/wasm.js"),

  program: () => require("deno/processes/program.js"),
  stdin: () => require("deno/processes/stdin.js"),
  stdio: () => require("deno/processes/stdio.js"),
  "node:assert": () => common(require("deno/deno_node/assert.ts")),
  "node:assert/strict": () => require("deno/deno_node/assert.ts").strict,
  "node:async_hooks": () => common(require("deno/deno_node/async_hooks.ts")),
  "node:buffer": () => common(require("deno/deno_node/internal/buffer.js")),
  "node:child_process": () => require("deno/processes/child_process.js"),
  "node:console": () => require("deno/runtime/console.js"),
  "node:constants": () => require("deno/runtime/constants.js"),
  "node:crypto": () => require("deno/crypto/node_crypto.js"),
  "node:diagnostics_channel": () => common(require("deno/deno_node/diagnostics_channel.js")),
  "node:events": () => common(require("deno/deno_node/_events.js")),
  "node:fs": () => require("deno/files/node_fs.js"),
  "node:fs/promises": () => require("deno/files/node_fs.js").promises,
  "node:http": () => require("deno/network/http.js").http,
  "node:https": () => require("deno/network/http.js").https,
  "node:net": () => require("deno/network/net.js"),
  "node:os": () => require("deno/runtime/os.js"),
  "node:path": () => common(require("deno/deno_node/path/mod.ts")),
  "node:path/posix": () => require("deno/deno_node/path/mod.ts").posix,
  "node:path/win32": () => require("deno/deno_node/path/mod.ts").win32,
  "node:perf_hooks": () => require("deno/runtime/perf_hooks.js"),
  "node:process": () => globalThis.process,
  "node:punycode": () => require("punycode/punycode.js"),
  "node:querystring": () => common(require("deno/deno_node/querystring.js")),
  "node:readline": () => common(require("deno/deno_node/_readline.js")),
  "node:readline/promises": () => parts["node:readline"]().promises,
  "node:_stream_duplex": () => common(require("deno/deno_node/internal/streams/duplex.js")),
  "node:_stream_passthrough": () => common(require("deno/deno_node/internal/streams/passthrough.js")),
  "node:_stream_readable": () => common(require("deno/deno_node/internal/streams/readable.js")),
  "node:_stream_transform": () => common(require("deno/deno_node/internal/streams/transform.js")),
  "node:_stream_writable": () => common(require("deno/deno_node/internal/streams/writable.js")),
  "node:sqlite": () => require("deno/files/sqlite.js"),
  "node:stream": () => common(require("deno/deno_node/stream.ts")),
  "node:stream/consumers": () => common(require("deno/deno_node/stream/consumers.js")),
  "node:stream/promises": () => common(require("deno/deno_node/stream/promises.js")),
  "node:stream/web": () => require("deno/streams/stream_web.js"),
  "node:string_decoder": () => common(require("deno/deno_node/string_decoder.ts")),
  "node:sys": () => parts["node:util"](),
  "node:test": () => require("deno/runtime/test.js"),
  "node:timers": () => require("deno/runtime/timers.js"),
  "node:timers/promises": () => require("deno/runtime/timers.js").promises,
  "node:tty": () => require("deno/processes/tty.js"),
  "node:url": () => common(require("deno/deno_node/url.ts")),
  "node:util": () => common(require("deno/deno_node/util.ts")),
  "node:util/types": () => common(require("deno/deno_node/internal/util/types.ts")),
  "node:vm": () => require("deno/runtime/vm.js"),
  "node:zlib": () => require("deno/streams/zlib.js"),
};

// Parts that are rare, or that must not be made before there is a session.
const LATER = [
  "absent", "compression", "messages", "program", "stdin", "stdio", "wasm", "node:async_hooks", "node:child_process", "node:console", "node:crypto", "node:diagnostics_channel", "node:http", "node:https", "node:net", "node:process",
  "node:readline", "node:readline/promises", "node:sqlite", "node:test", "node:vm", "node:zlib",
];

parts.preload = () => {
  for (const name of Object.keys(parts)) if (name !== "preload" && !LATER.includes(name)) parts[name]();
};

module.exports = parts;
