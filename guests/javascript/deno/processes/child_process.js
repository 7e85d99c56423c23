// node:child_process. A process is a further kernel of the session, which runs Node's programs, Python's, or the shell
// commands that the Python guest has. One call of the host runs it from its beginning to its end, and brings what it has
// printed that went into no pipe. It ends with the cell that started it.
const { EventEmitter } = kit.requireBuiltin("events");
const { Readable, Writable } = kit.requireBuiltin("stream");
const { Buffer } = kit.requireBuiltin("buffer");
const { promisify } = kit.requireBuiltin("util");
const { Link, pair } = require("deno/processes/ipc.js");
const { bytesOf, closePipe, makePipes, readPipe, textOf, writePipe } = require("deno/processes/process_text.js");

// The cells that read an order, by language; the Python guest has the same.
const ENTRIES = { py: "%%process", js: 'await require("node:cellar").main()' };
const SIGNALS = { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGABRT: 6, SIGKILL: 9, SIGUSR1: 10, SIGUSR2: 12, SIGALRM: 14, SIGTERM: 15 };
const SHELLS = new Set(["sh", "bash", "dash", "zsh", "ksh", "ash"]);
const PLAIN = /^[\w\s./:,@%+-]+$/;

let count = 0;

// ---- What to run

function kindOf(name) {
  const base = name.slice(name.lastIndexOf("/") + 1);
  if (name === process.execPath || base === "node" || base === "nodejs") return "node";
  if (/^python(?:\d(?:\.\d+)?)?$/.test(base)) return "python";
  return SHELLS.has(base) ? "shell" : "command";
}

function orderOf(file, values, options) {
  if (options.shell) {
    const line = [file, ...values].join(" ");
    const words = line.trim().split(/\s+/);
    if (PLAIN.test(line) && ["node", "python"].includes(kindOf(words[0]))) return orderOf(words[0], words.slice(1), {});
    return { program: "shell", argv: ["sh", "-c", line] };
  }
  return { program: kindOf(file), argv: [file, ...values] };
}

const isFolder = (path) => {
  try {
    return kit.requireBuiltin("fs").statSync(path).isDirectory();
  } catch {
    return false;
  }
};

// What the host is asked to run.
function asked(call, file, values, options, input, pid, pipes = {}, ipc = undefined) {
  const order = orderOf(file, values, options);
  const language = order.program === "node" ? "js" : "py";
  const folder = kit.requireBuiltin("path").resolve(String(options.cwd?.pathname ?? options.cwd ?? host.workingDirectory()));
  if (!isFolder(folder)) throw absent(call, file, values, `no folder ${folder}`);
  const environment = Object.entries(options.env ?? process.env).filter(([, value]) => value !== undefined);
  return {
    language, code: ENTRIES[language],
    order: JSON.stringify({ ...order, cwd: folder, stdin: textOf(input), input: pipes.input, ipc, pid, ppid: process.pid }),
    environment: environment.flatMap(([name, value]) => [name, String(value)]),
    timeout: options.timeout > 0 ? Math.min(Math.ceil(options.timeout) * 1e6, Number.MAX_SAFE_INTEGER) : undefined,
    pipes,
  };
}

// The call of the host that runs it.
const calledWith = ({ language, code, order, environment, timeout, pipes: { input, out, err } }) =>
  [host.calls.PROCESSES_RUN, language, code, order, environment, timeout, input, out, err];

// Programs that a machine may well have: who asks for one is told what there is instead.
const USUAL = new Set(`7z apt apt-get aws az brew bun cargo clang cmake conda convert deno docker dotnet ffmpeg ffprobe g++ gcc gh
  git go gradle htop java javac jq kubectl make man mongo mvn mysql nano npm npx nvm pandoc perl php pip pip3 pnpm podman poetry psql rails
  redis-cli rg rsync ruby rustc rustup scp sqlite3 ssh sudo systemctl terraform top ts-node tsc tsx unrar vi vim wget yarn`.split(/\s+/));

function absent(call, file, values, why) {
  const hint = /^no folder/.test(why) || USUAL.has(file.slice(file.lastIndexOf("/") + 1)) ? ` (${why})` : "";
  const error = new Error(`${call} ${file} ENOENT${hint}`);
  return Object.assign(error, { errno: -2, code: "ENOENT", syscall: `${call} ${file}`, path: file, spawnargs: values });
}

// What an answer of the host says: status or signal, what was printed, and an error when nothing was run.
function ended(call, request, file, values, answer, signal) {
  const pieces = [[], []];
  for (const [stream, text] of answer.output) pieces[stream - 1].push(bytesOf(text));
  const { failure } = answer;
  if (failure !== null && failure.kind !== "timeout") pieces[1].push(Buffer.from(`Killed: ${failure.message}\n`));
  const [out, err] = pieces.map((list) => Buffer.concat(list));
  let error;
  if (JSON.parse(request.order).program === "command" && answer.status === 127) {
    error = absent(call, file, values, err.toString().trim().replace(/^.*?command not found: /s, ""));
  } else if (failure?.kind === "output") {
    error = Object.assign(new Error(failure.message), { code: "ENOBUFS", errno: -105 });
  } else if (failure?.kind === "not-started") {
    error = Object.assign(new Error(`${call} ${file} EAGAIN (${failure.message})`), { code: "EAGAIN", errno: -11 });
  }
  const killed = failure?.kind === "timeout" ? signal ?? "SIGTERM" : "SIGKILL";
  return { out, err, error, status: answer.status, signal: answer.status === null ? killed : null, timedOut: failure?.kind === "timeout" };
}

const bytesFrom = (input) => (input === undefined || input === null ? new Uint8Array(0)
  : typeof input === "string" ? Buffer.from(input) : new Uint8Array(input.buffer ?? input, input.byteOffset, input.byteLength));

function stdioOf(stdio, usual) {
  const list = Array.isArray(stdio) ? [...stdio] : [stdio, stdio, stdio];
  return [0, 1, 2].map((at) => {
    const one = list[at] ?? usual[at];
    if (one === at) return "inherit";
    return one === process.stdout ? 1 : one === process.stderr ? 2 : one;
  });
}

// Writes what was printed to where it goes: nowhere, to the cell, to a file; what is piped is left to the caller.
function pass(target, at, data) {
  if (target === "inherit" || target === 1 || target === 2) host.write(target === 2 || (target === "inherit" && at === 2) ? 1 : 0, data);
  else if (typeof target === "number") kit.requireBuiltin("fs").writeSync(target, data);
  else if (typeof target?.write === "function") target.write(data);
}

// ---- Processes that are waited for in place

function runNow(file, values, options, usual) {
  const stdio = stdioOf(options.stdio, usual);
  const pid = process.pid + ++count;
  let end;
  try {
    const request = asked("spawnSync", file, values, options, bytesFrom(options.input), pid);
    end = ended("spawnSync", request, file, values, kit.callHostNow(...calledWith(request)), options.killSignal);
  } catch (error) {
    if (error?.kind !== undefined) error.code ??= "EAGAIN";
    else if (error?.code !== "ENOENT") throw error;
    end = { out: Buffer.alloc(0), err: Buffer.alloc(0), status: null, signal: null, error };
  }
  if (end.timedOut) end.error = Object.assign(new Error(`spawnSync ${file} ETIMEDOUT`), { code: "ETIMEDOUT", errno: -110, path: file });
  // What never began has printed nothing.
  if (end.error?.code === "ENOENT") {
    return { result: { error: end.error, status: null, signal: null, output: null, pid: 0, stdout: undefined, stderr: undefined }, err: Buffer.alloc(0) };
  }
  const shown = [end.out, end.err].map((data, at) => {
    if (stdio[at + 1] === "pipe") return options.encoding && options.encoding !== "buffer" ? data.toString(options.encoding) : data;
    pass(stdio[at + 1], at + 1, data);
    return null;
  });
  const result = { ...(end.error !== undefined && { error: end.error }), status: end.status, signal: end.signal, output: [null, ...shown], pid, stdout: shown[0], stderr: shown[1] };
  return { result, err: end.err };
}

const split = (values, options) => (Array.isArray(values) ? [values.map(String), options ?? {}] : [[], values ?? options ?? {}]);

function spawnSync(file, values, options) {
  const [list, rest] = split(values, options);
  return runNow(String(file), list, rest, ["pipe", "pipe", "pipe"]).result;
}

function checked(command, { result, err }) {
  if (result.error === undefined && result.status === 0) return result.stdout;
  const said = err.toString();
  const error = result.error ?? new Error(`Command failed: ${command}${said ? `\n${said}` : ""}`);
  throw Object.assign(error, result);
}

function execFileSync(file, values, options) {
  const [list, rest] = split(values, options);
  return checked([file, ...list].join(" "), runNow(String(file), list, rest, ["pipe", "pipe", "inherit"]));
}

function execSync(command, options = {}) {
  return checked(command, runNow(String(command), [], { ...options, shell: true }, ["pipe", "pipe", "inherit"]));
}

// ---- Processes that run besides

// Bytes that are written to a pipe by one call.
const PIECE = 1 << 19;

class Stdin extends Writable {
  constructor(pipe) {
    super({ decodeStrings: true });
    this.number = pipe;
  }
  _write(chunk, _encoding, done) {
    this.#send(chunk).then(() => done(), done);
  }
  async #send(chunk) {
    for (let at = 0; at < chunk.length; at += PIECE) {
      for (let rest = textOf(chunk.subarray(at, at + PIECE)); rest !== "";) {
        const answer = await writePipe(this.number, rest);
        if (answer.broken) throw Object.assign(new Error("write EPIPE"), { errno: -32, code: "EPIPE", syscall: "write" });
        rest = answer.rest;
      }
    }
  }
  _destroy(error, done) {
    // Also when all was written.
    try {
      closePipe(this.number, false);
    } catch {
      // The process has ended, and the pipe with it.
    }
    done(error);
  }
}

class Source extends Readable {
  #asked = false;
  // What is being read.
  pending;
  constructor(pipe) {
    super();
    this.number = pipe;
  }
  _read() {
    if (this.#asked || this.destroyed) return;
    this.#asked = true;
    this.pending = readPipe(this.number).then(({ text, hasEnded }) => {
      this.#asked = false;
      this.pending = undefined;
      if (text !== "") this.push(bytesOf(text));
      if (hasEnded) this.push(null);
      else if (text === "") this._read();
    }, (error) => {
      this.pending = undefined;
      if (error.kind === "cancelled") this.push(null);
      else this.destroy(error);
    });
  }
  _destroy(error, done) {
    try {
      if (!this.readableEnded) closePipe(this.number, true);
    } catch {
      // The process has ended, and the pipe with it.
    }
    done(error);
  }
}

class ChildProcess extends EventEmitter {
  exitCode = null;
  signalCode = null;
  killed = false;
  connected = false;
  constructor(file, values, options) {
    super();
    this.spawnfile = file;
    this.spawnargs = [file, ...values];
    this.pid = process.pid + ++count;
    const stdio = stdioOf(options.stdio, ["pipe", "pipe", "pipe"]);
    // What says that there is no such command is read when it has ended.
    const isCommand = !options.shell && kindOf(file) === "command";
    const names = ["input", "out", "err"].filter((name, at) => stdio[at] === "pipe" && !(isCommand && name === "err"));
    const numbers = names.length > 0 ? makePipes(names.length) : [];
    const pipes = Object.fromEntries(names.map((name, at) => [name, numbers[at]]));
    this.#pipes = pipes;
    this.stdin = pipes.input === undefined ? null : new Stdin(pipes.input);
    this.stdout = pipes.out === undefined ? null : new Source(pipes.out);
    this.stderr = pipes.err !== undefined ? new Source(pipes.err) : stdio[2] === "pipe" ? new Readable({ read() {} }) : null;
    this.stdio = [this.stdin, this.stdout, this.stderr];
    options.signal?.addEventListener("abort", () => this.kill(options.killSignal), { once: true });
    if (options.forks) {
      const { mine, its } = pair();
      this.#link = new Link(this, mine);
      this.#linkEnds = its;
    }
    // Whoever starts it has this turn to listen.
    queueMicrotask(() => this.#begin(file, values, options, stdio, pipes));
  }
  #call;
  #pipes = {};
  #link;
  #linkEnds;
  // Closes the ends that were the process's: it may never have begun, and then nobody else does.
  #closePipes() {
    for (const [name, pipe] of Object.entries(this.#pipes)) {
      try {
        closePipe(pipe, name === "input");
      } catch {
        // The cell is being stopped, and everything with it.
      }
    }
  }
  #begin(file, values, options, stdio, pipes) {
    if (this.killed) return;
    let request;
    try {
      request = asked("spawn", file, values, options, new Uint8Array(0), this.pid, pipes, this.#linkEnds);
      this.#call = kit.callHost(...calledWith(request));
    } catch (error) {
      this.#fail(error);
      return;
    }
    this.emit("spawn");
    this.#link?.listen();
    this.#call.answer.then(
      async (answer) => {
        // What it has printed last comes before its end, for whoever reads it.
        for (const stream of [this.stdout, this.stderr]) while (stream?.pending !== undefined) await stream.pending;
        await this.#link?.finish();
        if (this.signalCode === null) this.#finish(ended("spawn", request, file, values, answer, options.killSignal), stdio);
      },
      (error) => {
        if (this.signalCode !== null) return;
        this.#closePipes();
        if (error.kind === "cancelled") this.#finish({ out: Buffer.alloc(0), err: Buffer.alloc(0), status: null, signal: "SIGKILL" }, stdio);
        else this.#fail(Object.assign(error, { code: "EAGAIN" }));
      },
    );
  }
  #fail(error) {
    this.pid = undefined;
    for (const stream of this.stdio) stream?.destroy();
    this.emit("error", error);
    this.emit("close", error.errno ?? -1, null);
  }
  #finish({ out, err, error, status, signal, timedOut }, stdio) {
    if (error !== undefined) {
      this.#fail(error);
      return;
    }
    if (timedOut) this.killed = true;
    [this.exitCode, this.signalCode] = [status, signal];
    if (this.stdout === null) pass(stdio[1], 1, out);
    if (this.stderr === null) pass(stdio[2], 2, err);
    else if (!(this.stderr instanceof Source)) {
      if (err.length > 0) this.stderr.push(err);
      this.stderr.push(null);
    }
    this.stdin?.destroy();
    this.emit("exit", status, signal);
    const open = [this.stdout, this.stderr].filter((stream) => stream !== null && !stream.closed);
    let left = open.length;
    const closed = () => {
      if (left-- <= 1) this.emit("close", status, signal);
    };
    if (left === 0) closed();
    for (const stream of open) {
      stream.once("close", closed);
      if (stream.readableFlowing === null && stream.listenerCount("readable") === 0) stream.resume();
    }
  }
  kill(signal = "SIGTERM") {
    if (this.exitCode !== null || this.signalCode !== null) return false;
    if (signal === 0) return true;
    const name = typeof signal === "number" ? Object.keys(SIGNALS).find((each) => SIGNALS[each] === signal) : signal;
    if (SIGNALS[name] === undefined) throw kit.coded("ERR_UNKNOWN_SIGNAL", `Unknown signal: ${signal}`, TypeError);
    this.killed = true;
    this.signalCode = name;
    this.#call?.giveUp();
    this.#closePipes();
    this.#link?.finish();
    setImmediate(() => {
      this.signalCode = null;
      this.#finish({ out: Buffer.alloc(0), err: Buffer.alloc(0), status: null, signal: name }, ["ignore", "ignore", "ignore"]);
    });
    return true;
  }
  send(...given) {
    if (this.#link === undefined) throw kit.coded("ERR_IPC_CHANNEL_CLOSED", "Channel closed");
    return this.#link.send(...given);
  }
  disconnect() {
    this.#link?.disconnect();
  }
  ref() {}
  unref() {}
  [Symbol.dispose]() {
    this.kill();
  }
}

function spawn(file, values, options) {
  const [list, rest] = split(values, options);
  if (typeof file !== "string") throw kit.invalidArgument("file", "string", file);
  return new ChildProcess(file, list, rest);
}

function fork(file, values, options) {
  const [list, rest] = split(values, options);
  return spawn(process.execPath, [String(file), ...list], { ...rest, forks: true, stdio: rest.silent ? "pipe" : ["ignore", "inherit", "inherit"] });
}

// Gathers what a process prints, and calls back at its end.
function gathering(child, command, options, callback) {
  const encoding = options.encoding === undefined ? "utf8" : options.encoding;
  const said = [[], []];
  child.stdout?.on("data", (piece) => said[0].push(piece));
  child.stderr?.on("data", (piece) => said[1].push(piece));
  let failure;
  const done = (code, signal) => {
    const texts = said.map((list) => Buffer.concat(list)).map((data) => (encoding && encoding !== "buffer" ? data.toString(encoding) : data));
    if (failure === undefined && code === 0) {
      callback?.(null, ...texts);
      return;
    }
    const error = failure ?? new Error(`Command failed: ${command}\n${texts[1]}`);
    if (failure === undefined) Object.assign(error, { code, killed: child.killed, signal });
    callback?.(Object.assign(error, { cmd: command }), ...texts);
  };
  child.on("error", (error) => (failure = error));
  child.on("close", done);
  return child;
}

const withCallback = (options, callback) => (typeof options === "function" ? [{}, options] : [options ?? {}, callback]);

function exec(command, options, callback) {
  const [rest, call] = withCallback(options, callback);
  return gathering(spawn(command, [], { ...rest, shell: true }), command, rest, call);
}

function execFile(file, values, options, callback) {
  if (typeof values === "function") return execFile(file, [], {}, values);
  if (!Array.isArray(values)) return execFile(file, [], values, options);
  const [rest, call] = withCallback(options, callback);
  return gathering(spawn(file, values, rest), [file, ...values].join(" "), rest, call);
}

// As promises, with both texts.
for (const run of [exec, execFile]) {
  Object.defineProperty(run, promisify.custom, {
    value: (...values) => {
      let child;
      const promise = new Promise((resolve, reject) => {
        child = run(...values, (error, stdout, stderr) => (error === null ? resolve({ stdout, stderr }) : reject(Object.assign(error, { stdout, stderr }))));
      });
      return Object.assign(promise, { child });
    },
  });
}

module.exports = { ChildProcess, exec, execFile, execFileSync, execSync, fork, spawn, spawnSync };
