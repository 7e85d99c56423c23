// Sandboxes in this process.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";

import { CellFailed, Sandbox, SandboxError, Snapshot, configure, replay } from "cellar-sandbox";

const folder = await mkdtemp(join(tmpdir(), "cellar-test-"));
after(() => rm(folder, { recursive: true }));

/** A test with a sandbox of its own. */
function sandboxed(name, options, body) {
  test(name, async () => {
    const s = await Sandbox.create(options);
    try {
      await body(s);
    } finally {
      await s.close();
    }
  });
}

/** Runs a program of its own, which must end by itself. */
async function program(text) {
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", text], { timeout: 300_000 });
  return stdout.trim();
}

sandboxed("results", {}, async (s) => {
  const r = await s.run("x = 6 * 7; x");
  assert.equal(r.text, "42");
  assert.equal(r.error, null);
  assert.equal(r.check(), r);
  const failed = await s.run("1/0");
  assert.equal(failed.error?.name, "ZeroDivisionError");
  assert.equal(failed.error?.kind, "raised");
  assert.equal(failed.error?.line, 1);
  assert.throws(() => failed.check(), (error) => error instanceof CellFailed && error.error.name === "ZeroDivisionError");
  assert.deepEqual((await s.run("({ a: [1, 2] })", { language: "js" })).json, { a: [1, 2] });
  const many = await s.run(["n = 1", { code: "1/0", title: "fails" }, "n"]);
  assert.deepEqual(many.cells.map((cell) => cell.status), ["complete", "error", "pending"]);
  assert.equal(many.cells[1].title, "fails");
  const more = await s.run(["1/0", "n"], { keepGoing: true });
  assert.equal(more.cells[1].text, "1");
  assert.equal(more.toLlm()[0].type, "text");
  await assert.rejects(s.run("1", { language: "ruby" }), TypeError);
});

sandboxed("images", { language: "js" }, async (s) => {
  const svg = '<svg xmlns="http://www.w3.org/2000/svg" width="2" height="2"></svg>';
  // The command draws it, in a process of its own.
  const r = await s.run(`display({ mimeBundle: { "image/svg+xml": ${JSON.stringify(svg)} } })`);
  assert.deepEqual(r.images.map(({ mimeType }) => mimeType), ["image/png"]);
  assert.equal(Buffer.from(r.images[0].data).toString("latin1", 1, 4), "PNG");
  assert.deepEqual(r.toLlm().map(({ type }) => type), ["text", "image"]);
});

sandboxed("tools", {
  tools: {
    add: {
      description: "Adds two numbers",
      parameters: {
        type: "object",
        properties: { a: { type: "integer" }, b: { type: "integer" } },
        required: ["a", "b"],
        additionalProperties: false,
      },
      execute: async ({ a, b }) => a + b,
    },
    nothing: () => undefined,
    fails: () => {
      throw new RangeError("on purpose");
    },
    big: () => ({ n: 1n }),
    map: () => [new Map()],
    nan: () => NaN,
    date: () => new Date(0),
  },
}, async (s) => {
  assert.equal((await s.run("tool.add(a=40, b=2)")).text, "42");
  assert.equal((await s.run("await tool.add({ a: 40, b: 2 })", { language: "js" })).text, "42");
  assert.match((await s.run("tool.add(a='x', b=1)")).error.message, /expected integer/);
  assert.equal((await s.run("print(tool.nothing())")).text.trim(), "None");
  assert.match((await s.run("tool.fails()")).error.message, /RangeError: on purpose/);
  const caught = "try { await tool.fails() } catch (error) { String(error) }";
  assert.match((await s.run(caught, { language: "js" })).text, /RangeError: on purpose/);
  assert.match((await s.run("tool.big()")).error.message, /a bigint at `n` is no JSON/);
  assert.match((await s.run("tool.map()")).error.message, /an object Map at `0` is no JSON/);
  assert.match((await s.run("tool.nan()")).error.message, /NaN is no JSON/);
  assert.equal((await s.run("tool.date()")).text, "'1970-01-01T00:00:00.000Z'");
});

test("a tool uses the sandbox that called it, and several run at once", async () => {
  let arrived = 0;
  let release;
  const both = new Promise((resolve) => (release = resolve));
  const s = await Sandbox.create({
    tools: {
      meet: async () => {
        if (++arrived === 2) release();
        await both;
        return arrived;
      },
      inner: async ({ code }) => (await s.run(code, { language: "js" })).text,
    },
  });
  const code = "import asyncio\nawait asyncio.gather(tool.meet.aio(), tool.meet.aio())";
  assert.deepEqual((await s.run(code)).json, [2, 2]);
  assert.equal((await s.run("tool.inner(code='[1, 2].length')")).text, "'2'");
  await s.close();
});

test("schemas of libraries give JSON Schema, and make the arguments", async () => {
  const library = {
    "~standard": {
      version: 1,
      vendor: "test",
      validate: ({ when, ...more }) =>
        when === "never" ? { issues: [{ message: "not then", path: ["when"] }] } : { value: { when: new Date(when), ...more } },
      jsonSchema: { input: () => ({ type: "object", properties: { when: { type: "string" } }, required: ["when"] }) },
    },
  };
  const s = await Sandbox.create({
    tools: { year: { parameters: library, execute: ({ when }) => when.getUTCFullYear() }, same: { inputSchema: library, execute: () => 1 } },
  });
  assert.equal((await s.run("tool.year(when='2026-01-02')")).text, "2026");
  assert.equal((await s.run("tool.same(when='2026')")).text, "1");
  assert.match((await s.run("tool.year(when=1)")).error.message, /expected string/);
  assert.match((await s.run("tool.year(when='never')")).error.message, /TypeError: `\/when`: not then/);
  await s.close();
  const silent = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } };
  await assert.rejects(Sandbox.create({ tools: { f: { parameters: silent, execute: () => 1 } } }), /cannot say their JSON Schema/);
});

test("schemas of Zod", async (t) => {
  const found = await import("zod").catch(() => null);
  if (found === null) return t.skip("zod is not installed");
  const { z } = found;
  const parameters = z.object({ a: z.number().int(), b: z.number().int().default(2) });
  const s = await Sandbox.create({ tools: { add: { parameters, execute: ({ a, b }) => a + b } } });
  assert.equal((await s.run("tool.add(a=40)")).text, "42");
  assert.match((await s.run("tool.add(a='x')")).error.message, /expected integer/);
  await s.close();
});

sandboxed("models, agents and input", {
  llm: (prompt, { model, system }) => `${model}:${system}:${prompt}`,
  agent: async (prompt, { agentType, schema }) => (schema ? { n: 1 } : prompt + agentType),
  input: async (prompt) => prompt.toUpperCase(),
}, async (s) => {
  assert.equal((await s.run("llm('hi', model='smol', system='be brief')")).text, "'smol:be brief:hi'");
  assert.equal((await s.run("await llm('hi')", { language: "js" })).text, "default:null:hi");
  assert.equal((await s.run("agent('a ')")).text, "'a task'");
  assert.deepEqual((await s.run("agent('x', schema={'type': 'object'})")).json, { n: 1 });
  assert.equal((await s.run("input('who')")).json ?? (await s.run("input('who')")).text, "'WHO'");
});

test("requests are answered by a function as `fetch` has it", async () => {
  const seen = [];
  const s = await Sandbox.create({
    http: async (request) => {
      seen.push([request.method, request.url]);
      const body = new Uint8Array(await request.arrayBuffer());
      return new Response(body.length > 0 ? body : "none", { status: 201, headers: { "x-from": "here" } });
    },
  });
  const code = [
    "import urllib.request",
    "r = urllib.request.urlopen('https://example.com/a', data=b'\\x00\\xff')",
    "r.status, r.read(), r.headers['x-from']",
  ].join("\n");
  assert.equal((await s.run(code)).text, "(201, b'\\x00\\xff', 'here')");
  assert.equal((await s.run("await (await fetch('https://example.com/b')).text()", { language: "js" })).text, "none");
  assert.deepEqual(seen, [["POST", "https://example.com/a"], ["GET", "https://example.com/b"]]);
  await s.close();
});

sandboxed("events", { input: true }, async (s) => {
  const run = s.stream("for n in range(3): print(n)\nn");
  const types = [];
  let text = "";
  for await (const event of run) {
    types.push(event.type);
    if (event.type === "stdout") text += event.text;
  }
  assert.equal(text, "0\n1\n2\n");
  assert.equal(types[0], "run_started");
  assert.equal(types.at(-1), "run_finished");
  assert.ok(types.includes("display"));
  assert.match((await run.result()).text, /2$/);
  const failing = s.stream("1/0");
  for await (const event of failing) {
    if (event.type === "cell_finished") assert.equal(event.error?.name, "ZeroDivisionError");
  }
  // More than fits into a mailbox.
  let count = 0;
  for await (const event of s.stream("for n in range(2000): display(n)")) count += event.type === "display" ? 1 : 0;
  assert.equal(count, 2000);
  // A request for input, answered by hand.
  const asking = s.stream("input('n? ') * 2");
  const requests = [];
  for await (const event of asking) {
    if (event.type === "input_request") {
      requests.push(event.prompt);
      asking.answer(event, "ab");
    }
  }
  assert.deepEqual(requests, ["n? "]);
  assert.match((await asking.result()).text, /'abab'/);
});

sandboxed("leaving a stream, cancelling it and aborting it stop the cell", {}, async (s) => {
  const endless = "print('on', flush=True)\nkept = 1\nwhile True: pass";
  for await (const event of s.stream(endless)) {
    if (event.type === "stdout") break;
  }
  const run = s.stream(endless);
  for await (const event of run) {
    if (event.type === "stdout") run.cancel();
  }
  assert.equal((await run.result()).error.kind, "interrupted");
  const controller = new AbortController();
  const stopped = s.stream(endless, { signal: controller.signal });
  for await (const event of stopped) {
    if (event.type === "stdout") controller.abort();
  }
  assert.equal((await stopped.result()).error.kind, "interrupted");
  assert.equal(await s.get("kept"), 1);
});

test("a signal stops a run and the call that it waits for", async () => {
  const controller = new AbortController();
  let aborted;
  const told = new Promise((resolve) => (aborted = resolve));
  const s = await Sandbox.create({
    tools: {
      wait: (_, { signal }) => {
        signal.addEventListener("abort", aborted);
        controller.abort(new Error("enough"));
        return new Promise(() => {});
      },
    },
  });
  await assert.rejects(s.run("before = 1\ntool.wait()", { signal: controller.signal }), /enough/);
  await told;
  assert.equal(await s.get("before"), 1);
  await assert.rejects(s.run("1", { signal: AbortSignal.abort() }), { name: "AbortError" });
  await assert.rejects(s.run("while True: pass", { signal: AbortSignal.timeout(200) }), { name: "TimeoutError" });
  assert.equal((await s.run("before + 1")).text, "2");
  await s.close();
});

sandboxed("the event loop goes on while cells run", {}, async (s) => {
  let turns = 0;
  const timer = setInterval(() => (turns += 1), 1);
  const r = await s.run("import time\nend = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass\n1");
  clearInterval(timer);
  assert.equal(r.text, "1");
  assert.ok(turns >= 5, `${turns} turns`);
});

test("many runs at once, in order", async () => {
  const first = await Sandbox.create();
  await first.run("seen = []");
  const all = [first, await first.fork(), await first.fork(), await first.fork()];
  // More than a connection takes at once.
  const runs = all.flatMap((s) => Array.from({ length: 200 }, (_, n) => s.run(`seen.append(${n}); ${n}`)));
  const results = await Promise.all(runs);
  assert.deepEqual(results.map(({ text }) => Number(text)), runs.map((_, n) => n % 200));
  for (const s of all) {
    assert.equal((await s.run("seen == list(range(200))")).text, "True");
    await s.close();
  }
});

test("state: forks, snapshots, sleep", async () => {
  const s = await Sandbox.create();
  await s.run("squares = (n * n for n in range(9)); next(squares)");
  const state = await s.snapshot();
  const f = await s.fork();
  assert.equal((await f.run("next(squares), next(squares)")).text, "(1, 4)");
  assert.equal((await s.run("next(squares)")).text, "1");
  await s.rewind(state);
  await s.hibernate();
  assert.equal((await s.run("next(squares)")).text, "1");
  await s.close();
  assert.equal((await f.run("next(squares)")).text, "9");
  await f.close();
  const bytes = await state.bytes();
  const path = join(folder, "kept.snapshot");
  await writeFile(path, bytes);
  const again = await Sandbox.create({ snapshot: new Snapshot(path) });
  assert.equal((await again.run("next(squares)")).text, "1");
  await again.reset();
  assert.equal((await again.run("squares")).error.name, "NameError");
  await again.close();
  await state[Symbol.asyncDispose]();
  await assert.rejects(readFile(state.path), { code: "ENOENT" });
});

test("a store keeps a sandbox by its name, and a recording is played again", async () => {
  const options = { name: "mine", store: join(folder, "store") };
  const first = await Sandbox.create(options);
  await first.run("x = 41");
  await first.close();
  const second = await Sandbox.create(options);
  assert.equal((await second.run("x + 1")).text, "42");
  await second.close();
  const record = join(folder, "recording");
  const s = await Sandbox.create({ record });
  const events = [];
  for await (const event of s.stream("import random; print(random.random())")) events.push(event);
  await s.close();
  const played = await replay(record);
  const output = (all) => all.filter(({ type }) => type === "stdout").map(({ text }) => text);
  assert.deepEqual(output(played), output(events));
  await assert.rejects(replay(join(folder, "none")), SandboxError);
});

sandboxed("files", {}, async (s) => {
  await s.files.write("notes/a.txt", "hello");
  assert.equal((await s.run("open('notes/a.txt').read()")).text, "'hello'");
  assert.equal(await s.files.read("notes/a.txt", "utf8"), "hello");
  await s.files.write("b.bin", new Uint8Array([0, 255]));
  assert.deepEqual([...(await s.files.read("/workspace/b.bin"))], [0, 255]);
  assert.deepEqual((await s.files.list()).map(({ name, kind }) => [name, kind]), [["b.bin", "file"], ["notes", "folder"]]);
  await s.files.remove("b.bin");
  await assert.rejects(s.files.read("b.bin"), (error) => error instanceof SandboxError && error.code === "ENOENT");
  await assert.rejects(s.files.read("notes"), { code: "EISDIR" });
  const source = join(folder, "up");
  await promisify(execFile)("mkdir", ["-p", join(source, "deep")]);
  await writeFile(join(source, "deep/c.txt"), "c");
  await symlink("/etc/hostname", join(source, "link"));
  await s.files.upload(source, "up");
  assert.equal(await s.files.read("up/deep/c.txt", "utf8"), "c");
  assert.deepEqual((await s.files.list("up")).map(({ name }) => name), ["deep"]);
});

sandboxed("names and functions", { bindings: { given: [1] } }, async (s) => {
  await s.set("x", { n: [1, "a'\"\\\n\u2028🙂", null] });
  assert.deepEqual(await s.get("x"), { n: [1, "a'\"\\\n\u2028🙂", null] });
  assert.deepEqual(await s.get("given"), [1]);
  await s.set("y", { a: 1 }, { language: "js" });
  assert.deepEqual(await s.get("y", { language: "js" }), { a: 1 });
  await assert.rejects(s.set("x", 1n), /a bigint is no JSON/);
  await assert.rejects(s.get("missing"), CellFailed);
  await assert.rejects(s.get("a b"), TypeError);
  const names = (await s.variables()).map(({ name }) => name);
  assert.ok(names.includes("x") && names.includes("given"), names.join());
  assert.ok((await s.complete("givn = 1\ngive")).some((text) => text.includes("given")));
  const double = await s.cell((n) => ({ twice: n * 2 }));
  assert.deepEqual(await double(21), { twice: 42 });
  const where = await s.cell(async () => typeof process);
  assert.equal(typeof (await where()), "string");
  const fails = await s.cell(() => {
    throw new TypeError("in there");
  });
  await assert.rejects(fails(), (error) => error instanceof CellFailed && error.error.name === "TypeError");
});

test("grants and limits", async () => {
  await writeFile(join(folder, "m.txt"), "mounted");
  const s = await Sandbox.create({
    mounts: { "/m": folder },
    environment: { WHO: "you" },
    limits: { timeout: 1, memory_mib: 256 },
  });
  assert.equal((await s.run("import os; os.environ['WHO'], open('/m/m.txt').read()")).text, "('you', 'mounted')");
  assert.ok((await s.run("open('/m/new', 'w')")).isError);
  assert.equal((await s.run("while True: pass")).error.kind, "timeout");
  assert.equal((await s.run("while (true);", { language: "js", timeout: 1 })).error.kind, "timeout");
  await s.close();
  await assert.rejects(Sandbox.create({ nonsense: 1 }), TypeError);
  await assert.rejects(Sandbox.create({ mounts: { "/m": join(folder, "none") } }), SandboxError);
  await assert.rejects(Sandbox.create({ limits: { nonsense: 1 } }), SandboxError);
  const file = join(folder, "cellar.toml");
  await writeFile(file, '[environment]\nWHO = "file"\n');
  const configured = await Sandbox.create({ config: file });
  assert.equal((await configured.run("import os; os.environ['WHO']")).text, "'file'");
  await configured.close();
  await assert.rejects(Sandbox.create({ config: file, limits: { timeout: 1 } }), /given twice/);
});

test("closed sandboxes say so, and runs of a closing one end", async () => {
  const s = await Sandbox.create();
  const waiting = s.run("import asyncio\nawait asyncio.sleep(100)");
  await s.run("1");
  await s.close();
  await waiting.then((result) => assert.ok(result.isError), (error) => assert.ok(error instanceof SandboxError));
  await s.close();
  await assert.rejects(s.run("1"), { code: "closed" });
  await assert.rejects(s.files.list(), { code: "closed" });
  assert.throws(() => configure({ kernels: 1 }), /started already/);
  assert.throws(() => new Sandbox(), TypeError);
});

test("the process ends by itself with a sandbox open, and waits for what is under way", async () => {
  const text = `
    import { Sandbox } from "cellar-sandbox";
    const s = await Sandbox.create({ tools: { late: () => new Promise((resolve) => setTimeout(resolve, 50, "late")) } });
    s.run("tool.late()").then((result) => console.log(result.text));
  `;
  assert.equal(await program(text), "'late'");
});

test("`require` has it too, where it takes modules", () => {
  if (process.features.require_module) assert.equal(createRequire(import.meta.url)("cellar-sandbox").Sandbox, Sandbox);
});

test("threads of workers share the engine, and WebAssembly of the program goes on trapping", async () => {
  const text = `
    import { parentPort } from "node:worker_threads";
    import { Sandbox } from "cellar-sandbox";
    const s = await Sandbox.create();
    parentPort.postMessage((await s.run("6 * 7")).text);
    await s.close();
  `;
  const file = join(import.meta.dirname ?? new URL(".", import.meta.url).pathname, "worker.tmp.mjs");
  await writeFile(file, text);
  const said = Array.from({ length: 3 }, () => new Promise((resolve, reject) => {
    const worker = new Worker(file);
    worker.on("message", resolve);
    worker.on("error", reject);
  }));
  assert.deepEqual(await Promise.all(said), ["42", "42", "42"]);
  // One that is ended while cells run, and a tool, leaves the engine to the others.
  await writeFile(file, `
    import { parentPort } from "node:worker_threads";
    import { Sandbox } from "cellar-sandbox";
    const s = await Sandbox.create({ tools: { wait: () => { parentPort.postMessage("called"); return new Promise(() => {}); } } });
    s.run("tool.wait()");
    for await (const event of s.stream("while True: print(1)"));
  `);
  const ended = new Worker(file);
  await new Promise((resolve) => ended.once("message", resolve));
  await ended.terminate();
  await rm(file);
  const s = await Sandbox.create();
  assert.equal((await s.run("6 * 7")).text, "42");
  await s.close();
  // (module (memory 1) (func (export "f") (drop (i32.load (i32.const -4)))))
  const bytes = Uint8Array.from([
    0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 5, 3, 1, 0, 1, 7, 5, 1, 1, 102, 0, 0, 10, 10, 1, 8, 0, 65, 124, 40, 2, 0,
    26, 11,
  ]);
  const { instance } = await WebAssembly.instantiate(bytes);
  assert.throws(() => instance.exports.f(), WebAssembly.RuntimeError);
});
