// Draws charts: a specification of Vega-Lite or Vega becomes an SVG. The host asks for one by a cell,
// `drawChart(SPECIFICATION, FONT)`, both JSON texts, and what the cell displays is the chart.
(function (host, kit) {
  "use strict";

  const named = (name) =>
    class extends Error {
      get name() {
        return name;
      }
    };
  // What is asked for makes no sense, or needs what is not here.
  const ChartSpecificationError = named("ChartSpecificationError");
  const ChartResourceError = named("ChartResourceError");

  // ---- Widths of texts

  // Of the host's font, in thousandths of its size, by character: `regular` and `bold`, and what other characters have.
  let font;

  const MONOSPACE = /mono|courier|consol/i;
  const MONOSPACE_WIDTH = 602;

  // As a canvas measures: `style` is a font as CSS has it, such as `bold 11px sans-serif`.
  function textWidth(style, text) {
    const [, weight, size, family] = /^(.*?)([\d.e+-]+)px (.*)$/s.exec(style) ?? ["", "", "", 11, ""];
    const widths = /bold|[6-9]00/.test(weight) ? font.bold : font.regular;
    const isFixed = MONOSPACE.test(family);
    let width = 0;
    for (const character of text) width += isFixed ? MONOSPACE_WIDTH : (widths[character] ?? font.other);
    return (width * Number(size)) / 1000;
  }

  // Vega measures texts with a canvas, if there is one when it is loaded.
  const canvas = () => {
    const context = { font: "", measureText: (text) => ({ width: textWidth(context.font, text) }) };
    return { getContext: () => context };
  };

  const library = () => {
    kit.define(globalThis, "document", { createElement: canvas });
    try {
      const { vega, compile } = kit.library("vega");
      // Links are left out of charts: whoever looks at one must not be led elsewhere by a click.
      vega.SVGStringRenderer.prototype.href = () => null;
      return { vega, compile };
    } finally {
      delete globalThis.document;
    }
  };

  // ---- Charts

  // Loads nothing, and remembers what was asked for.
  function loader(refused) {
    const refuse = (address) => {
      refused.push(address);
      return Promise.reject(new ChartResourceError("charts load nothing"));
    };
    return { load: refuse, sanitize: refuse, http: refuse, file: refuse };
  }

  // Keeps the first error. Vega goes on after errors that it logs, with half a chart. A lack of
  // memory is no fault of the specification, and is kept as it is.
  function logger() {
    const text = (values) => values.map((value) => value?.message ?? String(value)).join(" ");
    const log = {
      first: undefined,
      memory: undefined,
      level: () => log,
      error: (...values) => {
        log.memory ??= values.find(kit.isOutOfMemory);
        log.first ??= text(values);
        return log;
      },
      warn: () => log,
      info: () => log,
      debug: () => log,
    };
    return log;
  }

  const isVega = (specification) => /\/vega\/v\d/.test(specification.$schema) || (!("$schema" in specification) && Array.isArray(specification.marks));

  async function svg(specification) {
    const { vega, compile } = library();
    if (typeof specification !== "object" || specification === null || Array.isArray(specification)) {
      throw new ChartSpecificationError("a specification is a JSON object");
    }
    const refused = [];
    const log = logger();
    try {
      const dataflow = isVega(specification) ? specification : compile(specification, { logger: log }).spec;
      vega.resetSVGClipId();
      const view = new vega.View(vega.parse(dataflow), { renderer: "none", loader: loader(refused), logger: log });
      const drawn = await view.toSVG();
      view.finalize();
      if (refused.length === 0 && log.first === undefined) return drawn;
    } catch (error) {
      // What ends a cell is no error.
      if (!(error instanceof Error)) throw error;
      log.error(error);
    }
    if (log.memory !== undefined) throw log.memory;
    if (refused.length > 0) throw new ChartResourceError(`charts load nothing, and this one asks for \`${String(refused[0]).slice(0, 200)}\`; put its data under \`values\``);
    throw new ChartSpecificationError(log.first);
  }

  function parsed(specification) {
    try {
      return JSON.parse(specification);
    } catch (error) {
      if (!(error instanceof Error) || kit.isOutOfMemory(error)) throw error;
      throw new ChartSpecificationError(`it is no JSON that can be read: ${error.message}`);
    }
  }

  kit.define(globalThis, "drawChart", async function drawChart(specification, widths) {
    font = JSON.parse(widths);
    const drawn = await svg(parsed(specification));
    host.display(["image/svg+xml", drawn], undefined, false);
  });

  // ---- While the guest is baked

  // A chart with most of what charts have, so that it all has been made. Its font is nobody's: widths are remembered.
  const WARM = {
    data: { values: [{ a: "x", b: 1, c: "2020-01-01", d: "u" }, { a: "y", b: 2.5, c: "2021-06-01", d: "v" }] },
    vconcat: [
      { mark: "bar", encoding: { x: { field: "a" }, y: { aggregate: "sum", field: "b", type: "quantitative" }, color: { field: "d" }, tooltip: { field: "b" } } },
      { mark: "line", encoding: { x: { field: "c", type: "temporal" }, y: { field: "b", type: "quantitative" }, row: { field: "d" } } },
      { mark: "point", encoding: { x: { field: "b", bin: true }, y: { aggregate: "count" }, size: { field: "b", type: "quantitative" }, color: { field: "b", type: "quantitative" } } },
    ],
    title: "warm",
    config: { font: "none" },
  };

  const preload = kit.preload;
  kit.preload = async () => {
    preload();
    font = { regular: {}, bold: {}, other: 500 };
    await svg(WARM);
  };
})
