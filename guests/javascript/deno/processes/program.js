// What a kernel does that is a process: it reads its order, and runs a program as its only cell. The program ends when
// nothing is left that it waits for, as anywhere else.
const { bytesOf } = require("deno/processes/process_text.js");

// Options of Node's command line that have a value of their own and change nothing here.
const VALUED = new Set(["-r", "--require", "--import", "-C", "--conditions", "--stack-trace-limit"]);
// How long it is left alone between two looks at what it waits for, in milliseconds, at first and at most.
const LOOK_FIRST = 1;
const LOOK_LAST = 20;

const turn = (delay) => {
  let timer;
  const waiting = new Promise((resolve) => (timer = setTimeout(resolve, delay)));
  timer.unref();
  return waiting;
};

// Waits until no timer is set and no call is under way.
async function settle() {
  for (let delay = LOOK_FIRST; ; delay = Math.min(delay * 1.5, LOOK_LAST)) {
    await turn(0);
    if (!kit.hasTimers() && !kit.hasCalls()) return;
    await turn(delay);
  }
}

// Runs a text as a script; the value of its last expression.
async function runText(text, isModule) {
  if (!isModule) {
    try {
      return kit.requireBuiltin("vm").runInThisContext(text, "[eval]");
    } catch (error) {
      const isFault = error instanceof SyntaxError && /\b(?:import|export|await)\b/.test(text);
      if (!isFault) throw error;
    }
  }
  return kit.importModule(`data:text/javascript,${encodeURIComponent(text)}`, "<cell>");
}

async function run(values) {
  let prints = false;
  let isModule = false;
  let isTest = false;
  const list = [...values];
  const arguments_ = (file) => (process.argv = [process.execPath, ...(file === undefined ? [] : [file]), ...list]);
  while (list.length > 0 && list[0].startsWith("-") && list[0] !== "-") {
    const option = list.shift();
    if (option === "-v" || option === "--version") {
      host.write(0, `${process.version}\n`);
      return;
    }
    if (["-e", "--eval", "-p", "--print", "-pe"].includes(option)) {
      prints = option.startsWith("-p") || option === "--print";
      const text = list.shift() ?? "";
      if (list[0] === "--") list.shift();
      arguments_();
      const value = await runText(text, isModule);
      if (prints) console.log(value);
      return;
    }
    if (option === "--input-type=module") isModule = true;
    else if (option === "--test") isTest = true;
    else if (/^--test-reporter(?:=|$)/.test(option)) kit.requireBuiltin("node:test").report(option.split("=")[1] ?? list.shift());
    else if (VALUED.has(option)) list.shift();
    else if (option === "--") break;
  }
  if (isTest) return runTests(list);
  const file = list.shift();
  if (file === undefined || file === "-") {
    arguments_(file);
    await runText(kit.decode(kit.platform("stdin").readWhole()), isModule);
    return;
  }
  const path = kit.resolveRequire(kit.requireBuiltin("path").resolve(file), `${host.workingDirectory()}/<cell>`).path;
  arguments_(path);
  kit.setMain(path);
  await kit.importModule(path, "<cell>");
}

// The files that `--test` runs where none is named, below the working directory.
const TEST_FILE = /(?:^|\/)(?:test|test[-.].*|.*[-._]test)\.(?:[cm]?js|ts)$/;
const TEST_FOLDER = /(?:^|\/)test\/.*\.(?:[cm]?js|ts)$/;

// Runs files of tests one after the other. As in Node, a file without tests is one test, which failed if it threw.
async function runTests(names) {
  const { readdirSync, statSync } = kit.requireBuiltin("fs");
  const path = kit.requireBuiltin("path");
  const found = names.flatMap((name) => (statSync(name).isDirectory() ? readdirSync(name, { recursive: true }).map((each) => path.join(name, each)).filter((each) => TEST_FILE.test(each)) : [name]));
  const all = names.length > 0 ? found : readdirSync(".", { recursive: true }).filter((name) => !/(?:^|\/)node_modules\//.test(name) && (TEST_FILE.test(name) || TEST_FOLDER.test(name))).sort();
  process.argv = [process.execPath, ...all];
  for (const name of all) await kit.importModule(path.resolve(name), "<cell>");
  await kit.requireBuiltin("node:test").ended();
}

// What Node writes of an error that nothing caught: where it was thrown, with the line, and what it is.
function told(error) {
  // The cell that runs the program is nobody's concern.
  const text = kit.inspect(error).split("\n").filter((line) => !line.includes(" <cell 1>:")).join("\n");
  const record = kit.failure(error, undefined, undefined);
  const [, file, line, column] = /^ {4}at (?:.*\()?(\/.*?):(\d+):(\d+)\)?$/m.exec(record.traceback) ?? [];
  const source = file === undefined ? undefined : kit.moduleSource(file)?.split(/\r\n|[\n\r\u2028\u2029]/)[line - 1];
  const place = source === undefined ? "" : `${file}:${line}\n${source}\n${" ".repeat(column - 1)}^\n\n`;
  const head = kit.isError(error) ? "" : "Uncaught:\n";
  return `${place}${head}${text}\n\nNode.js ${process.version}\n`;
}

async function main() {
  const order = JSON.parse(kit.answered(() => host.processOrder()));
  host.writeExactly();
  [process.pid, process.ppid] = [order.pid, order.ppid];
  host.changeDirectory(order.cwd);
  if (order.input === undefined) kit.platform("stdin").give(bytesOf(order.stdin));
  else kit.platform("stdin").givePipe(order.input);
  if (order.ipc !== undefined) require("deno/processes/ipc.js").attach(order.ipc);
  try {
    await run(order.argv.slice(1));
  } catch (error) {
    host.write(1, told(error));
    process.emit("exit", 1);
    host.exit(1);
  }
  // Who is told that nothing is left may begin something.
  do {
    await settle();
    process.emit("beforeExit", process.exitCode ?? 0);
    await turn(0);
  } while (kit.hasTimers() || kit.hasCalls());
  // `process.exit` tells who listens.
  if (process.exitCode) process.exit();
  process.emit("exit", 0);
  if (process.exitCode) host.exit(Number(process.exitCode));
}

module.exports = { main };
