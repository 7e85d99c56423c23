// Message ports within the one thread that there is: a message is copied when it is sent, and arrives in a later task.
const { Event, EventTarget, MessageEvent } = require("deno/deno_web/02_event.js");
const { structuredClone } = require("deno/deno_web/13_message_port.js");

const SECRET = Symbol("secret"); // so that cells cannot construct what only the platform makes
const QUEUE_MAX = 100000; // messages that nobody has read

const transferOf = (options) => (Array.isArray(options) ? { transfer: options } : options);

class MessagePort extends EventTarget {
  #other;
  #queue = [];
  #started = false;
  #closed = false;
  #listener = null;
  #wrappers = new Map();

  constructor(secret) {
    if (secret !== SECRET) throw new TypeError("Illegal constructor");
    super();
  }

  static connect(a, b) {
    a.#other = b;
    b.#other = a;
  }

  static take(port) {
    return port.#queue.length === 0 ? undefined : { message: port.#queue.shift() };
  }

  postMessage(message, options) {
    const copy = structuredClone(message, transferOf(options));
    const other = this.#other;
    if (this.#closed || other.#closed) return;
    if (other.#queue.length >= QUEUE_MAX) throw new RangeError(`more than ${QUEUE_MAX} messages wait at a port`);
    other.#queue.push(copy);
    if (other.#started) other.#deliverLater();
  }

  #deliverLater() {
    host.startTimer(() => {
      if (this.#closed || this.#queue.length === 0) return;
      const data = this.#queue.shift();
      this.dispatchEvent(new MessageEvent("message", { data }));
    }, 0);
  }

  start() {
    if (this.#started) return;
    this.#started = true;
    for (const _ of this.#queue) this.#deliverLater();
  }

  close() {
    for (const port of [this, this.#other]) {
      if (port.#closed) continue;
      port.#closed = true;
      host.startTimer(() => port.dispatchEvent(new Event("close")), 0);
    }
  }

  get onmessage() {
    return this.#listener;
  }
  set onmessage(listener) {
    if (this.#listener !== null) this.removeEventListener("message", this.#listener);
    this.#listener = typeof listener === "function" ? listener : null;
    if (this.#listener === null) return;
    this.addEventListener("message", this.#listener);
    this.start();
  }

  // As Node's event emitters: listeners get the message and not its event.
  on(type, listener, options) {
    const wrapper = (event) => listener.call(this, type === "message" ? event.data : undefined);
    this.#wrappers.set(listener, wrapper);
    this.addEventListener(type, wrapper, options);
    if (type === "message") this.start();
    return this;
  }
  once(type, listener) {
    return this.on(type, listener, { once: true });
  }
  off(type, listener) {
    this.removeEventListener(type, this.#wrappers.get(listener) ?? listener);
    this.#wrappers.delete(listener);
    return this;
  }
  ref() {}
  unref() {}
}
MessagePort.prototype.addListener = MessagePort.prototype.on;
MessagePort.prototype.removeListener = MessagePort.prototype.off;
const { connect, take } = MessagePort;
delete MessagePort.connect;
delete MessagePort.take;

class MessageChannel {
  constructor() {
    this.port1 = new MessagePort(SECRET);
    this.port2 = new MessagePort(SECRET);
    connect(this.port1, this.port2);
  }
}

const channels = new Map();

class BroadcastChannel extends EventTarget {
  #closed = false;
  onmessage = null;

  constructor(name) {
    super();
    Object.defineProperty(this, "name", { value: String(name), enumerable: true });
    if (!channels.has(this.name)) channels.set(this.name, new Set());
    channels.get(this.name).add(this);
    this.addEventListener("message", (event) => this.onmessage?.(event));
  }

  postMessage(message) {
    if (this.#closed) throw new DOMException("BroadcastChannel is closed.", "InvalidStateError");
    for (const other of channels.get(this.name)) {
      if (other === this) continue;
      const data = structuredClone(message);
      host.startTimer(() => other.#closed || other.dispatchEvent(new MessageEvent("message", { data })), 0);
    }
  }

  close() {
    this.#closed = true;
    const all = channels.get(this.name);
    all?.delete(this);
    if (all?.size === 0) channels.delete(this.name);
  }
  ref() {}
  unref() {}
}

module.exports = { BroadcastChannel, MessageChannel, MessagePort, receiveMessageOnPort: take };
