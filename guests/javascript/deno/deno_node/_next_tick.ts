// In place of Deno's ticks: those of the session.
module.exports = { nextTick: (task, ...values) => globalThis.process.nextTick(task, ...values) };
