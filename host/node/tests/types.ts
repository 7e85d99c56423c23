// A program with types, which is checked and not run.

import { CellFailed, Sandbox, SandboxError, configure, replay, tool } from "cellar-sandbox";
import type { Event, Result, SandboxOptions } from "cellar-sandbox";

configure({ kernels: 4 });
// @ts-expect-error There is no such setting.
configure({ nonsense: 1 });

const schema = {
  "~standard": {
    version: 1 as const,
    vendor: "test",
    validate: (value: unknown) => ({ value: value as { a: number } }),
    types: undefined as { readonly input: { a: number }; readonly output: { a: number } } | undefined,
  },
};
const typed = tool({
  parameters: schema,
  execute: ({ a }, { signal }) => (signal.aborted ? 0 : a + 1),
});
tool({
  parameters: schema,
  // @ts-expect-error The schema has no such argument.
  execute: ({ b }) => b,
});

const options: SandboxOptions = {
  tools: { typed, plain: ({ a }) => a, described: { description: "", parameters: { type: "object" }, execute: async () => 1 } },
  llm: (prompt, { model, schema }) => (schema === null ? prompt + model : { n: 1 }),
  agent: async (prompt, { agentType, depth }) => prompt + agentType + String(depth),
  http: (request) => fetch(request),
  input: (prompt) => prompt,
  limits: { timeout: 1 },
};
// @ts-expect-error There is no such language.
const wrong: SandboxOptions = { language: "ruby" };

export async function main(): Promise<number> {
  await using s: Sandbox = await Sandbox.create(options);
  await using far: Sandbox = await Sandbox.connect("http://localhost", "token");
  const result: Result = await s.run(["1", { code: "2", language: "js", timeout: 1 }], { signal: AbortSignal.timeout(1), keepGoing: true });
  const lengths: number[] = result.cells.map((cell) => cell.error?.message.length ?? cell.text.length);
  const run = s.stream("1");
  for await (const event of run) {
    if (event.type === "display") lengths.push(Object.keys(event.data).length);
    else if (event.type === "cell_finished") lengths.push(event.durationMs);
    else if (event.type === "input_request") run.answer(event, null);
    // @ts-expect-error Not every event has text.
    event.text;
  }
  const double = await s.cell(async (n: number) => n * 2);
  lengths.push(await double(2));
  // @ts-expect-error The function takes a number.
  await double("2");
  const bytes: Uint8Array = await s.files.read("a");
  const text: string = await s.files.read("a", "utf8");
  const events: Event[] = await replay("file");
  try {
    (await far.run("1")).check();
  } catch (error) {
    if (error instanceof CellFailed) lengths.push(error.error.line ?? 0);
    if (error instanceof SandboxError) lengths.push(error.code.length);
  }
  return lengths.length + bytes.length + text.length + events.length + Object.keys(wrong).length;
}
