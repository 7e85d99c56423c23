// The examples of the manual, and a program with types: TypeScript checks them strictly, and the examples are run.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(import.meta.url);
const here = dirname(fileURLToPath(import.meta.url));
const folder = join(here, "compiled");
after(() => rm(folder, { recursive: true }));

globalThis.check = assert.deepEqual;
const page = await readFile(join(dirname(require.resolve("cellar-sandbox")), "README.md"), "utf8");
const examples = [...page.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, source]) => source);
await mkdir(folder);
for (const [at, source] of examples.entries()) {
  const checked = source.replace(/^(.*); \/\/ => (.*)$/gm, "(globalThis as any).check($1, $2);");
  await writeFile(join(folder, `example${at}.mts`), `${checked}\nexport {};\n`);
}
await cp(join(here, "types.ts"), join(folder, "types.mts"));
const files = [...examples.keys()].map((at) => join(folder, `example${at}.mts`));
const flags = ["--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--target", "es2022", "--module", "nodenext"];
const lib = ["--lib", "es2023,esnext.disposable,dom,dom.iterable,dom.asynciterable"];
const command = [require.resolve("typescript/bin/tsc"), ...flags, ...lib, ...files, join(folder, "types.mts")];
const compiled = await promisify(execFile)(process.execPath, command).catch(({ stdout, stderr }) => ({ stdout, stderr }));

test("types hold", () => assert.equal(compiled.stdout + compiled.stderr, ""));

test("there are examples", () => assert.ok(examples.length > 5));

for (const [at, source] of examples.entries()) {
  const name = source.split("\n").find((line) => line.includes("// =>"));
  test(name, () => import(pathToFileURL(files[at].replace(/mts$/, "mjs"))));
}
