// The same API against a server.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";

import { Sandbox, SandboxError } from "cellar-sandbox";

const packed = join(dirname(createRequire(import.meta.url).resolve("cellar-sandbox")), "dist/bin/cellar");
const guests = process.env.CELLAR_GUESTS === undefined ? [] : ["--guests", process.env.CELLAR_GUESTS];
let folder;
let child;
let server;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "cellar-server-"));
  const args = [...guests, "--store", folder, "serve", "--listen", "127.0.0.1:0"];
  child = spawn(process.env.CELLAR_PROGRAM ?? packed, args, { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  server = await new Promise((resolve, reject) => {
    const read = (data) => {
      said += data;
      const url = /http:\/\/127\.0\.0\.1:\d+/.exec(said);
      const token = /cel_\w+/.exec(said);
      if (url !== null && token !== null) resolve([url[0], token[0]]);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("exit", () => reject(new Error(said)));
  });
});

after(async () => {
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill();
  await ended;
  await rm(folder, { recursive: true });
});

test("runs, tools, forks, snapshots and cancelling", async () => {
  const s = await Sandbox.connect(...server, { tools: { add: ({ a, b }) => a + b } });
  assert.equal((await s.run("x = 6 * 7; tool.add(a=x, b=1)")).text, "43");
  assert.equal((await s.run("1/0")).error.name, "ZeroDivisionError");
  const state = await s.snapshot();
  const f = await s.fork();
  assert.equal((await f.run("x += 1; x")).text, "43");
  await f.close();
  await s.run("x = 0");
  await s.rewind(state);
  assert.equal(await s.get("x"), 42);
  const run = s.stream("print('on', flush=True)\nwhile True: pass");
  for await (const event of run) {
    if (event.type === "stdout") run.cancel();
  }
  assert.equal((await run.result()).error.kind, "interrupted");
  await assert.rejects(s.files.list(), /not there for a sandbox of a server/);
  await s.close();
});

test("what is refused", async () => {
  const [url, token] = server;
  await assert.rejects(Sandbox.connect(url, `cel_wrong_${"a".repeat(40)}`), SandboxError);
  await assert.rejects(Sandbox.connect(url, token, { mounts: { "/etc": "/etc" } }), /only the operator/);
  await assert.rejects(Sandbox.connect(url, token, { llm: (prompt) => prompt }), /answers `llm` itself/);
  await assert.rejects(Sandbox.connect("http://127.0.0.1:1", token), { code: "connect" });
});
