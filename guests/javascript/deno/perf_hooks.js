// node:perf_hooks
const performance = require("deno/deno_web/15_performance.js");

module.exports = {
  constants: {},
  Performance: performance.Performance,
  PerformanceEntry: performance.PerformanceEntry,
  PerformanceMark: performance.PerformanceMark,
  PerformanceMeasure: performance.PerformanceMeasure,
  PerformanceObserver: performance.PerformanceObserver,
  performance: performance.performance,
};
