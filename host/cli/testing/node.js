const order = JSON.parse(process.argv[2]), tests = require("node:test");
process.argv = [...process.argv.slice(0, 1), ...order.files, ...order.arguments];
tests.report("tap");
for (const file of order.files) await import(`/workspace/${file}`);
await tests.ended();
