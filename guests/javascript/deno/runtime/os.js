// node:os. The same in every session: nothing of the host shows.
const { os: constants } = require("deno/deno_node/internal_binding/constants.ts");

const MEMORY_BYTES = 2 ** 32; // what a guest can address

module.exports = {
  EOL: "\n",
  devNull: "/dev/null",
  constants,
  arch: () => process.arch,
  availableParallelism: () => 1,
  cpus: () => [{ model: "cellar", speed: 0, times: { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 } }],
  endianness: () => "LE",
  freemem: () => Math.max(0, MEMORY_BYTES - host.memoryBytes()),
  getPriority: () => 0,
  homedir: () => process.env.HOME ?? process.cwd(),
  hostname: () => "cellar",
  loadavg: () => [0, 0, 0],
  machine: () => process.arch,
  networkInterfaces: () => ({}),
  platform: () => process.platform,
  release: () => "0.0.0",
  setPriority() {
    throw kit.unsupported("os.setPriority");
  },
  tmpdir: () => process.env.TMPDIR ?? "/tmp",
  totalmem: () => MEMORY_BYTES,
  type: () => "Linux",
  uptime: () => process.uptime(),
  userInfo: () => ({ uid: process.getuid(), gid: process.getgid(), username: "cellar", homedir: process.env.HOME ?? process.cwd(), shell: null }),
  version: () => "cellar",
};
