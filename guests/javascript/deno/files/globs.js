// Patterns of paths: `**` for folders in one another, `*`, `?`, `[a-z]`, `{a,b}`.
const path = kit.requireBuiltin("path");

// Alternatives that the braces of a pattern may have.
const ALTERNATIVES_MAX = 1000;

// The patterns without braces that one with braces stands for.
function alternatives(pattern) {
  const found = [];
  const queue = [pattern];
  for (let one = queue.pop(); one !== undefined; one = queue.pop()) {
    const braces = /\{([^{}]*,[^{}]*)\}/.exec(one);
    if (braces === null) found.push(one);
    else for (const part of braces[1].split(",").reverse()) queue.push(one.slice(0, braces.index) + part + one.slice(braces.index + braces[0].length));
    if (found.length + queue.length > ALTERNATIVES_MAX) throw new RangeError(`a pattern stands for more than ${ALTERNATIVES_MAX} others`);
  }
  return found;
}

// One name of a path as a regular expression. What begins with a dot is named as such.
function nameExpression(part) {
  const text = part.replace(/\[(!?)([^\]/]+)\]|\*+|\?|[\\^$.|+(){}[\]]/g, (found, not, set) => {
    if (set !== undefined) return `[${not ? "^" : ""}${set.replace(/[\\^]/g, "\\$&")}]`;
    return found[0] === "*" ? "[^/]*" : found === "?" ? "[^/]" : `\\${found}`;
  });
  return new RegExp(`^${/^[*?[]/.test(part) ? "(?!\\.)" : ""}${text}$`);
}

const partsOf = (pattern) => path.normalize(pattern).split("/").map((part) => (part === "**" || !/[*?[\]]/.test(part) ? part : nameExpression(part)));
const fits = (part, name) => (typeof part === "string" ? part === name : part.test(name));

// Whether the names from `at` fit the parts from `from`.
function matches(parts, names, from = 0, at = 0) {
  // Where each run of parts may begin: `seen[i]` says that the parts before `i` fit the names before the one at hand.
  let seen = new Set([from]);
  const widened = (set) => {
    for (const i of set) if (parts[i] === "**" && i + 1 < parts.length) set.add(i + 1);
    return set;
  };
  for (let i = at; i < names.length; i++) {
    const next = new Set();
    for (const part of widened(seen)) {
      if (parts[part] === "**") {
        if (!names[i].startsWith(".")) next.add(part).add(part + 1);
      } else if (part < parts.length && fits(parts[part], names[i])) {
        next.add(part + 1);
      }
    }
    seen = next;
  }
  return seen.has(parts.length);
}

function matchesGlob(text, pattern) {
  const { validateString } = require("deno/deno_node/internal/validators.js");
  validateString(text, "path");
  validateString(pattern, "pattern");
  return alternatives(pattern).some((one) => matches(partsOf(one), path.normalize(text).split("/")));
}

// The entries below `cwd` that fit a pattern, each as [path as the pattern has it, entry]. `list` gives the entries of a folder.
function* found(pattern, cwd, list, exists) {
  const parts = partsOf(pattern);
  const absolute = parts[0] === "";
  const queue = [[absolute ? "/" : "", absolute ? 1 : 0]];
  const given = new Set();
  const visited = new Set();
  const give = function* (at, entry) {
    const name = at === "" ? "." : at;
    if (given.has(name)) return;
    given.add(name);
    yield [name, entry];
  };
  for (let one = queue.pop(); one !== undefined; one = queue.pop()) {
    const [at, i] = one;
    if (visited.has(`${i}:${at}`)) continue;
    visited.add(`${i}:${at}`);
    const folder = path.resolve(cwd, at === "" ? "." : at);
    const below = (name) => (at === "" ? name : at === "/" ? `/${name}` : `${at}/${name}`);
    const part = parts[i];
    if (typeof part === "string" && part !== "**") {
      const entry = exists(path.join(folder, part));
      if (entry === undefined) continue;
      if (i + 1 === parts.length) yield* give(below(part), entry);
      else if (entry.isDirectory()) queue.push([below(part), i + 1]);
      continue;
    }
    if (part === "**") {
      if (i + 1 === parts.length) yield* give(at, exists(folder));
      else queue.push([at, i + 1]);
    }
    for (const entry of list(folder)) {
      if (part === "**") {
        if (entry.name.startsWith(".")) continue;
        if (entry.isDirectory()) queue.push([below(entry.name), i]);
        if (i + 1 === parts.length) yield* give(below(entry.name), entry);
      } else if (part.test(entry.name)) {
        if (i + 1 === parts.length) yield* give(below(entry.name), entry);
        else if (entry.isDirectory()) queue.push([below(entry.name), i + 1]);
      }
    }
  }
}

module.exports = { alternatives, found, matchesGlob };
