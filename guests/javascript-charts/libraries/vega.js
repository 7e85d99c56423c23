// Vega and Vega-Lite: charts from specifications.
export * as vega from "vega";
export { compile } from "vega-lite";
