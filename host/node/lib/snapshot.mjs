// Snapshots, in files.

import { rmSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

const asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");

// Folders that go with their snapshots, or with the process.
const folders = new Set();
const forgotten = new FinalizationRegistry((folder) => {
  folders.delete(folder);
  rm(folder, { recursive: true, force: true }).catch(() => {});
});

function sweep() {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
}

/** The state of a sandbox, in a file; or on a server, by a name. A file that was made for it goes with it. */
export class Snapshot {
  constructor(path) {
    this.path = path;
  }

  static async _temporary() {
    const folder = await mkdtemp(join(tmpdir(), "cellar-"));
    const made = new Snapshot(join(folder, "state.snapshot"));
    if (folders.size === 0) {
      process.off("exit", sweep);
      process.on("exit", sweep);
    }
    folders.add(folder);
    forgotten.register(made, folder, made);
    return made;
  }

  /** The whole snapshot, to be kept elsewhere. */
  async bytes() {
    return await readFile(this.path);
  }

  /** Removes a file that was made for it. */
  async [asyncDispose]() {
    const folder = dirname(this.path);
    if (!folders.delete(folder)) return;
    forgotten.unregister(this);
    await rm(folder, { recursive: true, force: true });
  }
}
