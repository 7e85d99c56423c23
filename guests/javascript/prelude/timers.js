// setTimeout and its kin, with Node's objects for timers.
(function (host, kit) {
  "use strict";

  const { define } = kit;

  function needCallback(callback) {
    if (typeof callback !== "function") throw kit.invalidArgument("callback", "function", callback);
  }

  // Whether any timer is set that a process waits for.
  kit.hasTimers = () => host.hasTimers();

  // A timer that is set. A process waits for those that have a reference, and a cell does for a while.
  class Timeout {
    #id;
    #callback;
    #values;
    #delay;
    #repeats;
    #referenced = true;

    constructor(callback, delay, values, repeats) {
      needCallback(callback);
      this.#callback = callback;
      this.#values = values;
      // Whole milliseconds, so that timers which are set one after the other go off in turn.
      this.#delay = delay >= 1 ? Math.trunc(delay) : delay;
      this.#repeats = repeats;
      this.#start();
    }

    #start() {
      this.#id = host.startTimer(() => this.#callback.apply(this, this.#values), this.#delay, this.#repeats, this.#id);
      if (!this.#referenced) host.referTo(this.#id, false);
    }

    ref() {
      this.#referenced = true;
      host.referTo(this.#id, true);
      return this;
    }

    unref() {
      this.#referenced = false;
      host.referTo(this.#id, false);
      return this;
    }

    hasRef() {
      return this.#referenced;
    }

    // Starts it again, under the number that it has.
    refresh() {
      host.stopTimer(this.#id);
      this.#start();
      return this;
    }

    close() {
      host.stopTimer(this.#id);
      return this;
    }

    [Symbol.toPrimitive]() {
      return this.#id;
    }

    [Symbol.dispose]() {
      host.stopTimer(this.#id);
    }

    static stop(timer) {
      if (typeof timer === "object" && timer !== null && #id in timer) host.stopTimer(timer.#id);
      else if (typeof timer === "number" || typeof timer === "string") host.stopTimer(Number(timer));
    }
  }

  class Immediate extends Timeout {
    constructor(callback, values) {
      super(callback, 0, values, false);
    }
  }

  const { stop } = Timeout;
  delete Timeout.stop;

  define(globalThis, "setTimeout", function setTimeout(callback, delay, ...values) {
    return new Timeout(callback, delay, values, false);
  });
  define(globalThis, "setInterval", function setInterval(callback, delay, ...values) {
    return new Timeout(callback, delay, values, true);
  });
  define(globalThis, "setImmediate", function setImmediate(callback, ...values) {
    return new Immediate(callback, values);
  });
  const { queueMicrotask: enqueue } = globalThis;
  define(globalThis, "queueMicrotask", function queueMicrotask(callback) {
    needCallback(callback);
    enqueue(callback);
  });
  for (const name of ["clearTimeout", "clearInterval", "clearImmediate"]) {
    define(globalThis, name, { [name]: (timer) => stop(timer) }[name]);
  }
})
