// Answers what `peers.rs` asks of Pyodide, which is CPython for the JavaScript engine of Node: `pyodide.mjs PACKAGE`, with the
// path of Pyodide's module. Questions and answers are those of `python.py`. A session is a namespace: another interpreter
// would be another process.

import { createInterface } from "node:readline";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";

// What an endless loop may take.
const LIMIT_MS = 1000;

async function time(action) {
  const began = process.hrtime.bigint();
  const result = await action();
  return [Number(process.hrtime.bigint() - began) / 1e3, result];
}

async function times(count, action) {
  const found = [];
  for (let round = 0; round < count; round++) found.push((await time(action))[0]);
  return { times: found };
}

async function answers(path) {
  const { loadPyodide } = await import(path);
  const open = async () => {
    const made = await loadPyodide();
    made.globals.set("echo", (value) => value);
    return made;
  };
  const [taken, live] = await time(async () => {
    const made = await open();
    made.runPython("1+1");
    return made;
  });
  const signals = new Int32Array(new SharedArrayBuffer(4));
  return {
    // One was made: each takes seconds.
    first_result: () => ({ times: [taken] }),
    next_cell: ({ count }) => times(count, () => live.runPython("1+1")),
    imports: async ({ code }) => {
      const made = await open();
      return times(1, () => made.runPython(code));
    },
    calls: async ({ count, each }) => {
      const found = await times(count, () => live.runPython(`for each in range(${each}):\n    echo(each)`));
      return { times: found.times.map((taken) => taken / each) };
    },
    memory: () => ({ lacks: "more than one session in a process" }),
    load: ({ source }) => {
      live.runPython(source);
      return {};
    },
    loop: ({ name }) => {
      const before = process.cpuUsage();
      const result = String(live.runPython(`LOOPS['${name}']()`));
      const { user, system } = process.cpuUsage(before);
      return { times: [user + system], result };
    },
    // Somebody else must say when: another thread writes what Pyodide looks at.
    stop: async () => {
      live.setInterruptBuffer(signals);
      live.runPython("kept = 41");
      const watch = new Worker(new URL(import.meta.url), { workerData: signals });
      await new Promise((resolve) => watch.once("message", resolve));
      const [taken] = await time(() => {
        watch.postMessage("begin");
        try {
          live.runPython("while True: pass");
        } catch {
          // KeyboardInterrupt
        }
      });
      await watch.terminate();
      return { times: [taken - LIMIT_MS * 1e3], kept: live.runPython("kept + 1") === 42 };
    },
  };
}

if (isMainThread) {
  const known = await answers(process.argv[2]);
  for await (const line of createInterface({ input: process.stdin })) {
    const question = JSON.parse(line);
    let answer;
    try {
      answer = await known[question.do](question);
    } catch (error) {
      answer = { lacks: String(error.message ?? error).trim().split("\n").at(-1).slice(0, 200) };
    }
    console.log(JSON.stringify(answer));
  }
} else {
  parentPort.once("message", () => setTimeout(() => Atomics.store(workerData, 0, 2), LIMIT_MS));
  parentPort.postMessage("ready");
}
