// node:readline, over streams that are no terminals: lines, one after the other.
const { EventEmitter } = kit.requireBuiltin("events");
const { StringDecoder } = kit.requireBuiltin("string_decoder");

class Interface extends EventEmitter {
  #input;
  #decoder = new StringDecoder("utf8");
  #rest = "";
  #questions = [];
  closed = false;

  constructor({ input, output }) {
    super();
    this.#input = input;
    this.output = output;
    input.on("data", this.#read);
    input.on("end", this.#end);
    input.resume?.();
  }

  #read = (chunk) => {
    const lines = (this.#rest + (typeof chunk === "string" ? chunk : this.#decoder.write(chunk))).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line);
  };

  #end = () => {
    const rest = this.#rest + this.#decoder.end();
    if (rest !== "") this.#line(rest.replace(/\r$/, ""));
    this.close();
  };

  #line(line) {
    const answer = this.#questions.shift();
    if (answer === undefined) this.emit("line", line);
    else answer(line);
  }

  question(query, options, callback = options) {
    this.output?.write(query);
    this.#questions.push(callback);
  }

  close() {
    if (this.closed) return;
    this.closed = true;
    this.#input.off("data", this.#read);
    this.#input.off("end", this.#end);
    this.#input.pause?.();
    this.emit("close");
  }

  pause() {
    this.#input.pause();
    return this;
  }

  resume() {
    this.#input.resume();
    return this;
  }

  setPrompt() {}
  prompt() {}

  async *[Symbol.asyncIterator]() {
    const lines = [];
    let wake = () => {};
    this.on("line", (line) => (lines.push(line), wake()));
    this.on("close", () => wake());
    for (;;) {
      while (lines.length > 0) yield lines.shift();
      if (this.closed) return;
      await new Promise((resolve) => (wake = resolve));
    }
  }
}

const createInterface = (input, output) => new Interface(input.input === undefined ? { input, output } : input);

class PromisesInterface extends Interface {
  question(query, options) {
    return new Promise((resolve) => super.question(query, options ?? {}, resolve));
  }
}

const promises = { Interface: PromisesInterface, createInterface: (options) => new PromisesInterface(options) };

module.exports = { Interface, createInterface, promises, clearLine: () => true, cursorTo: () => true, moveCursor: () => true };
