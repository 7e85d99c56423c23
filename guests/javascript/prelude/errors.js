// Errors in the coordinates of cells: the user's frames only, each with its source line.
(function (host, kit) {
  "use strict";

  const CAUSES = 5;
  const CELL_FILE = /^<cell (\d+)>$/;

  // One line of a stack: `    at name (file:line:column)` or `    at file:line:column`.
  function parseFrame(line) {
    const at = line.indexOf("at ");
    if (at < 0) return null;
    let place = line.slice(at + 3);
    let name = "";
    const open = place.lastIndexOf(" (");
    if (place.endsWith(")") && open >= 0) {
      name = place.slice(0, open);
      place = place.slice(open + 2, -1);
    }
    const column = place.lastIndexOf(":");
    const row = place.lastIndexOf(":", column - 1);
    if (column < 0 || row < 0) return null;
    return {
      name: name === "<eval>" || name === "<anonymous>" ? "" : name,
      file: place.slice(0, row),
      line: Number(place.slice(row + 1, column)),
      byte: Number(place.slice(column + 1)),
    };
  }

  // Files of the prelude, and what the engine calls the text it was given to parse.
  const isOurs = (file) => file.startsWith("cellar:") || file === "<input>" || file === "<answer>";

  // The frames of code that the user wrote.
  function userFrames(error) {
    try {
      return parseStack(error.stack);
    } catch {
      return []; // a getter that throws
    }
  }

  function parseStack(stack) {
    if (typeof stack !== "string") return [];
    const frames = [];
    for (const line of stack.split("\n")) {
      const frame = parseFrame(line);
      if (frame === null || !Number.isInteger(frame.line) || isOurs(frame.file)) continue;
      locate(frame);
      frames.push(frame);
    }
    return frames;
  }

  // Adds the source line; and the column in characters, which the engine counts in bytes.
  function locate(frame) {
    frame.column = frame.byte;
    const cell = CELL_FILE.exec(frame.file);
    const source = cell === null ? undefined : host.source(Number(cell[1]));
    if (cell !== null) frame.cell = Number(cell[1]);
    if (source === undefined) return;
    frame.source = source.split("\n")[frame.line - 1]?.replace(/\r$/, "");
    if (frame.source === undefined) return;
    let bytes = 1;
    let column = 1;
    for (const c of frame.source) {
      if (bytes >= frame.byte) break;
      const code = c.codePointAt(0);
      bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
      column++;
    }
    frame.column = column;
  }

  const frameText = (frame) => {
    const place = `${frame.file}:${frame.line}:${frame.column}`;
    return frame.name === "" ? `    at ${place}` : `    at ${frame.name} (${place})`;
  };

  // Blanks up to a column, as wide as what stands there, and a caret.
  function pointerTo(frame) {
    let out = "";
    let column = 1;
    for (const c of frame.source) {
      if (column >= frame.column) break;
      out += c === "\t" ? "\t" : " ";
      column++;
    }
    return out + "^";
  }

  function nameOf(error) {
    try {
      const name = error.name;
      if (typeof name === "string" && name !== "") return name;
    } catch {
      // a getter that throws has no name to give
    }
    return kit.constructorName(error) ?? "Error";
  }

  function messageOf(error) {
    try {
      return error.message === undefined ? "" : String(error.message);
    } catch {
      return "";
    }
  }

  const headline = (error) => {
    const message = messageOf(error);
    return message === "" ? nameOf(error) : `${nameOf(error)}: ${message}`;
  };

  // What `console.error(error)` prints.
  kit.errorText = (error) => [headline(error), ...userFrames(error).map(frameText)].join("\n");

  // Frames with their source lines; of one that repeats, the first few.
  function frameLines(frames) {
    const lines = [];
    let repeats = 0;
    frames.forEach((frame, i) => {
      const text = frameText(frame);
      const repeated = i > 0 && text === frameText(frames[i - 1]);
      if (repeated && ++repeats > 2) return;
      if (!repeated) repeats = 0;
      lines.push(text);
      if (frame.source !== undefined && !repeated) lines.push(`        ${frame.source.trim()}`);
    });
    return lines;
  }

  // The traceback: headline, frames, then the causes.
  function traceback(error, frames, depth) {
    const lines = [headline(error), ...frameLines(frames)];
    const cause = error.cause;
    if (cause !== undefined && depth < CAUSES) {
      const text = kit.isError(cause) ? traceback(cause, userFrames(cause), depth + 1) : kit.inspect(cause);
      lines.push(`  [cause]: ${text.replaceAll("\n", "\n  ")}`);
    }
    if (Array.isArray(error.errors) && depth < CAUSES) {
      for (const one of error.errors.slice(0, 10)) {
        const text = kit.isError(one) ? traceback(one, userFrames(one), depth + 1) : kit.inspect(one);
        lines.push(`  [error]: ${text.replaceAll("\n", "\n  ")}`);
      }
    }
    return lines.join("\n");
  }

  // What was thrown and is no error: a text, a number, an object.
  function describeOther(value, frames) {
    const named = typeof value === "object" && value !== null && typeof value.name === "string";
    const name = named ? value.name : "Uncaught";
    const message = typeof value === "string" ? value : kit.inspect(value);
    return { name, message, traceback: [`${name}: ${message}`, ...frameLines(frames)].join("\n") };
  }

  function describeError(error, frames) {
    return {
      name: nameOf(error),
      message: messageOf(error),
      traceback: traceback(error, frames, 0),
      memory: error instanceof InternalError && messageOf(error) === "out of memory",
    };
  }

  // The record of a failed cell. `stack` is where the last exception was thrown, for one that does not say it itself.
  kit.failure = (error, cell, stack) => {
    const isError = kit.isError(error);
    const frames = isError ? userFrames(error) : parseStack(stack);
    const record = isError ? describeError(error, frames) : describeOther(error, frames);
    const own = frames.find((frame) => frame.cell === cell);
    if (own !== undefined) {
      record.line = own.line;
      record.column = own.column;
      if (own.source !== undefined) {
        record.snippet = own.source;
        record.pointer = pointerTo(own);
      }
    }
    return record;
  };

  // An error that nobody caught, of a cell that has already ended.
  kit.complain = (error) => {
    const text = kit.isError(error) ? traceback(error, userFrames(error), 0) : kit.inspect(error);
    host.write(1, `Uncaught ${text}\n`);
  };
})
