// Cellar: runs the Python and JavaScript that agents write, in WebAssembly sandboxes inside this process.

export { configure } from "./lib/engine.mjs";
export { CellFailed, SandboxError } from "./lib/errors.mjs";
export { Result } from "./lib/results.mjs";
export { Folder, Run, Sandbox, replay } from "./lib/sandbox.mjs";
export { Snapshot } from "./lib/snapshot.mjs";
export { tool } from "./lib/tools.mjs";
