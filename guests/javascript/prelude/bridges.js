// What reaches beyond the sandbox: tools, models, agents, requests; and pools to do many things at a time.
(function (host, kit) {
  "use strict";

  const { define } = kit;
  const { TOOLS_CALL, PRIMITIVES_CALL, LLM_CALL, AGENTS_CALL, HTTP_CALL, INPUT_CALL } = host.calls;
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

  // What an option may be, by the name of its kind.
  const KINDS = {
    flag: [(value) => typeof value === "boolean", "true or false"],
    count: [(value) => Number.isInteger(value) && value >= 0, "a whole number from 0"],
    size: [(value) => Number.isInteger(value) && value >= 1, "a whole number from 1"],
    text: [(value) => typeof value === "string", "a text"],
    schema: [(value) => typeof value === "object", "a JSON Schema, as an object"],
    any: [() => true, ""],
  };

  // Checks the options of a helper: an object whose properties `kinds` names. Returns them, without those that are
  // null, which is how a call says that it leaves one out.
  kit.options = (who, given, kinds) => {
    const known = Object.keys(kinds);
    if (given === undefined || given === null) return {};
    if (typeof given !== "object" || Array.isArray(given)) {
      throw new TypeError(`${who} takes its options as one object, {${known.join(", ")}}, and not ${kit.inspect(given)}`);
    }
    const options = {};
    for (const [name, value] of Object.entries(given)) {
      if (!Object.hasOwn(kinds, name)) throw new TypeError(`${who} has no option '${name}'; it takes ${known.join(", ")}`);
      if (value === undefined || value === null) continue;
      const [check, expected] = KINDS[kinds[name]];
      if (!check(value)) throw new TypeError(`${who}: option '${name}' must be ${expected}, not ${kit.inspect(value)}`);
      options[name] = value;
    }
    return options;
  };

  // Started calls by their number.
  const pending = new Map();

  // The error of a call that failed with `{kind, message}`. `site` was made where the call was made, so that its stack says where.
  function failed(tool, failure, site) {
    if (kit.isError(failure)) return failure;
    const error = tool === undefined ? new BridgeError() : new ToolError();
    if (tool !== undefined) define(error, "tool", tool);
    define(error, "message", failure.message);
    define(error, "kind", failure.kind);
    // It was made without the message.
    const frames = site.stack.slice(site.stack.indexOf("\n"));
    define(error, "stack", `${error.name}: ${failure.message}${frames}`);
    return error;
  }

  function start(tool, request) {
    let id;
    try {
      id = host.start(...request);
    } catch (failure) {
      throw failed(tool, failure, new Error());
    }
    try {
      const answer = host.takeAnswer(id);
      if (answer !== undefined) return { id, promise: Promise.resolve(answer) };
    } catch (failure) {
      return { id, promise: Promise.reject(failed(tool, failure, new Error())) };
    }
    const { promise, resolve, reject } = Promise.withResolvers();
    // What is called later, if ever, is not where the call was made.
    pending.set(id, { tool, site: new Error(), resolve, reject, cell: host.currentCell() });
    return { id, promise };
  }

  function giveUp(id) {
    if (pending.delete(id)) host.cancel(id);
  }

  function callNow(tool, request) {
    try {
      return host.call(...request);
    } catch (failure) {
      throw failed(tool, failure, new Error());
    }
  }

  kit.settle = (id, ok, value) => {
    const call = pending.get(id);
    if (call === undefined) return;
    pending.delete(id);
    if (ok) call.resolve(value);
    else call.reject(failed(call.tool, value, call.site));
  };

  // A call that programs do not make themselves, by its number: as a promise, with what gives it up, and in place.
  kit.callHost = (...request) => {
    const { id, promise } = start(undefined, request);
    return { answer: promise, giveUp: () => giveUp(id) };
  };
  kit.callHostNow = (...request) => callNow(undefined, request);

  // Does what the host answers at once.
  kit.answered = (work) => {
    try {
      return work();
    } catch (failure) {
      throw failed(undefined, failure, new Error());
    }
  };

  // Whether any call waits for its answer.
  kit.hasCalls = () => pending.size > 0;

  // Gives up the calls of a cell that ended before them.
  kit.forget = (cell) => {
    for (const [id, call] of pending) {
      if (call.cell === cell) giveUp(id);
    }
  };

  // Name, description and schema of the tools.
  function grantedTools() {
    const flat = host.tools();
    return Array.from({ length: flat.length / 3 }, (_, i) => flat.slice(3 * i, 3 * i + 3));
  }

  function toolSpec(name) {
    const found = grantedTools().find(([known]) => known === name);
    if (found === undefined) throw new RangeError(`no tool '${name}'; Object.keys(tool) names all`);
    return { name, description: found[1], schema: found[2] === undefined ? null : JSON.parse(found[2]) };
  }

  // Two forms of one bridge: `f(...)` is a promise, `f.sync(...)` waits in place. `finish` makes a value of the answer.
  function bridge(tool, request, finish) {
    const answer = (values) => start(tool, request(...values)).promise;
    const call = finish === undefined ? (...values) => answer(values) : async (...values) => finish(await answer(values));
    define(call, "sync", (...values) => {
      const answered = callNow(tool, request(...values));
      return finish === undefined ? answered : finish(answered);
    });
    return call;
  }
  kit.bridge = bridge;

  // ---- tool.<name>(args)

  const { stringify } = JSON;
  const { isArray } = Array;
  const { call: callHost, isData } = host;

  // Arguments as JSON, if that holds them as they are; `of` has them.
  kit.argumentsText = (of, value) => stringify(isData(value) ? value : kit.platform("plainData").carried(`the arguments of ${of}`, value));

  function toolArguments(name, value) {
    if (typeof value === "object" && value !== null && !isArray(value)) {
      if (host.promiseState(value) !== undefined) throw new TypeError(`tool.${name} takes one object of named arguments, not a Promise; await it first`);
      return kit.argumentsText(`tool.${name}`, value);
    }
    if (value === undefined) return "{}";
    throw new TypeError(`tool.${name} takes one object of named arguments`);
  }

  // The two forms of a tool, which are those of `bridge` with less in between: a function that is called here, or a global that is
  // looked up, takes as long as a hundredth of a blocking call.
  function toolBridge(name) {
    const call = (value) => start(name, [TOOLS_CALL, name, toolArguments(name, value)]).promise;
    return define(call, "sync", (value) => {
      const isPlain = typeof value === "object" && value !== null && !isArray(value);
      const text = isPlain && isData(value) ? stringify(value) : toolArguments(name, value);
      try {
        return callHost(TOOLS_CALL, name, text);
      } catch (failure) {
        throw failed(name, failure, new Error());
      }
    });
  }

  // A tool that was asked for is found as a property. One that was not is made by what stands behind: a trap on the way to every
  // call takes longer than some of them.
  const tools = Object.create(new Proxy(Object.create(null), {
    get(_, name) {
      // `await tool` looks for `then`: the namespace itself is not a promise. What shows it looks for its class.
      if (typeof name !== "string" || name === "then" || name === "constructor") return undefined;
      const call = define(define(toolBridge(name), "name", name), "spec", () => toolSpec(name));
      Object.defineProperty(tools, name, { value: call, configurable: true, enumerable: true });
      return call;
    },
  }));
  const toolNames = () => grantedTools().map(([name]) => name);
  define(globalThis, "tool", kit.transparent(new Proxy(tools, {
    __proto__: null,
    has: (_, name) => toolNames().includes(name),
    ownKeys: () => toolNames(),
    getOwnPropertyDescriptor: (_, name) =>
      typeof name === "string" ? { value: globalThis.tool[name], configurable: true, enumerable: true } : undefined,
    getPrototypeOf: () => null,
    set: () => false,
    setPrototypeOf: () => false,
    defineProperty: () => false,
    deleteProperty: () => false,
    preventExtensions: () => false,
  })));

  // ---- llm and agent

  const promptText = (who, prompt) => {
    if (typeof prompt !== "string") throw new TypeError(`${who} takes a prompt as its first argument`);
    return prompt;
  };
  const schemaText = (schema) => (schema === undefined || schema === null ? undefined : JSON.stringify(schema));

  define(globalThis, "llm", bridge(undefined, (prompt, options) => {
    const { model = "default", system, schema } = kit.options("llm", options, { model: "text", system: "text", schema: "schema" });
    return [LLM_CALL, promptText("llm", prompt), model, system, schemaText(schema)];
  }));
  define(globalThis, "agent", bridge(undefined, (prompt, options) => {
    const kinds = { agentType: "text", model: "text", context: "any", label: "text", schema: "schema" };
    const { agentType = "task", model, context, label, schema } = kit.options("agent", options, kinds);
    const about = context === undefined || typeof context === "string" ? context : kit.argumentsText("agent", context);
    return [AGENTS_CALL, promptText("agent", prompt), agentType, model, about, label, schemaText(schema)];
  }));
  // One request, and what gives it up.
  kit.request = (...request) => kit.callHost(HTTP_CALL, ...request);

  // ---- parallel and pipeline

  function poolSize(who, options) {
    const { concurrency = CONCURRENCY } = kit.options(who, options, { concurrency: "size" });
    return Math.min(concurrency, CONCURRENCY_MAX);
  }

  function listOf(who, items, what) {
    if (typeof items?.[Symbol.iterator] !== "function" || typeof items === "string") {
      throw new TypeError(`${who} takes a list of ${what} first, not ${kit.inspect(items)}`);
    }
    return [...items];
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
    const list = listOf("parallel", tasks, "functions");
    for (const task of list) {
      if (typeof task !== "function") throw new TypeError("parallel takes functions: parallel([() => ...])");
    }
    return pool(list.length, poolSize("parallel", options), (i) => list[i]());
  });

  define(globalThis, "pipeline", async function pipeline(items, ...stages) {
    const options = typeof stages.at(-1) === "function" ? undefined : stages.pop();
    const list = listOf("pipeline", items, "items");
    for (const stage of stages) {
      if (typeof stage !== "function") throw new TypeError("pipeline takes functions as stages, then its options");
    }
    return pool(list.length, poolSize("pipeline", options), async (i) => {
      let value = list[i];
      for (const stage of stages) value = await stage(value, i);
      return value;
    });
  });

  // ---- runtime: the primitives that the host has installed, in packs

  // The specs of all primitives by their names.
  function primitiveSpecs() {
    const parsed = (schema) => {
      try {
        return JSON.parse(schema);
      } catch {
        return null;
      }
    };
    return new Map(host.primitives().flatMap(({ primitives, ...pack }) => primitives.map((primitive) => {
      const name = `${pack.name}.${primitive.name}`;
      const { description, schema, result } = primitive;
      return [name, { name, description, pack, schema: parsed(schema), result: parsed(result) }];
    })));
  }
  const primitiveNames = () => [...primitiveSpecs().keys()].sort();

  function primitiveSpec(name) {
    const all = primitiveSpecs();
    if (all.has(name)) return all.get(name);
    const names = [...all.keys()].sort().join(", ");
    throw new RangeError(`no primitive '${name}'; runtime.list_primitives() names all: ${names}`);
  }

  // The same for the arguments of calls, asked for once a cell.
  let latest = { cell: 0 };
  function specsNow() {
    const cell = host.currentCell();
    if (cell === 0 || latest.cell !== cell) latest = { cell, specs: primitiveSpecs() };
    return latest.specs;
  }

  // Gives arguments their names, which are those of the schema, in its order. One object alone has them itself; one at
  // the end has the others, if its members are all such names.
  function primitiveArguments(name, values) {
    if (values.length === 0) return "{}";
    const isPlain = (value) => typeof value === "object" && value !== null && [Object.prototype, null].includes(Object.getPrototypeOf(value));
    if (values.length === 1 && isPlain(values[0])) return kit.argumentsText(`runtime.${name}`, values[0]);
    const known = specsNow().get(name);
    const names = Object.keys(known?.schema?.properties ?? {});
    const last = values.at(-1);
    const isNamed = isPlain(last) && (names.length === 0 || Object.keys(last).every((key) => names.includes(key)));
    const positional = isNamed ? values.slice(0, -1) : values;
    // Whoever answers says that there is no such primitive.
    if (known !== undefined && positional.length > names.length) {
      throw new TypeError(`runtime.${name} takes ${names.length} arguments without names, not ${positional.length}`);
    }
    return kit.argumentsText(`runtime.${name}`, { ...Object.fromEntries(positional.map((value, i) => [names[i], value])), ...(isNamed ? last : {}) });
  }

  // What `runtime.pack.name` gives is a call, and the way to `runtime.pack.name.more`.
  function primitive(name) {
    const dot = name.indexOf(".");
    const [pack, member] = dot < 0 ? [name, ""] : [name.slice(0, dot), name.slice(dot + 1)];
    const call = bridge(name, (...values) => [PRIMITIVES_CALL, pack, member, primitiveArguments(name, values)]);
    const members = { sync: call.sync, spec: () => primitiveSpec(name), toString: () => `[runtime.${name}]` };
    return new Proxy((...values) => call(...values), {
      get(_, member) {
        // `await runtime.pack` looks for `then`: the pack itself is not a promise.
        if (typeof member !== "string" || member === "then") return undefined;
        return Object.hasOwn(members, member) ? members[member] : primitive(`${name}.${member}`);
      },
    });
  }

  const runtime = {
    list_primitives: primitiveNames,
    list_primitive_specs: () => [...primitiveSpecs().values()].sort((a, b) => (a.name < b.name ? -1 : 1)),
    get_primitive_spec: primitiveSpec,
  };
  runtime.listPrimitives = runtime.list_primitives;
  runtime.listPrimitiveSpecs = runtime.list_primitive_specs;
  runtime.getPrimitiveSpec = runtime.get_primitive_spec;
  define(globalThis, "runtime", kit.transparent(new Proxy(runtime, {
    get: (target, name) => (name in target || typeof name !== "string" || name === "then" ? target[name] : primitive(name)),
  })));

  // ---- tools: finds what cells may call, by what it does

  const toolsCall = (name, given) => [PRIMITIVES_CALL, "tools", name, kit.argumentsText(`tools.${name}`, given)];
  const search = bridge(undefined, (query, options) => toolsCall("search", { query, ...kit.options("tools.search", options, { limit: "size" }) }));
  const describe = bridge(undefined, (name) => toolsCall("describe", { name }));
  define(globalThis, "tools", Object.freeze({ search, describe }));

  // ---- input and output

  class StdinNotImplementedError extends Error {
    name = "StdinNotImplementedError";
  }
  kit.isStdinError = (error) => error instanceof StdinNotImplementedError;
  // What a request for input failed with, as a program expects it: the end of the input is not an error of its own.
  const refused = (error) =>
    error?.kind === "denied" ? new StdinNotImplementedError("Kernel requested stdin; interactive input is not supported") : error;
  const ask = bridge(undefined, (prompt) => [INPUT_CALL, prompt === undefined ? "" : String(prompt)]);
  const input = async (prompt) => {
    try {
      return await ask(prompt);
    } catch (error) {
      throw refused(error);
    }
  };
  define(input, "sync", (prompt) => {
    try {
      return ask.sync(prompt);
    } catch (error) {
      throw refused(error);
    }
  });
  define(globalThis, "input", input);
  // As in a browser: waits in place; null when there is no more.
  define(globalThis, "prompt", (text = "", otherwise = "") => {
    try {
      return input.sync(text) || otherwise;
    } catch (error) {
      if (error?.kind === "failed") return null;
      throw error;
    }
  });
  kit.input = input;

  // Where `output` finds a name: what looks like the id of an artifact is one, all else is the output of an agent.
  const address = (name) => (name.includes("://") ? name : (/^[0-9a-f]{6,}$/.test(name) ? "artifact://" : "agent://") + name);

  // What `output` makes of a text.
  const FORMATS = ["raw", "stripped", "json"];
  // A step of a query: a name behind a dot, or a number or a text in brackets.
  const STEP = /\.?([A-Za-z_]\w*)|\.?\[(?:(-?\d+)|"([^"]*)"|'([^']*)')\]/y;
  const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])/g;

  // What a query such as `.rows[0].name` leads to.
  function find(name, value, query) {
    let at = query === "." ? 1 : 0;
    while (at < query.length) {
      STEP.lastIndex = at;
      const step = STEP.exec(query);
      if (step === null) {
        throw new TypeError(`output: the query '${query}' goes on with '${query.slice(at)}'; it is made of .name, [0] and ["name"]`);
      }
      at = STEP.lastIndex;
      const key = step.slice(1).find((part) => part !== undefined);
      const place = step[2] !== undefined && Array.isArray(value) && step[2].startsWith("-") ? value.length + Number(key) : key;
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, place)) {
        throw new RangeError(`output: '${name}' has nothing at '${query.slice(0, at)}'`);
      }
      value = value[place];
    }
    return value;
  }

  function formed(name, text, { format = "raw", query }) {
    if (format === "stripped") text = text.replace(ESCAPES, "");
    if (format !== "json" && query === undefined) return text;
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      throw new TypeError(`output: '${name}' is no JSON: ${error.message}`);
    }
    return find(name, value, query ?? "");
  }

  // The text of artifacts by their ids, and of what agents said by their labels; of several, a list. With the format
  // "json", or a query, what the text says.
  define(globalThis, "output", async function output(...ids) {
    const kinds = { format: "text", query: "text", offset: "count", limit: "count" };
    const { format, query, ...range } = typeof ids.at(-1) === "object" ? kit.options("output", ids.pop(), kinds) : {};
    if (ids.length === 0) throw new TypeError("output needs the id of an artifact, or the label of an agent");
    if (format !== undefined && !FORMATS.includes(format)) {
      throw new TypeError(`output: format is ${FORMATS.map((one) => `'${one}'`).join(" or ")}, not '${format}'`);
    }
    const paths = ids.map((id) => address(String(id)));
    const read = async (i) => formed(ids[i], await globalThis.tool.read({ path: paths[i], ...range }), { format, query });
    const texts = await pool(paths.length, CONCURRENCY, read);
    host.status("output", "count", texts.length);
    return texts.length === 1 ? texts[0] : texts;
  });

  define(globalThis, "BridgeError", BridgeError);
  define(globalThis, "ToolError", ToolError);
})
