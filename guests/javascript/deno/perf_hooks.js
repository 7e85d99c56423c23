// node:perf_hooks
const performance = kit.platform("performance");

module.exports = {
  constants: {},
  Performance: performance.Performance,
  PerformanceEntry: performance.PerformanceEntry,
  PerformanceMark: performance.PerformanceMark,
  PerformanceMeasure: performance.PerformanceMeasure,
  PerformanceObserver: performance.PerformanceObserver,
  PerformanceObserverEntryList: performance.PerformanceObserverEntryList,
  performance: performance.performance,
};
