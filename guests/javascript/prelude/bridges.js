// What reaches beyond the sandbox: tools, models, agents, requests; and pools to do many things at a time.
(function (host, kit) {
  "use strict";

  const { define } = kit;
  const TOOL = 0;
  const LLM = 1;
  const AGENT = 2;
  const HTTP = 3;
  const CONCURRENCY = 4;
  const CONCURRENCY_MAX = 16;

  // A bridge call that failed. `kind` is failed, denied, unknown, invalid, cancelled or limit.
  class BridgeError extends Error {
    get name() {
      return "BridgeError";
    }
  }

  // A tool call that failed; `tool` names the tool.
  class ToolError extends BridgeError {
    get name() {
      return "ToolError";
    }
  }

  // Started calls by their number.
  const pending = new Map();

  // Turns `{kind, message}` into an error. `site` was made where the call was made, so that its stack says where.
  function fill(site, failure) {
    define(site, "message", failure.message);
    define(site, "kind", failure.kind);
    return site;
  }

  const siteOf = (tool) => {
    const site = tool === undefined ? new BridgeError() : new ToolError();
    if (tool !== undefined) define(site, "tool", tool);
    return site;
  };

  function start(tool, request) {
    const site = siteOf(tool);
    const { promise, resolve, reject } = Promise.withResolvers();
    pending.set(host.start(...request), { site, resolve, reject, cell: host.currentCell() });
    return promise;
  }

  function callNow(tool, request) {
    const site = siteOf(tool);
    try {
      return host.call(...request);
    } catch (failure) {
      throw kit.isError(failure) ? failure : fill(site, failure);
    }
  }

  kit.settle = (id, ok, value) => {
    const call = pending.get(id);
    if (call === undefined) return;
    pending.delete(id);
    if (ok) call.resolve(value);
    else call.reject(kit.isError(value) ? value : fill(call.site, value));
  };

  // Gives up the calls of a cell that ended before them.
  kit.forget = (cell) => {
    for (const [id, call] of pending) {
      if (call.cell !== cell) continue;
      pending.delete(id);
      host.cancel(id);
    }
  };

  // Two forms of one bridge: `f(...)` is a promise, `f.sync(...)` waits in place.
  function bridge(tool, request) {
    const call = (...values) => start(tool, request(...values));
    define(call, "sync", (...values) => callNow(tool, request(...values)));
    return call;
  }

  // ---- tool.<name>(args)

  function toolArguments(name, value) {
    if (value === undefined) return "{}";
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw new TypeError(`tool.${name} takes one object of named arguments`);
    }
    return JSON.stringify(value);
  }

  const tools = new Map();
  const toolNames = () => host.tools().filter((_, i) => i % 3 === 0);
  define(globalThis, "tool", new Proxy(Object.create(null), {
    get(_, name) {
      // `await tool` looks for `then`: the namespace itself is not a promise.
      if (typeof name !== "string" || name === "then") return undefined;
      if (!tools.has(name)) tools.set(name, bridge(name, (value) => [TOOL, name, toolArguments(name, value)]));
      return tools.get(name);
    },
    has: (_, name) => toolNames().includes(name),
    ownKeys: () => toolNames(),
    getOwnPropertyDescriptor: (target, name) =>
      typeof name === "string" ? { value: globalThis.tool[name], configurable: true, enumerable: true } : undefined,
    set: () => false,
  }));

  // ---- llm and agent

  const promptText = (who, prompt) => {
    if (typeof prompt !== "string") throw new TypeError(`${who} takes a prompt as its first argument`);
    return prompt;
  };
  const schemaText = (schema) => (schema === undefined || schema === null ? undefined : JSON.stringify(schema));

  define(globalThis, "llm", bridge(undefined, (prompt, options) => {
    const { model = "default", system, schema } = options ?? {};
    return [LLM, promptText("llm", prompt), model, system, schemaText(schema)];
  }));
  define(globalThis, "agent", bridge(undefined, (prompt, options) => {
    const { agentType = "task", model, context, label, schema } = options ?? {};
    const about = context === undefined || typeof context === "string" ? context : JSON.stringify(context);
    return [AGENT, promptText("agent", prompt), agentType, model, about, label, schemaText(schema)];
  }));
  kit.request = bridge(undefined, (method, url, headers, body) => [HTTP, method, url, headers, body]);

  // ---- parallel and pipeline

  function poolSize(options) {
    const size = options?.concurrency ?? CONCURRENCY;
    if (!Number.isInteger(size) || size < 1) throw new RangeError("concurrency must be a whole number from 1");
    return Math.min(size, CONCURRENCY_MAX);
  }

  // Does `work` for each index, at most `size` at a time. The first rejection is the pool's, and nothing new starts.
  async function pool(count, size, work) {
    const results = new Array(count);
    let next = 0;
    let failed = false;
    const worker = async () => {
      while (next < count && !failed) {
        const i = next++;
        try {
          results[i] = await work(i);
        } catch (error) {
          failed = true;
          throw error;
        }
      }
    };
    await Promise.all(Array.from({ length: Math.min(size, count) }, worker));
    return results;
  }

  define(globalThis, "parallel", async function parallel(tasks, options) {
    const list = [...tasks];
    for (const task of list) {
      if (typeof task !== "function") throw new TypeError("parallel takes functions: parallel([() => ...])");
    }
    return pool(list.length, poolSize(options), (i) => list[i]());
  });

  define(globalThis, "pipeline", async function pipeline(items, ...stages) {
    const options = typeof stages.at(-1) === "function" ? undefined : stages.pop();
    const list = [...items];
    for (const stage of stages) {
      if (typeof stage !== "function") throw new TypeError("pipeline takes functions as stages");
    }
    return pool(list.length, poolSize(options), async (i) => {
      let value = list[i];
      for (const stage of stages) value = await stage(value, i);
      return value;
    });
  });

  define(globalThis, "BridgeError", BridgeError);
  define(globalThis, "ToolError", ToolError);
})
