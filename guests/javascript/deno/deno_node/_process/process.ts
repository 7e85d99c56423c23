// In place of Deno's half of `process`: the one that sessions have.
const { process } = globalThis;

module.exports = {
  arch: process.arch,
  argv: process.argv,
  chdir: process.chdir,
  cwd: process.cwd,
  env: process.env,
  nextTick: process.nextTick,
  pid: process.pid,
  platform: process.platform,
  version: process.version,
  versions: process.versions,
};
