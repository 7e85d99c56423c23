// In place of Deno's operations.
module.exports = require("deno/operations.js").ops;
