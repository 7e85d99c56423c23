// Node's own modules, by name. Each is made when it is first asked for.
(function (host, kit) {
  "use strict";

  const { builtin, platform } = kit;

  const MODULES = [
    "_stream_duplex", "_stream_passthrough", "_stream_readable", "_stream_transform", "_stream_writable", "assert", "assert/strict", "async_hooks", "buffer", "child_process", "console", "constants", "crypto", "diagnostics_channel", "events", "fs", "fs/promises", "http", "https", "net", "os", "path",
    "path/posix", "path/win32", "perf_hooks", "process", "punycode", "querystring", "readline", "readline/promises", "stream",
    "stream/consumers", "stream/promises", "stream/web", "string_decoder", "sys", "timers", "timers/promises", "tty",
    "url", "util", "util/types", "vm", "zlib",
  ];
  for (const name of MODULES) builtin(name, () => platform(`node:${name}`));

  // Those that need what a sandbox has not: they can be imported, and say why when they are used.
  const ABSENT = [
    "cluster", "dgram", "dns", "dns/promises", "domain", "http2", "inspector",
    "inspector/promises", "repl", "tls", "trace_events", "v8", "wasi", "worker_threads",
  ];
  for (const name of ABSENT) builtin(name, () => platform("absent")[name]());
  for (const name of ["sqlite", "test"]) builtin(name, () => platform(`node:${name}`), { schemeOnly: true });
  // What processes run; no module of Node's.
  builtin("cellar", () => platform("program"), { schemeOnly: true, isHidden: true });

  // As in Node's REPL, cells see the modules that they use most without importing them.
  const GLOBALS = [
    "assert", "buffer", "child_process", "events", "fs", "http", "https", "os", "path", "querystring", "readline", "stream",
    "string_decoder", "timers", "tty", "url", "util", "vm", "worker_threads", "zlib",
  ];
  for (const name of GLOBALS) kit.lazy(globalThis, [name], () => ({ [name]: kit.requireBuiltin(name) }));

  // Evaluates what sessions often use, so that they need not.
  kit.preload = () => {
    const { preload } = kit.library("platform");
    preload();
  };
})
