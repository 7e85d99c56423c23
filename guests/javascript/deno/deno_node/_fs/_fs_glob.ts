// In place of Deno's `glob`, which walks its own files.
const matchGlobPattern = () => {
  throw kit.unsupported("path.matchesGlob");
};

module.exports = { matchGlobPattern };
