// In place of Deno's standard streams: none is a terminal.
const stream = { isTerminal: () => false };

module.exports = { stdin: stream, stdout: stream, stderr: stream };
