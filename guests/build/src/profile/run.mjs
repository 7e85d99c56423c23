import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";

const [, , program, folder] = process.argv;
const wasi = new WASI({ version: "preview1", preopens: { "/": folder } });
const module = await WebAssembly.compile(readFileSync(program));
wasi.start(await WebAssembly.instantiate(module, { wasi_snapshot_preview1: wasi.wasiImport }));
