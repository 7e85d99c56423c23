// node:test: suites and tests, run one after the other as they are declared. What came of them is output of the cell.
//
// Times are left out of the report: they would differ each time.
const { AsyncLocalStorage } = kit.requireBuiltin("async_hooks");

// The suite or test that declares others.
const running = new AsyncLocalStorage();

const HOOKS = ["before", "after", "beforeEach", "afterEach"];
const isFunction = (value) => typeof value === "function";

let counts = newCounts();
// The end of all tests that were declared at the top so far.
let last = Promise.resolve();

function newCounts() {
  return { tests: 0, suites: 0, pass: 0, fail: 0, skipped: 0, todo: 0 };
}

class Node {
  hooks = Object.fromEntries(HOOKS.map((name) => [name, []]));
  children = [];
  failed = false;
  constructor(parent, name, options, body, isSuite) {
    Object.assign(this, { parent, name, options, body, isSuite, depth: parent === undefined ? 0 : parent.depth + 1 });
  }
  print(text) {
    const indent = "  ".repeat(this.depth);
    host.write(0, text.split("\n").map((line) => `${indent}${line}\n`).join(""));
  }
}

// Arguments as tests take them: a name, options and a function, each of which may be missing.
function described(values) {
  const body = values.find(isFunction);
  const options = values.find((value) => typeof value === "object" && value !== null) ?? {};
  const name = values.find((value) => typeof value === "string") ?? (body?.name || "<anonymous>");
  return [name, options, body];
}

async function call(hooks) {
  for (const hook of hooks) await hook();
}

function hooksAround(node, name) {
  const chain = [];
  for (let at = node.parent; at !== undefined; at = at.parent) chain.push(at.hooks[name]);
  return (name === "beforeEach" ? chain.reverse() : chain).flat();
}

// A function that takes a callback is over when that is called.
const invoke = (body, context) =>
  body.length < 2 ? body(context) : new Promise((resolve, reject) => body(context, (error) => (error ? reject(error) : resolve())));

function within(promise, { timeout }) {
  if (!Number.isFinite(timeout)) return promise;
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error(`test timed out after ${timeout}ms`), { code: "ERR_TEST_FAILURE" })), timeout);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

class TestContext {
  #node;
  #skip;
  constructor(node) {
    this.#node = node;
    this.signal = new AbortController().signal;
    this.mock = new MockTracker();
    for (const name of HOOKS) this[name] = (hook) => void node.hooks[name].push(hook);
    this.assert = kit.requireBuiltin("assert");
  }
  get name() {
    return this.#node.name;
  }
  get fullName() {
    const names = [];
    for (let at = this.#node; at !== undefined; at = at.parent) names.unshift(at.name);
    return names.join(" > ");
  }
  get skipped() {
    return this.#skip;
  }
  test(...values) {
    return run(new Node(this.#node, ...described(values), false));
  }
  skip(why = true) {
    this.#skip = why;
  }
  todo(why = true) {
    this.#node.options = { ...this.#node.options, todo: why };
  }
  diagnostic(text) {
    this.#node.print(`ℹ ${text}`);
  }
}

function report(node, mark, note) {
  const why = typeof note === "string" ? ` # ${note}` : "";
  node.print(`${mark} ${node.name}${why}`);
}

// Runs a test or suite, and those within it; true when all went well.
async function run(node) {
  const { options } = node;
  counts[node.isSuite ? "suites" : "tests"]++;
  if (options.skip || node.body === undefined) {
    if (!node.isSuite) counts[options.todo ? "todo" : "skipped"]++;
    report(node, "﹣", options.todo ? "TODO" : typeof options.skip === "string" ? options.skip : "SKIP");
    return true;
  }
  if (node.isSuite) node.print(`▶ ${node.name}`);
  const context = new TestContext(node);
  let problem;
  try {
    await running.run(node, async () => {
      if (!node.isSuite) await call(hooksAround(node, "beforeEach"));
      await within(invoke(node.body, context), options);
      await call(node.hooks.before);
      for (const child of node.children) if (!(await run(child))) node.failed = true;
    });
    if (node.failed) problem = new Error(node.isSuite ? "a test of this suite failed" : "a test within this one failed");
  } catch (error) {
    problem = error;
  }
  try {
    await call(node.hooks.after);
    if (!node.isSuite) await call(hooksAround(node, "afterEach"));
  } catch (error) {
    problem ??= error;
  }
  context.mock.restoreAll();
  if (problem !== undefined && node.parent !== undefined) node.parent.failed = true;
  if (node.isSuite) {
    report(node, problem === undefined ? "✔" : "✖");
    if (problem !== undefined && !node.failed) node.print(`  ${kit.errorText(problem).replaceAll("\n", "\n  ")}`);
    return problem === undefined;
  }
  const isSkipped = context.skipped !== undefined;
  counts[options.todo ? "todo" : isSkipped ? "skipped" : problem === undefined ? "pass" : "fail"]++;
  report(node, isSkipped ? "﹣" : problem === undefined ? "✔" : "✖", options.todo ? "TODO" : isSkipped ? "SKIP" : undefined);
  if (problem !== undefined) {
    node.print(`  ${(kit.isError(problem) ? kit.errorText(problem) : kit.inspect(problem)).replaceAll("\n", "\n  ")}`);
    process.exitCode = options.todo ? process.exitCode : 1;
  }
  return problem === undefined || Boolean(options.todo);
}

// The sums, when no more test has been declared at the top.
function summarize(end) {
  if (end !== last) return;
  host.write(0, Object.entries(counts).map(([name, count]) => `ℹ ${name} ${count}\n`).join(""));
  counts = newCounts();
}

const declare = (isSuite, extra = {}) => function (...values) {
  const [name, options, body] = described(values);
  const parent = running.getStore();
  const node = new Node(parent, name, { ...options, ...extra }, body, isSuite);
  if (parent?.isSuite) {
    parent.children.push(node);
    return Promise.resolve();
  }
  if (parent !== undefined) return run(node).then(() => {});
  const done = last.then(() => run(node)).then(() => {});
  last = done;
  done.then(() => summarize(done));
  return done;
};

const withForms = (isSuite) => Object.assign(declare(isSuite), {
  skip: declare(isSuite, { skip: true }), todo: declare(isSuite, { todo: true }), only: declare(isSuite),
});

// ---- Functions that remember their calls

class MockTracker {
  #restores = [];
  fn(original = () => {}, implementation = original) {
    const calls = [];
    let once = new Map();
    let current = isFunction(implementation) ? implementation : original;
    const mocked = function (...values) {
      const call = { arguments: values, this: this, target: new.target, result: undefined, error: undefined, stack: new Error() };
      const task = once.get(calls.length) ?? current;
      calls.push(call);
      try {
        return (call.result = new.target ? Reflect.construct(task, values, new.target) : task.apply(this, values));
      } catch (error) {
        call.error = error;
        throw error;
      }
    };
    mocked.mock = {
      calls,
      callCount: () => calls.length,
      mockImplementation: (task) => void (current = task),
      mockImplementationOnce: (task, at = calls.length) => void once.set(at, task),
      resetCalls: () => void (calls.length = 0),
      restore: () => void ([current, once] = [original, new Map()]),
    };
    return mocked;
  }
  method(object, name, implementation, options) {
    const original = object[name];
    if (!isFunction(original)) throw kit.invalidArgument("methodName", "a method", original);
    const own = Object.getOwnPropertyDescriptor(object, name);
    const mocked = this.fn(original, isFunction(implementation) ? implementation : original, options);
    Object.defineProperty(object, name, { value: mocked, writable: true, configurable: true, enumerable: own?.enumerable ?? false });
    const restore = () => (own === undefined ? delete object[name] : Object.defineProperty(object, name, own));
    mocked.mock.restore = restore;
    this.#restores.push(restore);
    return mocked;
  }
  restoreAll() {
    for (const restore of this.#restores.splice(0).reverse()) restore();
  }
  reset() {
    this.restoreAll();
  }
  get timers() {
    throw kit.unsupported("mock.timers", "give the code a clock of your own");
  }
}

const hook = (name) => (task) => {
  const node = running.getStore();
  if (node === undefined) throw kit.unsupported(`node:test ${name}`, "hooks stand within a suite or a test");
  node.hooks[name].push(task);
};

const test = withForms(false);
const suite = withForms(true);
module.exports = Object.assign(test, {
  test, it: withForms(false), describe: suite, suite, mock: new MockTracker(), ...Object.fromEntries(HOOKS.map((name) => [name, hook(name)])),
  run() {
    throw kit.unsupported("test.run", "tests of a file run when the file is imported");
  },
});
