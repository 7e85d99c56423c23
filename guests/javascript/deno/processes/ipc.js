// Messages between a program and one that it has forked: JSON, a line each, through two pipes of the host.
const { closePipe, makePipes, readPipe, writePipe } = require("deno/processes/process_text.js");

// Bytes that are written by one call.
const PIECE = 1 << 19;

// One side of it. What comes is emitted by `target` as `message`, and its end as `disconnect`.
class Link {
  #read;
  #write;
  #target;
  #last = Promise.resolve();
  #isListening = false;
  #isOver = false;

  constructor(target, { read, write }) {
    [this.#target, this.#read, this.#write] = [target, read, write];
    target.connected = true;
  }

  // Reads until the other side has gone; resolves then.
  listen() {
    if (this.#isListening) return this.ended;
    this.#isListening = true;
    this.ended = this.#receive().catch(() => {}).then(() => this.#over());
    return this.ended;
  }
  async #receive() {
    let rest = "";
    while (!this.#isOver) {
      const { text, hasEnded } = await readPipe(this.#read);
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        await undefined;
        this.#target.emit("message", JSON.parse(line), undefined);
      }
      if (hasEnded) return;
    }
  }

  send(message, ...more) {
    const callback = more.find((one) => typeof one === "function");
    if (message === undefined) throw new (kit.platform("codes").ERR_MISSING_ARGS)("message");
    if (this.#isOver) {
      const error = kit.coded("ERR_IPC_CHANNEL_CLOSED", "Channel closed");
      process.nextTick(() => (callback ? callback(error) : this.#target.emit("error", error)));
      return false;
    }
    const line = `${JSON.stringify(message)}\n`;
    this.#last = this.#last.then(() => this.#transfer(line)).then(() => callback?.(null), (error) => callback?.(error));
    return true;
  }
  async #transfer(line) {
    for (let at = 0; at < line.length; at += PIECE) {
      for (let rest = line.slice(at, at + PIECE); rest !== "";) {
        const answer = await writePipe(this.#write, rest);
        if (answer.broken) throw kit.coded("ERR_IPC_CHANNEL_CLOSED", "Channel closed");
        rest = answer.rest;
      }
    }
  }

  disconnect() {
    this.#last.then(() => this.close([[this.#write, false], [this.#read, true]])).then(() => this.#over());
  }
  #over() {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#target.connected = false;
    this.close([[this.#write, false], [this.#read, true]]);
    this.#target.emit("disconnect");
  }
  // Closes ends of pipes; one that has gone with its process is closed already.
  close(ends) {
    for (const [pipe, reading] of ends) {
      try {
        closePipe(pipe, reading);
      } catch {
        // It was closed, or the cell is being stopped.
      }
    }
  }
  // The process on the other side has ended: what it has sent is read to its end.
  async finish() {
    this.close([[this.#read, false], [this.#write, true]]);
    await this.listen();
  }
}

// The two ends of a new channel: for who forks, and for what is forked.
function pair() {
  const [down, up] = makePipes(2);
  return { mine: { read: up, write: down }, its: { read: down, write: up } };
}

// Gives a process that was forked its side. It lives on while it listens, as in Node.
function attach(ends) {
  const link = new Link(process, ends);
  process.send = (...given) => link.send(...given);
  process.disconnect = () => link.disconnect();
  process.on("newListener", (name) => {
    if (name === "message") link.listen();
  });
}

module.exports = { Link, attach, pair };
