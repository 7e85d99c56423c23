// Errors that Node gives codes to, and Deno none.

function invalidUrl(input, base) {
  const error = new TypeError(`Invalid URL: '${input}'${base === undefined ? "" : ` with base '${base}'`}`);
  return Object.assign(error, { code: "ERR_INVALID_URL", input }, base === undefined ? {} : { base });
}

module.exports = { invalidUrl };
