module.exports = require("deno/bootstrap.js");
