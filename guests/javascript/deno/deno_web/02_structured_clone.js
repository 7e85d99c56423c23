// In place of Deno's first half of cloning, which knows arrays of bytes alone.
module.exports = { structuredClone: (value) => require("deno/deno_web/13_message_port.js").structuredClone(value) };
