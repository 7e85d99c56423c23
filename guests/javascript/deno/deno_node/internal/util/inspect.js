// In place of Deno's `inspect`: that of the prelude, which displays and the console use too.
const { validateOneOf, validateString } = require("deno/deno_node/internal/validators.js");

const { format, formatWithOptions, inspect } = kit.library("inspect");

const CONTROL = /[\u001b\u009b](?:\[[()#;?]*(?:\d{1,4}(?:;\d{0,4})*)?[\dA-PR-TZcf-nq-uy=><~]|\][^\u0007]*\u0007)/g;

function stripVTControlCharacters(text) {
  validateString(text, "str");
  return text.replace(CONTROL, "");
}

// Columns that a text takes: none for marks that combine, two for the wide scripts of Asia.
function getStringWidth(text, removeControlChars = true) {
  let width = 0;
  for (const c of (removeControlChars ? text.replace(CONTROL, "") : text).normalize("NFC")) {
    if (/\p{Mn}|\p{Me}|\p{Cf}|\p{Cc}/u.test(c)) continue;
    width += /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Extended_Pictographic}/u.test(c) ? 2 : 1;
  }
  return width;
}

// Without colours where nobody would see them, unless that does not matter.
function styleText(names, text, { validateStream = true, stream = globalThis.process.stdout } = {}) {
  validateString(text, "text");
  let [head, tail] = ["", ""];
  for (const name of Array.isArray(names) ? names : [names]) {
    const colour = inspect.colors[name];
    if (colour === undefined) validateOneOf(name, "format", Object.keys(inspect.colors));
    head += `\u001b[${colour[0]}m`;
    tail = `\u001b[${colour[1]}m${tail}`;
  }
  return validateStream && !stream.isTTY && !globalThis.process.env.FORCE_COLOR ? text : head + text + tail;
}

const all = { format, formatWithOptions, getStringWidth, inspect, stripVTControlCharacters, styleText };
module.exports = { ...all, default: all };
