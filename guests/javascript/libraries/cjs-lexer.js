// Finds the names that a CommonJS module exports, without running it. What the package gives to `require` is the form
// of it in JavaScript; to `import` it gives WebAssembly.
export const { parse } = require("cjs-module-lexer");
