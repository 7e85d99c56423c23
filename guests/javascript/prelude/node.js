// Node's own modules, by name. Each is made when it is first asked for.
(function (host, kit) {
  "use strict";

  const { builtin, platform } = kit;

  const MODULES = [
    "_stream_duplex", "_stream_passthrough", "_stream_readable", "_stream_transform", "_stream_writable", "assert", "assert/strict", "async_hooks", "buffer", "console", "constants", "crypto", "events", "fs", "fs/promises", "os", "path",
    "path/posix", "path/win32", "perf_hooks", "process", "punycode", "querystring", "readline", "stream",
    "stream/consumers", "stream/promises", "stream/web", "string_decoder", "sys", "timers", "timers/promises", "tty",
    "url", "util", "util/types", "zlib",
  ];
  for (const name of MODULES) builtin(name, () => platform(`node:${name}`));

  // Evaluates what sessions often use, so that they need not.
  kit.preload = () => {
    const { preload } = kit.library("platform");
    preload();
  };
})
