// Results and events of runs.

import { CellFailed } from "./errors.mjs";

/** Failure of a cell. */
export function errorOf(value) {
  if (value === null || value === undefined) return null;
  const { type: name, code = null, stateKept = true, ...more } = value;
  return { name, ...more, code, stateKept };
}

/** An event, of its JSON. */
export function eventOf(value) {
  switch (value.type) {
    case "cell_finished":
      return { ...value, error: errorOf(value.error) };
    case "input_request": {
      const { request_id: requestId, idle_timeout_seconds: idleTimeoutSeconds, ...more } = value;
      return { ...more, requestId, idleTimeoutSeconds };
    }
    default:
      return value;
  }
}

/** Result of a run. */
export class Result {
  #value;

  constructor(value) {
    this.#value = value;
  }

  /** Everything that a reader of the run sees, as one text. */
  get text() {
    return this.#value.content[0].text;
  }

  /** The last value that was displayed as JSON; undefined if there is none. */
  get json() {
    return this.#value.details.jsonOutputs.at(-1);
  }

  /** Values that were displayed as JSON. */
  get jsonOutputs() {
    return this.#value.details.jsonOutputs;
  }

  /** The images that were displayed. */
  get images() {
    return this.#value.details.images.map(({ mimeType, data }) => ({ mimeType, data: Buffer.from(data, "base64") }));
  }

  /** True if a cell failed. */
  get isError() {
    return this.#value.isError;
  }

  /** Failure of the first cell that failed; null if none did. */
  get error() {
    return errorOf(this.#value.details.cells.find((cell) => cell.error)?.error);
  }

  /** The cells, in order. */
  get cells() {
    return this.#value.details.cells.map((cell) => ({
      index: cell.index,
      title: cell.title,
      language: cell.language,
      code: cell.code,
      status: cell.status,
      text: cell.output,
      durationMs: cell.durationMs,
      usage: cell.usage,
      error: errorOf(cell.error),
    }));
  }

  /** Everything that the engine says of the run. */
  get details() {
    return this.#value.details;
  }

  /** Returns the result itself, or throws `CellFailed` if a cell failed. */
  check() {
    const { error } = this;
    if (error !== null) throw new CellFailed(error);
    return this;
  }

  /** Blocks of text and images for a model. */
  toLlm() {
    return this.#value.content;
  }

  toString() {
    return this.text;
  }

  toJSON() {
    return this.#value;
  }

  [Symbol.for("nodejs.util.inspect.custom")](_depth, _options, inspect) {
    return `Result { text: ${inspect(this.text)}, isError: ${this.isError} }`;
  }
}
