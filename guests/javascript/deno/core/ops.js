// In place of Deno's operations.
module.exports = require("deno/runtime/operations.js").ops;
