// node:perf_hooks
const { performance, ...classes } = kit.platform("performance");
const { Performance, PerformanceEntry, PerformanceMark, PerformanceMeasure, PerformanceObserver, PerformanceObserverEntryList } = classes;

// Numbers of which are known how many there are, and how large.
class Histogram {
  #values = [];
  #sorted() {
    return this.#values.toSorted((a, b) => a - b);
  }
  record(value) {
    const number = Number(value);
    if (!Number.isSafeInteger(number) || number < 1) throw new (kit.platform("codes").ERR_OUT_OF_RANGE)("val", ">= 1 && <= 9007199254740991", value);
    this.#values.push(number);
  }
  recordDelta() {
    const now = performance.now();
    if (this.last !== undefined) this.record(Math.max(1, Math.round((now - this.last) * 1e6)));
    Object.defineProperty(this, "last", { value: now, writable: true, configurable: true });
  }
  add(other) {
    this.#values.push(...other.#values);
  }
  reset() {
    this.#values = [];
  }
  percentile(percent) {
    return this.#sorted()[Math.max(0, Math.ceil((percent / 100) * this.#values.length) - 1)] ?? 0;
  }
  get count() {
    return this.#values.length;
  }
  get min() {
    return this.count === 0 ? 9223372036854776000 : this.#values.reduce((a, b) => Math.min(a, b));
  }
  get max() {
    return this.#values.reduce((a, b) => Math.max(a, b), 0);
  }
  get mean() {
    return this.#values.reduce((a, b) => a + b, 0) / this.count;
  }
  get stddev() {
    const { mean } = this;
    return Math.sqrt(this.#values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / this.count);
  }
  get exceeds() {
    return 0;
  }
  get percentiles() {
    return new Map([0, 50, 75, 87.5, 93.75, 96.875, 98.4375, 99.21875, 100].map((percent) => [percent, this.percentile(percent)]));
  }
}

// How late timers come that should come at even times.
function monitorEventLoopDelay({ resolution = 10 } = {}) {
  const histogram = new Histogram();
  let timer;
  return Object.assign(histogram, {
    enable() {
      let last = performance.now();
      timer ??= setInterval(() => {
        const now = performance.now();
        histogram.record(Math.max(1, Math.round((now - last) * 1e6)));
        last = now;
      }, resolution).unref();
      return true;
    },
    disable() {
      clearInterval(timer);
      timer = undefined;
      return true;
    },
  });
}

// A function that does what the given one does. Its time is an entry for who observes functions.
function timerify(run) {
  if (typeof run !== "function") throw kit.invalidArgument("fn", "function", run);
  const timed = function (...given) {
    return new.target ? Reflect.construct(run, given, run) : run.apply(this, given);
  };
  Object.defineProperties(timed, { name: { value: `timerified ${run.name}`, configurable: true }, length: { value: run.length, configurable: true } });
  return timed;
}

const eventLoopUtilization = () => ({ idle: 0, active: performance.now(), utilization: 1 });
for (const [name, value] of Object.entries({ eventLoopUtilization, timerify })) {
  Object.defineProperty(performance, name, { value, writable: true, enumerable: false, configurable: true });
}

module.exports = {
  constants: {}, Performance, PerformanceEntry, PerformanceMark, PerformanceMeasure, PerformanceObserver, PerformanceObserverEntryList,
  createHistogram: () => new Histogram(), eventLoopUtilization, monitorEventLoopDelay, performance, timerify,
};
