// Errors that Node gives codes to, and Deno none.

function invalidUrl(input, base) {
  const error = new TypeError("Invalid URL");
  return Object.assign(error, { code: "ERR_INVALID_URL", input }, base === undefined ? {} : { base });
}

function invalidState(message) {
  return kit.coded("ERR_INVALID_STATE", `Invalid state: ${message}`, TypeError);
}

function invalidType(name, expected, value) {
  const { ERR_INVALID_ARG_TYPE } = require("deno/deno_node/internal/errors.ts");
  return new ERR_INVALID_ARG_TYPE(name, expected, value);
}

// Has an exception of the web begin its stack with its name, and keep what it knows of itself out of sight.
function finishException(error, name, message) {
  for (const key of Object.getOwnPropertySymbols(error)) Object.defineProperty(error, key, { enumerable: false });
  const stack = String(error.stack).replace(/^Error(?=\n|$)/, () => (message === "" ? name : `${name}: ${message}`));
  Object.defineProperty(error, "stack", { value: stack, writable: true, configurable: true, enumerable: false });
}

function checkEvent(isEvent, value) {
  if (!isEvent) throw invalidType("event", "Event", value);
}

function checkListener(value) {
  if (value !== null && !["undefined", "object", "function"].includes(typeof value)) {
    throw invalidType("listener", "EventListener", value);
  }
}

// What is secret does not go into the message.
function checkCredentials(url) {
  if (url.username === "" && url.password === "") return;
  throw new TypeError(`Request cannot be constructed from a URL that includes credentials: ${url.protocol}//...@${url.host}${url.pathname}. Use an Authorization header`);
}

module.exports = { checkCredentials, checkEvent, checkListener, invalidState, invalidUrl, finishException };
