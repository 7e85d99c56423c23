// In place of Deno's `glob`, which walks its own files.
const matchGlobPattern = (path, pattern) => require("deno/files/globs.js").matchesGlob(path, pattern);

module.exports = { matchGlobPattern };
