// Requests and answers of one sandbox and its forks, and the calls of its cells.

import { ask, delist, engine, enlist, hold } from "./engine.mjs";
import { SandboxError, closed } from "./errors.mjs";
import { toJson } from "./json.mjs";

/** A connection, and what answers the calls of its cells. */
export class Link {
  #calls = new Map();
  #id = 0;
  #ticket;
  #unsent = [];

  /** Opens a connection to the engine of this process, or to a server. */
  static async open(settings, server) {
    const found = await engine();
    const link = new Link();
    link.settings = settings;
    link.users = 1;
    link.#ticket = enlist(link);
    try {
      await ask((ticket) => {
        link.connection =
          server === null
            ? found.open(ticket, link.#ticket, settings.connection)
            : found.connect(ticket, link.#ticket, server.url, server.token);
      });
    } catch (error) {
      delist(link, link.#ticket);
      throw error;
    }
    return link;
  }

  /** Sends a request, and waits for its last answer. `begun` is called with its id. */
  async request(type, members, begun) {
    const id = String(++this.#id);
    const line = JSON.stringify({ type, id, ...members });
    const answer = ask((ticket) => {
      this.connection.expect(ticket, id);
      this.#send(line);
    });
    begun?.(id);
    return answerOf(await answer);
  }

  /** Sends a request, and returns its id and the mailbox of all its answers. */
  follow(type, members) {
    const id = String(++this.#id);
    try {
      const mailbox = this.connection.mailbox(id);
      this.#send(JSON.stringify({ type, id, ...members }));
      return { id, mailbox };
    } catch (error) {
      throw error instanceof SandboxError ? error : closed();
    }
  }

  /** Sends a request that nobody waits for the answer of. One that is closed hears nothing. */
  tell(members) {
    try {
      this.#send(JSON.stringify(members));
    } catch {
      // It has ended, and with it whatever this was about.
    }
  }

  /** Stops a run. */
  cancel(id) {
    this.tell({ type: "cancel", id });
  }

  /** Gives up one use of the connection, which ends with the last. */
  release() {
    this.users -= 1;
    if (this.users > 0) return;
    delist(this, this.#ticket);
    this.connection.close();
    for (const call of [...this.#calls.keys()]) this.#end(call)?.abort();
  }

  /** Asks something of a sandbox in this process. */
  async local(begin) {
    if (!this.connection.isLocal) {
      throw new SandboxError("this is not there for a sandbox of a server yet", "usage");
    }
    return await ask((ticket) => begin(this.connection, ticket));
  }

  /** Handles a line that no request has asked for. */
  handle(line) {
    const message = JSON.parse(line);
    if (message.type === "call") {
      void this.#call(message);
    } else if (message.type === "call_cancelled") {
      this.#end(message.call)?.abort();
    }
  }

  #end(call) {
    const found = this.#calls.get(call);
    if (this.#calls.delete(call)) hold(-1);
    return found;
  }

  async #call({ call, bridge, tool, arguments: given }) {
    const cancellation = new Cancellation();
    this.#calls.set(call, cancellation);
    hold(1);
    let result = "null";
    let error = null;
    try {
      const { functions, tools } = this.settings;
      const found = bridge === undefined ? tools.get(tool) : functions.get(bridge);
      if (found === undefined) throw new Error("there is no such function");
      const value = await found(given, cancellation);
      try {
        result = toJson(value);
      } catch (wrong) {
        throw new TypeError(`its result is no JSON: ${wrong.message}`);
      }
    } catch (thrown) {
      error = said(thrown);
    }
    // Nobody waits any more for one that was cancelled.
    if (this.#end(call) === undefined) return;
    try {
      if (call.startsWith("own-")) {
        this.connection.answer(call, result, error);
      } else {
        const reply = error === null ? `"result":${result}` : `"error":${JSON.stringify(error)}`;
        this.#send(`{"type":"reply","call":${JSON.stringify(call)},${reply}}`);
      }
    } catch {
      // The sandbox was closed meanwhile.
    }
  }

  #send(line) {
    if (this.#unsent.length === 0 && this.connection.send(line)) return;
    this.#unsent.push(line);
    if (this.#unsent.length === 1) void this.#resend();
  }

  // In the order in which they were made.
  async #resend() {
    try {
      while (this.#unsent.length > 0) {
        await ask((ticket) => this.connection.ready(ticket));
        while (this.#unsent.length > 0 && this.connection.send(this.#unsent[0])) this.#unsent.shift();
      }
    } catch {
      // It has ended, and whoever waits hears of that.
      this.#unsent.length = 0;
    }
  }
}

/** What a call is cancelled by. Its signal is made when it is wanted. */
class Cancellation {
  #controller = null;
  #isAborted = false;

  get signal() {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#isAborted) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  abort() {
    this.#isAborted = true;
    this.#controller?.abort();
  }
}

/** Text of what was thrown, as a cell is told of it. */
function said(thrown) {
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.message === "" ? thrown.name : `${thrown.name}: ${thrown.message}`;
}

/** Reads an answer. Throws `SandboxError` for a refusal, and when the connection has ended. */
export function answerOf(line) {
  if (line === null || line === undefined) throw closed("the connection has ended");
  return checked(JSON.parse(line));
}

/** Checks an answer. Throws `SandboxError` for a refusal. */
export function checked(answer) {
  if (answer.type === "error") {
    const { code, message, hint } = answer.error;
    throw new SandboxError(message, code, hint ?? null);
  }
  return answer;
}
