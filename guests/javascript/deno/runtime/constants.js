// node:constants, which is deprecated: all of Node's constants in one object.
const { fs, os } = require("deno/deno_node/internal_binding/constants.ts");

module.exports = { ...fs, ...os.errno, ...os.signals, ...os.priority };
