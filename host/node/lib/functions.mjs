// Functions of the program in the place of models, agents and hosts.

const MAKERS = { llm: asking, agent: asking, http: fetching };

/** The functions that were given, by their bridges. */
export function functionsOf(options) {
  const functions = new Map();
  for (const [bridge, make] of Object.entries(MAKERS)) {
    if (typeof options[bridge] === "function") functions.set(bridge, make(options[bridge]));
  }
  return functions;
}

function asking(answer) {
  return async ({ prompt, agent_type: agentType, ...more }, cancellation) => {
    const given = agentType === undefined ? more : { agentType, ...more };
    Object.defineProperty(given, "signal", { get: () => cancellation.signal, enumerable: true });
    return await answer(prompt, given);
  };
}

function fetching(answer) {
  return async ({ method, url, headers, body }, cancellation) => {
    const sent = body === null ? undefined : Uint8Array.from(body);
    const request = new Request(url, { method, headers, body: sent, signal: cancellation.signal });
    const response = await answer(request);
    if (!(response instanceof Response)) throw new TypeError("the answer to a request is a `Response`");
    const received = new Uint8Array(await response.arrayBuffer());
    // One that was fetched was decoded on the way.
    const stale = response.url === "" ? [] : ["content-encoding", "content-length", "transfer-encoding"];
    const kept = [...response.headers].filter(([name]) => !stale.includes(name));
    return { status: response.status, url: response.url || null, headers: kept, body: Array.from(received) };
  };
}
