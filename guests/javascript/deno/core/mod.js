module.exports = require("deno/runtime/bootstrap.js");
