// node:test: suites and tests, run one after the other as they are declared. What came of them is output of the cell.
//
// Times are left out of the report: they would differ each time.
const { AsyncLocalStorage } = kit.requireBuiltin("async_hooks");

// The suite or test that declares others.
const running = new AsyncLocalStorage();

const HOOKS = ["before", "after", "beforeEach", "afterEach"];
const isFunction = (value) => typeof value === "function";

// How what came of tests is written: `spec` for people, `tap` for programs.
let reporter = "spec";
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
    const indent = (reporter === "tap" ? "    " : "  ").repeat(this.depth);
    host.write(0, text.split("\n").map((line) => `${indent}${line}\n`).join(""));
  }
}

// Hooks that stand outside of all suites.
let rootHooks = Object.fromEntries(HOOKS.map((name) => [name, []]));

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
  chain.push(rootHooks[name]);
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

// The number of a test among those beside it.
let topCount = 0;
function numberOf(node) {
  if (node.parent === undefined) return ++topCount;
  node.parent.count = (node.parent.count ?? 0) + 1;
  return node.parent.count;
}

function report(node, mark, note) {
  if (reporter === "tap") {
    if (node.count > 0) node.print(`    1..${node.count}`);
    const isBad = mark === "✖";
    const directive = note === undefined ? "" : ` # ${["TODO", "SKIP"].includes(note) ? note : node.options.todo ? `TODO ${note}` : `SKIP ${note}`}`;
    return node.print(`${isBad ? "not ok" : "ok"} ${numberOf(node)} - ${node.name.replaceAll("#", "\\#")}${directive}`);
  }
  const why = typeof note === "string" ? ` # ${note}` : "";
  node.print(`${mark} ${node.name}${why}`);
}

// Runs a test or suite, and those within it; true when all went well.
async function run(node) {
  const { options } = node;
  if (reporter === "tap") {
    if (node.parent === undefined && topCount === 0) node.print("TAP version 13");
    node.print(`# Subtest: ${node.name}`);
  }
  counts[node.isSuite ? "suites" : "tests"]++;
  if (options.skip || node.body === undefined) {
    if (!node.isSuite) counts[options.todo ? "todo" : "skipped"]++;
    report(node, "﹣", options.todo ? "TODO" : typeof options.skip === "string" ? options.skip : "SKIP");
    return true;
  }
  if (node.isSuite && reporter === "spec") node.print(`▶ ${node.name}`);
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
    const text = kit.isError(problem) ? kit.errorText(problem) : kit.inspect(problem);
    if (reporter === "spec") node.print(`  ${text.replaceAll("\n", "\n  ")}`);
    else node.print(`  ---\n  failureType: 'testCodeFailure'\n  error: |-\n    ${text.replaceAll("\n", "\n    ")}\n  code: 'ERR_TEST_FAILURE'\n  ...`);
    process.exitCode = options.todo ? process.exitCode : 1;
  }
  return problem === undefined || Boolean(options.todo);
}

// The sums, when no more test has been declared at the top.
function summarize(end) {
  if (end !== last) return;
  const { tests, suites, pass, fail, skipped, todo } = counts;
  if (reporter === "tap") host.write(0, `1..${topCount}\n`);
  const all = reporter === "tap" ? { tests, suites, pass, fail, cancelled: 0, skipped, todo } : counts;
  host.write(0, Object.entries(all).map(([name, count]) => `${reporter === "tap" ? "#" : "ℹ"} ${name} ${count}\n`).join(""));
  topCount = 0;
  counts = newCounts();
  rootHooks = Object.fromEntries(HOOKS.map((name) => [name, []]));
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
  const done = last.then(() => call(rootHooks.before.splice(0))).then(() => run(node)).then(() => {});
  last = done;
  done.then(async () => {
    if (done === last) await call(rootHooks.after.splice(0));
    summarize(done);
  });
  return done;
};

const withForms = (isSuite) => Object.assign(declare(isSuite), {
  skip: declare(isSuite, { skip: true }), todo: declare(isSuite, { todo: true }), only: declare(isSuite),
});

// ---- Timers and a clock that go on when they are told to

class MockTimers {
  #saved;
  #now = 0;
  #due = [];
  #last = 0;
  get isEnabled() {
    return this.#saved !== undefined;
  }
  enable(options = {}) {
    if (this.isEnabled) throw kit.coded("ERR_INVALID_STATE", "MockTimers is already enabled!");
    const { apis = ["setTimeout", "setInterval", "setImmediate", "Date"], now = 0 } = Array.isArray(options) ? { apis: options } : options;
    this.#now = Number(now);
    this.#saved = new Map();
    const set = (repeats) => (callback, delay = 0, ...values) => {
      const timer = { id: ++this.#last, at: this.#now + Math.max(delay, 1), every: repeats ? Math.max(delay, 1) : undefined, run: () => callback(...values) };
      Object.assign(timer, { ref: () => timer, unref: () => timer, hasRef: () => true, [Symbol.toPrimitive]: () => timer.id });
      this.#due.push(timer);
      return timer;
    };
    const clear = (timer) => {
      this.#due = this.#due.filter((each) => each !== timer && each.id !== timer);
    };
    const timers = this;
    const RealDate = globalThis.Date;
    const names = {
      setTimeout: { setTimeout: set(false), clearTimeout: clear },
      setInterval: { setInterval: set(true), clearInterval: clear },
      setImmediate: { setImmediate: (callback, ...values) => set(false)(callback, 0, ...values), clearImmediate: clear },
      Date: { Date: class Date extends RealDate {
        constructor(...given) {
          super(...(given.length === 0 ? [timers.#now] : given));
        }
        static now() {
          return timers.#now;
        }
      } },
    };
    for (const api of apis) {
      if (!Object.hasOwn(names, api)) throw kit.coded("ERR_INVALID_ARG_VALUE", `The property 'options.apis' option ${api} is not supported.`);
      for (const [name, value] of Object.entries(names[api])) {
        this.#saved.set(name, Object.getOwnPropertyDescriptor(globalThis, name));
        Object.defineProperty(globalThis, name, { value, writable: true, enumerable: false, configurable: true });
      }
    }
  }
  tick(time = 1) {
    this.#need();
    const until = this.#now + time;
    for (;;) {
      const [next] = this.#due.filter((timer) => timer.at <= until).sort((a, b) => a.at - b.at || a.id - b.id);
      if (next === undefined) break;
      this.#now = Math.max(this.#now, next.at);
      if (next.every === undefined) this.#due = this.#due.filter((timer) => timer !== next);
      else next.at += next.every;
      next.run();
    }
    this.#now = until;
  }
  runAll() {
    this.#need();
    const last = this.#due.reduce((latest, timer) => Math.max(latest, timer.at), this.#now);
    this.tick(last - this.#now);
  }
  setTime(time) {
    this.#need();
    this.#now = Number(time);
  }
  reset() {
    if (!this.isEnabled) return;
    for (const [name, property] of this.#saved) Object.defineProperty(globalThis, name, property);
    this.#saved = undefined;
    this.#due = [];
  }
  [Symbol.dispose]() {
    this.reset();
  }
  #need() {
    if (!this.isEnabled) throw kit.coded("ERR_INVALID_STATE", "You should enable MockTimers first by calling the .enable function");
  }
}

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
    if (this.timers.isEnabled) this.timers.reset();
  }
  reset() {
    this.restoreAll();
  }
  timers = new MockTimers();
}

const hook = (name) => (task) => {
  const node = running.getStore();
  (node === undefined ? rootHooks : node.hooks)[name].push(task);
};

const test = withForms(false);
const suite = withForms(true);
module.exports = Object.assign(test, {
  test, it: withForms(false), describe: suite, suite, mock: new MockTracker(), ...Object.fromEntries(HOOKS.map((name) => [name, hook(name)])),
  report: (name) => void (reporter = name === "tap" ? "tap" : "spec"),
  ended: () => last,
  run() {
    throw kit.unsupported("test.run", "tests of a file run when the file is imported");
  },
});
