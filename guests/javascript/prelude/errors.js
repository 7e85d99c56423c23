// Errors in the coordinates of cells: the user's frames only, each with its source line.
(function (host, kit) {
  "use strict";

  const CAUSES = 5;
  const ERRORS = 10;
  const EXTRAS = 10;
  const EXTRA_CHARACTERS = 500;
  // Properties of errors that have a place of their own.
  const USUAL = ["name", "message", "stack", "cause", "errors"];
  const CELL_FILE = /^<(?:cell (\d+)|seed)>$/;
  // The number of the cell that makes the names a session begins with.
  const SEED = 0xffffffff;
  const FRAME = "    at ";
  const ASYNC = "async ";

  // One line of a stack: `    at name (file:line:column)` or `    at file:line:column`.
  function parseFrame(line) {
    if (!line.startsWith(FRAME)) return null;
    let place = line.slice(FRAME.length);
    let name = "";
    const isAsync = place.startsWith(ASYNC);
    if (isAsync) place = place.slice(ASYNC.length);
    const open = place.lastIndexOf(" (");
    if (place.endsWith(")") && open >= 0) {
      name = place.slice(0, open);
      place = place.slice(open + 2, -1);
    }
    const column = place.lastIndexOf(":");
    const row = place.lastIndexOf(":", column - 1);
    if (column < 0 || row < 0) return null;
    return {
      name,
      isAsync,
      file: place.slice(0, row),
      line: Number(place.slice(row + 1, column)),
      byte: Number(place.slice(column + 1)),
    };
  }

  // What the engine calls a text that it was given to parse, and stands in no cell.
  const isUnknown = (file) => file === "<input>" || file === "<answer>";

  // A property of something that a program threw, or undefined when it cannot be read.
  function peek(object, name) {
    try {
      return object[name];
    } catch {
      return undefined; // a getter that throws
    }
  }

  // Text of a value that may refuse to be looked at.
  kit.describe = describe;
  function describe(value) {
    try {
      return kit.inspect(value);
    } catch {
      return `[${typeof value} that cannot be shown]`;
    }
  }

  // The frames of code that the user wrote.
  const userFrames = (error) => parseStack(peek(error, "stack"));

  function parseStack(stack) {
    if (typeof stack !== "string") return [];
    const frames = [];
    for (const line of stack.split("\n")) {
      const frame = parseFrame(line);
      if (frame === null || !Number.isInteger(frame.line) || isUnknown(frame.file)) continue;
      locate(frame);
      frames.push(frame);
    }
    return frames;
  }

  // Adds the source line; and the column in characters, which the engine counts in bytes.
  function locate(frame) {
    frame.column = frame.byte;
    const cell = CELL_FILE.exec(frame.file);
    if (cell !== null) frame.cell = Number(cell[1] ?? SEED);
    const source = cell === null ? kit.moduleSource(frame.file) : host.source(frame.cell);
    if (source === undefined) return;
    frame.source = lineOf(source, frame.line);
    if (frame.source !== undefined) frame.column = columnOf(frame.source, frame.byte);
  }

  const lineOf = (source, line) => source.split(/\r\n|[\n\r\u2028\u2029]/)[line - 1];

  // The column in characters of one in bytes.
  function columnOf(source, byte) {
    let bytes = 1;
    let column = 1;
    for (const c of source) {
      if (bytes >= byte) break;
      const code = c.codePointAt(0);
      bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
      column++;
    }
    return column;
  }

  // Characters of a line of source that stand in a stack.
  const SHOWN_LINE = 10000;

  // A syntax error of a file or a script, whose stack begins with the line that is wrong, as in Node.
  kit.withSource = (error, source, file) => {
    const stack = peek(error, "stack");
    if (!(error instanceof SyntaxError) || typeof stack !== "string") return error;
    const frame = stack.split("\n").map(parseFrame).find((one) => one !== null && one.file === file);
    const line = frame === undefined ? undefined : lineOf(source, frame.line);
    if (line === undefined || line.length > SHOWN_LINE) return error;
    const characters = Array.from(line);
    const at = columnOf(line, frame.byte) - 1;
    const word = /^(?:[\p{ID_Continue}$]+|"[^"]*"|'[^']*')/u.exec(characters.slice(at).join(""));
    error.stack = `${file}:${frame.line}\n${line}\n${blanks(characters.slice(0, at).join(""))}${"^".repeat(word?.[0].length ?? 1)}\n\n${stack}`;
    return error;
  };

  const frameText = (frame) => {
    const place = `${frame.file}:${frame.line}:${frame.column}`;
    const start = FRAME + (frame.isAsync ? ASYNC : "");
    return frame.name === "" ? start + place : `${start}${frame.name} (${place})`;
  };

  // Characters of a source line that are shown on either side of a place.
  const WINDOW = 100;
  // Characters of a message that are shown.
  const MESSAGE_HEAD = 12000;
  const MESSAGE_TAIL = 4000;

  const NARROW = /[\p{Mn}\p{Me}\p{Cf}]/u;
  const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
  const ASCII = /^[ -~]*$/;

  // What takes as much room on a screen as a text does.
  function blanks(text) {
    if (ASCII.test(text)) return " ".repeat(text.length);
    return Array.from(text, (c) => (c === "\t" ? "\t" : NARROW.test(c) ? "" : WIDE.test(c) ? "  " : " ")).join("");
  }

  // Columns that a text takes on a screen.
  kit.columns = (text) => blanks(text).length;

  // The part of a source line around a place, and what stands before the place in it.
  function windowOf({ source, column }) {
    if (source.length <= 2 * WINDOW) return { text: source, before: Array.from(source).slice(0, column - 1).join("") };
    const characters = Array.from(source);
    const start = Math.max(0, column - 1 - WINDOW);
    const end = Math.min(characters.length, column - 1 + WINDOW);
    const head = start > 0 ? "…" : "";
    return {
      text: head + characters.slice(start, end).join("") + (end < characters.length ? "…" : ""),
      before: head + characters.slice(start, column - 1).join(""),
    };
  }

  // A text with its middle left out when it is long.
  function cut(text) {
    const leftOut = text.length - MESSAGE_HEAD - MESSAGE_TAIL;
    if (leftOut <= 0) return text;
    return `${text.slice(0, MESSAGE_HEAD)}… (${leftOut} characters left out) …${text.slice(-MESSAGE_TAIL)}`.toWellFormed();
  }

  function nameOf(error) {
    const name = peek(error, "name");
    if (typeof name === "string" && name !== "") return name;
    return (kit.isError(error) && kit.constructorName(error)) || "Error";
  }

  function messageOf(error) {
    const message = peek(error, "message");
    try {
      return message === undefined ? "" : kit.explainExport(cut(String(message)));
    } catch {
      return describe(message);
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
      if (frame.source !== undefined && !repeated) lines.push(`        ${windowOf(frame).text.trim()}`);
    });
    return lines;
  }

  // What a program has put on an error besides what every error has, a line each.
  function extras(error) {
    // An error of the platform's says it all in its message, but for which address is none.
    const code = peek(error, "code");
    if (typeof code === "string" && code !== "ERR_INVALID_URL") return [];
    let names;
    try {
      names = Object.keys(error).filter((name) => !USUAL.includes(name) && (code === undefined || name !== "code"));
    } catch {
      return []; // a proxy that throws
    }
    const line = (name) => `  ${name}: ${describe(peek(error, name)).slice(0, EXTRA_CHARACTERS).replaceAll("\n", "\n  ")}`;
    return names.slice(0, EXTRAS).map(line);
  }

  // The traceback: headline, frames, then the causes. `above` are the errors that led here: they may go in circles.
  function traceback(error, frames, above) {
    const lines = [headline(error), ...frameLines(frames), ...extras(error)];
    const nested = (label, value) => {
      const deeper = [...above, error];
      let text;
      if (!kit.isError(value)) text = describe(value);
      else if (deeper.includes(value)) text = "[Circular]";
      else text = traceback(value, userFrames(value), deeper);
      lines.push(`  [${label}]: ${text.replaceAll("\n", "\n  ")}`);
    };
    if (above.length >= CAUSES) return lines.join("\n");
    const cause = peek(error, "cause");
    if (cause !== undefined) nested("cause", cause);
    const errors = peek(error, "errors");
    if (Array.isArray(errors)) {
      for (const one of errors.slice(0, ERRORS)) nested("error", one);
      if (errors.length > ERRORS) lines.push(`  ... ${errors.length - ERRORS} more errors`);
    }
    return lines.join("\n");
  }

  // What was thrown and is no error: a text, a number, an object. One that names itself is taken at its word.
  function describeOther(value, frames) {
    const isObject = typeof value === "object" && value !== null;
    const text = (key) => (isObject && typeof peek(value, key) === "string" ? peek(value, key) : "");
    const name = text("name") || "Uncaught";
    const message = cut(typeof value === "string" ? value : (text("name") && text("message")) || describe(value));
    return { name, message, traceback: [`${name}: ${message}`, ...frameLines(frames)].join("\n") };
  }

  // Whether it is the engine's own error for a lack of memory.
  kit.isOutOfMemory = (error) => error instanceof InternalError && messageOf(error) === "out of memory";

  function describeError(error, frames) {
    return {
      name: nameOf(error),
      message: messageOf(error),
      traceback: traceback(error, frames, []),
      memory: kit.isOutOfMemory(error),
      stdin: kit.isStdinError(error),
    };
  }

  // A line that begins or ends code in Markdown.
  const FENCE = /^\s*(?:`{3,}|~{3,})[ \t]*[\w+#.-]*\s*$/;
  const FENCES = " (the cell has the fences of Markdown: a cell is the code between them)";

  // Do fences of Markdown stand around the code of a cell? Those that a program begins with are a template called by another.
  function isFenced(error, cell) {
    const isSyntax = error instanceof SyntaxError;
    if (!isSyntax && !(error instanceof TypeError)) return false;
    const lines = (host.source(cell) ?? "").split("\n").filter((line) => line.trim() !== "");
    if (!isSyntax) return lines.length > 0 && FENCE.test(lines[0]);
    return lines.length > 0 && (FENCE.test(lines[0]) || FENCE.test(lines.at(-1)) || lines.filter((line) => FENCE.test(line)).length > 1);
  }

  // The record of a failed cell. `stack` is where the last exception came from, for one that does not say it itself.
  kit.failure = (error, cell, stack) => {
    const isError = kit.isError(error);
    const thrown = parseStack(stack);
    const frames = isError ? userFrames(error) : thrown;
    const isOwn = (frame) => frame.cell === cell;
    const record = isError ? describeError(error, frames.length > 0 ? frames : thrown) : describeOther(error, frames);
    const own = frames.find(isOwn) ?? thrown.find(isOwn);
    if (isError && isFenced(error, cell)) {
      record.traceback = record.traceback.replace(record.message, () => record.message + FENCES);
      record.message += FENCES;
    }
    if (own !== undefined) {
      record.line = own.line;
      record.column = own.column;
      if (own.source !== undefined) {
        const { text, before } = windowOf(own);
        record.snippet = text;
        record.pointer = `${blanks(before)}^`;
      }
    }
    return record;
  };

  // An error that nobody caught, of a cell that has already ended.
  kit.complain = (error) => {
    const text = kit.isError(error) ? traceback(error, userFrames(error), []) : describe(error);
    host.write(1, `Uncaught ${text}\n`);
  };
})
