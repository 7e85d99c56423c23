// Node's `process`, as far as there is one.
(function (host, kit) {
  "use strict";

  const { define, lazy } = kit;

  // The version of Node whose behaviour is followed.
  const NODE_VERSION = "20.20.2";

  let environment;
  // What a program is given to read in `process.argv`, which the host hands over as a variable.
  let programArguments = [];
  // Read when it is first looked at: most cells never do.
  Object.defineProperty(kit, "environment", {
    get() {
      if (environment === undefined) {
        environment = {};
        readEnvironment();
      }
      return environment;
    },
  });
  // The same object, since a cell may hold it.
  const readEnvironment = () => {
    for (const name of Object.keys(environment)) delete environment[name];
    const flat = host.environment();
    for (let i = 0; i < flat.length; i += 2) environment[flat[i]] = flat[i + 1];
    programArguments = environment.CELLAR_ARGUMENTS === undefined ? [] : JSON.parse(environment.CELLAR_ARGUMENTS).slice(1);
    delete environment.CELLAR_ARGUMENTS;
    environment.HOME ??= host.workingDirectory();
    environment.PATH ??= "/usr/local/bin:/usr/bin:/bin";
  };
  // The name that cells go by for programs that ask whether they are the main one.
  kit.cellFile = () => `${host.workingDirectory()}/cell`;

  // Local time is that of the zone which TZ names, and UTC without one.
  let zone;
  const followZone = () => {
    const named = kit.environment.TZ;
    if (named === zone) return;
    zone = named;
    kit.platform("zones").setLocal(named);
  };
  // The session has changed.
  kit.configure = () => {
    if (environment !== undefined) {
      readEnvironment();
      if (programArguments.length > 0) argv = undefined;
    }
    if (zone !== undefined || host.hasZone()) followZone();
    kit.bindConnectors();
  };

  kit.setVariable = (name, value) => {
    kit.environment[name] = value;
    if (name === "TZ") followZone();
  };

  // Environment variables are text, as Node has them.
  const variables = kit.transparent(new Proxy({}, {
    get: (_, name) => (typeof name === "string" && Object.hasOwn(kit.environment, name) ? kit.environment[name] : undefined),
    set: (_, name, value) => (kit.setVariable(String(name), String(value)), true),
    has: (_, name) => Object.hasOwn(kit.environment, name),
    deleteProperty: (_, name) => {
      delete kit.environment[name];
      if (name === "TZ") followZone();
      return true;
    },
    ownKeys: () => Reflect.ownKeys(kit.environment),
    getOwnPropertyDescriptor: (_, name) =>
      Object.hasOwn(kit.environment, name)
        ? { value: kit.environment[name], writable: true, enumerable: true, configurable: true }
        : undefined,
    defineProperty: (_, name, { value }) => (kit.setVariable(name, String(value)), true),
  }));

  const NANOSECONDS = 1e9;
  const clock = () => BigInt(Math.round(host.now() * 1e6));

  function hrtime(since) {
    const now = Number(clock());
    const seconds = Math.floor(now / NANOSECONDS);
    const rest = now % NANOSECONDS;
    if (since === undefined) return [seconds, rest];
    const borrow = rest < since[1];
    return [seconds - since[0] - (borrow ? 1 : 0), rest - since[1] + (borrow ? NANOSECONDS : 0)];
  }
  define(hrtime, "bigint", clock);

  function memoryUsage() {
    const bytes = host.memoryBytes();
    return { rss: bytes, heapTotal: bytes, heapUsed: bytes, external: 0, arrayBuffers: 0 };
  }
  define(memoryUsage, "rss", () => host.memoryBytes());

  function nextTick(task, ...values) {
    if (typeof task !== "function") {
      throw kit.invalidArgument("callback", "function", task);
    }
    host.enqueueTick(() => task(...values));
  }

  // Of the cell that set it: it ends with this status.
  let exitCode;
  let exitCodeCell;
  function setExitCode(value) {
    const status = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
    if (status !== undefined && status !== null && !Number.isInteger(status)) {
      throw kit.invalidArgument("code", "integer", value);
    }
    [exitCode, exitCodeCell] = [value, host.currentCell()];
    host.setExitCode(status ?? 0);
  }
  const exitCodeOfCell = () => (exitCodeCell === host.currentCell() ? exitCode : undefined);


  function emitWarning(warning, options, code) {
    const given = typeof options === "string" ? { type: options, code } : (options ?? {});
    const error = kit.isError(warning) ? warning : Object.assign(new Error(String(warning)), { name: given.type ?? "Warning" });
    // Instead of a code there may be the function that the stack of the warning begins below.
    if (given.code !== undefined && typeof given.code !== "function") error.code = given.code;
    if (given.detail !== undefined) error.detail = given.detail;
    const label = error.code === undefined ? "" : `[${error.code}] `;
    host.write(1, `(node:${process.pid}) ${label}${error.name}: ${error.message}\n`);
    nextTick(() => emitter?.emit("warning", error));
  }

  // Who listens is told once, and may set another status; nothing of this program is left for later cells to end.
  let isExiting = false;
  function exit(status) {
    if (status !== undefined) setExitCode(status);
    if (!isExiting && emitter !== undefined) {
      isExiting = true;
      try {
        emitter.emit("exit", Number(exitCodeOfCell() ?? 0));
      } finally {
        isExiting = false;
        emitter.removeAllListeners("exit");
      }
    }
    const ended = Number(exitCodeOfCell() ?? 0);
    exitCode = undefined;
    host.exit(ended);
  }

  const refuse = (what, why) => () => {
    throw kit.unsupported(`process.${what}`, why);
  };

  const process = {
    title: "node",
    version: `v${NODE_VERSION}`,
    versions: { node: NODE_VERSION, v8: "12.4.254.21-node.33", quickjs: "0.18.0" },
    arch: "wasm32",
    platform: "linux",
    release: { name: "node" },
    argv0: "node",
    execArgv: [],
    execPath: "/usr/bin/node",
    pid: 1,
    ppid: 0,
    exitCode: undefined,
    config: {},
    features: {},
    env: variables,
    cwd: () => host.workingDirectory(),
    chdir: (folder) => {
      if (typeof folder !== "string") throw kit.invalidArgument("directory", "string", folder);
      const { path, fs } = { path: kit.requireBuiltin("path"), fs: kit.requireBuiltin("fs") };
      const target = path.resolve(folder);
      const fail = (code, errno, words) => {
        const message = `${code}: ${words}, chdir '${host.workingDirectory()}' -> '${folder}'`;
        throw Object.assign(new Error(message), { errno, code, syscall: "chdir", path: host.workingDirectory(), dest: folder });
      };
      if (!fs.existsSync(target)) fail("ENOENT", -2, "no such file or directory");
      if (!fs.statSync(target).isDirectory()) fail("ENOTDIR", -20, "not a directory");
      host.changeDirectory(target);
    },
    umask: () => 0o022,
    getuid: () => 1000,
    geteuid: () => 1000,
    getgid: () => 1000,
    getegid: () => 1000,
    exit,
    abort: () => host.exit(134),
    kill: refuse("kill", "there is one process; end the cell with process.exit"),
    binding: refuse("binding"),
    dlopen: refuse("dlopen"),
    hrtime,
    uptime: () => host.now() / 1e3,
    nextTick,
    memoryUsage,
    cpuUsage: () => ({ user: Math.round(host.now() * 1e3), system: 0 }),
    resourceUsage: () => ({ userCPUTime: Math.round(host.now() * 1e3), systemCPUTime: 0, maxRSS: host.memoryBytes() >> 10 }),
    emitWarning,
    getBuiltinModule: (name) => (kit.isBuiltin(String(name)) ? kit.requireBuiltin(String(name)) : undefined),
    getgroups: () => [1000],
    availableMemory: () => Math.max(0, 2 ** 32 - host.memoryBytes()),
    constrainedMemory: () => 2 ** 32,
    allowedNodeEnvironmentFlags: new Set(),
  };
  Object.defineProperty(process, "exitCode", {
    get: exitCodeOfCell,
    set: setExitCode,
    enumerable: true,
    configurable: true,
  });
  Object.defineProperty(process, Symbol.toStringTag, { value: "process", configurable: true });

  // ---- Streams and events, when they are asked for

  // While the image is baked there is no folder to work in yet.
  let argv;
  Object.defineProperty(process, "argv", {
    get() {
      if (argv !== undefined) return argv;
      const named = ["/usr/bin/node", kit.cellFile()];
      if (host.currentCell() === 0) return named;
      // Arguments come with the environment.
      argv = kit.environment && [...named, ...programArguments];
      return argv;
    },
    set: (value) => void (argv = value),
    enumerable: true,
    configurable: true,
  });
  lazy(process, ["stdout", "stderr"], () => kit.platform("stdio"));
  Object.defineProperty(process, "stdin", {
    get: () => kit.platform("stdin").stream(),
    enumerable: false,
    configurable: true,
  });
  const EVENTS = [
    "addListener", "emit", "eventNames", "getMaxListeners", "listenerCount", "listeners", "off", "on", "once",
    "prependListener", "prependOnceListener", "rawListeners", "removeAllListeners", "removeListener", "setMaxListeners",
  ];
  // A session has no signals; the errors that nobody catches it has.
  let emitter;
  lazy(process, EVENTS, () => {
    const { EventEmitter } = kit.requireBuiltin("events");
    emitter = new EventEmitter();
    return Object.fromEntries(EVENTS.map((name) => [name, (...values) => {
      const result = emitter[name](...values);
      return result === emitter ? process : result;
    }]));
  });

  // Asked of an error that nothing caught, before it ends its cell: whether somebody takes it. A part of the program may,
  // such as a worker, and then who listens to the process.
  kit.catchers = [];
  kit.uncaught = (error, promise) => {
    for (const takes of kit.catchers) if (takes(error)) return true;
    const listens = (name) => emitter !== undefined && emitter.listenerCount(name) > 0;
    if (promise !== undefined && listens("unhandledRejection")) emitter.emit("unhandledRejection", error, promise);
    else if (listens("uncaughtException")) emitter.emit("uncaughtException", error, promise === undefined ? "uncaughtException" : "unhandledRejection");
    else return false;
    return true;
  };

  define(globalThis, "process", process);
})
