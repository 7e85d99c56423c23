// In place of Deno's: there is no parser for the text of an assertion that failed.
module.exports = { getErrorSourceExpression: () => undefined };
