// Types of `cellar-sandbox`. They need `lib` from ES2022 on, with `AbortSignal` and `fetch` of the DOM's or of `@types/node`.

/// <reference lib="esnext.disposable" />

/** What JSON has. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export type Language = "py" | "js" | "python" | "javascript";

/** A cell with more than its source. */
export interface Cell {
  code: string;
  language?: Language;
  title?: string;
  /** Seconds that it may take. */
  timeout?: number;
  /** True if its language begins with a fresh interpreter. */
  reset?: boolean;
}

export type Cells = string | Cell | readonly (string | Cell)[];

/** What the function of a tool, a model or an agent is given beside its arguments. */
export interface CallOptions {
  /** Aborted when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

/** A schema of a library that has Standard Schema, such as Zod, Valibot or ArkType. */
export interface StandardSchema<Output = unknown> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
  };
}

/** Output of a schema: the arguments of a tool. */
export type ArgumentsOf<Schema> = Schema extends { readonly "~standard": { readonly types?: infer Types } }
  ? NonNullable<Types> extends { readonly output: infer Output }
    ? Output
    : any
  : any;

/** A function that cells call as `tool.NAME(...)`. */
export interface Tool<Schema = any> {
  description?: string;
  /** JSON Schema of its arguments, or a schema of a library that can give one. What does not fit is refused. */
  parameters?: Schema;
  /** The same, as others call it. */
  inputSchema?: Schema;
  execute: (args: ArgumentsOf<Schema>, options: CallOptions) => unknown;
}

/** Makes a tool whose function has the types of its schema. */
export declare function tool<Schema>(definition: Tool<Schema>): Tool<Schema>;

export interface ModelOptions extends CallOptions {
  model: string;
  system: string | null;
  schema: Json;
}

export interface AgentOptions extends CallOptions {
  agentType: string;
  model: string;
  context: string | null;
  label: string | null;
  schema: Json;
  depth: number;
}

/** Tables of a `cellar.toml`. */
export type Table = { readonly [name: string]: Json };

/** Options of a sandbox. It is granted nothing but what is said here. */
export interface SandboxOptions {
  /** The language of cells that name none: Python, unless given. */
  language?: Language;
  /** True for Python with NumPy, pandas and Matplotlib, of the package `cellar-sandbox-data`. */
  data?: boolean;
  /** Functions that cells call as `tool.NAME(...)`. A function alone takes any arguments. */
  tools?: { readonly [name: string]: Tool | ((args: any, options: CallOptions) => unknown) };
  /** Folders: `{ "/data": "./data", "/out": { host: "./out", write: true } }`. */
  mounts?: { readonly [guest: string]: string | Table };
  /** A folder of the host that cells see as `/workspace` and write to; a private one otherwise. */
  workspace?: string;
  environment?: { readonly [name: string]: string };
  /** `[limits]` of a `cellar.toml`, such as `{ timeout: 5, memory_mib: 256 }`. */
  limits?: { readonly [name: string]: number };
  packages?: readonly string[];
  connectors?: Table;
  /** Answers `llm(prompt)`: a function, or `[llm]`. */
  llm?: ((prompt: string, options: ModelOptions) => unknown) | Table;
  /** Answers `agent(prompt)`: a function, or `[agents]`. */
  agent?: ((prompt: string, options: AgentOptions) => unknown) | Table;
  /** Rules for hosts, or a function that answers every request itself. */
  http?: ((request: Request) => Response | Promise<Response>) | Table | readonly Table[];
  /** Answers `input()` of cells; null is the end of the input. True, where `Run.answer` does. */
  input?: ((prompt: string) => string | null | Promise<string | null>) | true;
  /** Names that Python begins with, and their values. */
  bindings?: Table;
  /** More of a `cellar.toml`, or the path of one in the place of all other grants. */
  config?: string | Table;
  /** The state that it begins with. */
  snapshot?: Snapshot | string;
  name?: string;
  /** A folder in which its state is kept, by its name, when it is closed, and from which it goes on when it is opened again. */
  store?: string;
  /** A file for `replay`. */
  record?: string;
}

export interface RunOptions {
  language?: Language;
  /** Seconds that each cell may take, 30 unless given. */
  timeout?: number;
  /** Runs the cells after one that fails too. */
  keepGoing?: boolean;
  producer?: string;
  /** Stops the cells. `run` rejects with its reason; a stream goes on to its proper end. */
  signal?: AbortSignal;
}

/** Failure of a cell. */
export interface CellError {
  kind: "raised" | "timeout" | "interrupted" | "fuel" | "memory" | "output" | "stdin" | "trap";
  /** The type of the exception, such as `ZeroDivisionError`. */
  name: string;
  message: string;
  /** The line of the cell, from 1 on. */
  line: number | null;
  column: number | null;
  /** The source of that line. */
  snippet: string | null;
  /** A line of carets for below it. */
  pointer: string | null;
  summary: string;
  /** The frames of the program alone. */
  traceback: string;
  /** A word for programs where the cell was stopped for a reason that is not its own, such as `busy` or `lost`. */
  code: string | null;
  /** True if the session keeps all that its cells made. */
  stateKept: boolean;
}

/** Resources that a cell used. */
export interface Usage {
  /** Instructions, where they are counted. */
  fuel: number | null;
  cpuMs: number;
  memoryPeakBytes: number;
}

/** One cell of a run. */
export interface CellResult {
  index: number;
  title: string | null;
  language: string;
  code: string;
  /** `pending` for one that was not run. */
  status: "complete" | "error" | "pending";
  text: string;
  durationMs: number | null;
  usage: Usage | null;
  error: CellError | null;
}

/** An image that a cell displayed. */
export interface Image {
  mimeType: string;
  data: Uint8Array;
}

/** A block for a model. */
export type Block = { type: "text"; text: string } | { type: "image"; data: string; mimeType: string };

/** Result of a run. */
export declare class Result {
  private constructor();
  /** Everything that a reader of the run sees, as one text. */
  readonly text: string;
  /** The last value that was displayed as JSON; undefined if there is none. */
  readonly json: any;
  /** Values that were displayed as JSON. */
  readonly jsonOutputs: Json[];
  /** The images that were displayed. */
  readonly images: Image[];
  /** True if a cell failed. */
  readonly isError: boolean;
  /** Failure of the first cell that failed; null if none did. */
  readonly error: CellError | null;
  /** The cells, in order. */
  readonly cells: CellResult[];
  /** Everything that the engine says of the run. */
  readonly details: { readonly [name: string]: Json };
  /** Returns the result itself, or throws `CellFailed` if a cell failed. */
  check(): Result;
  /** Blocks of text and images for a model. */
  toLlm(): Block[];
  toString(): string;
  toJSON(): unknown;
}

interface EventBase<Type extends string> {
  type: Type;
  seq: number;
}

interface CellEvent<Type extends string> extends EventBase<Type> {
  /** The cell in the run, from 0 on. */
  index: number;
}

/** A run begins. It is the first event. */
export interface RunStarted extends EventBase<"run_started"> {
  session: string;
  cells: Json[];
}

/** A cell begins; `cell` is its number in its session. */
export interface CellStarted extends CellEvent<"cell_started"> {
  cell: number;
}

/** Text was written. */
export interface Output extends CellEvent<"stdout" | "stderr"> {
  text: string;
}

/** A value was displayed: by MIME type; binary data as base64. */
export interface Display extends CellEvent<"display"> {
  data: { [mimeType: string]: Json };
  displayId?: string;
  /** True for the value of the cell's last expression. */
  isValue?: boolean;
}

/** A value was displayed in the place of an earlier one. */
export interface UpdateDisplay extends CellEvent<"update_display"> {
  data: { [mimeType: string]: Json };
  displayId: string;
}

/** Removal of everything that was displayed so far. */
export interface ClearOutput extends CellEvent<"clear_output"> {
  wait: boolean;
}

/** A helper or the engine says what it did. */
export interface Status extends CellEvent<"status"> {
  status: { [name: string]: Json };
}

/** A cell calls a tool, a model, an agent, a connector or a host. */
export interface CallStarted extends CellEvent<"call_started"> {
  call: number;
  bridge: string;
  name: string;
}

/** A call came back. */
export interface CallFinished extends CellEvent<"call_finished"> {
  call: number;
  durationMs: number;
  error?: string;
}

/** A cell asks for a line of input. */
export interface InputRequest extends CellEvent<"input_request"> {
  requestId: string;
  prompt: string;
  idleTimeoutSeconds: number;
}

/** A cell has ended. */
export interface CellFinished extends CellEvent<"cell_finished"> {
  status: "complete" | "error" | "pending";
  durationMs: number;
  usage: Usage | null;
  error: CellError | null;
}

/** Code that outlived its cell wrote text. */
export interface Background extends CellEvent<"background"> {
  cell: number;
  stream: string;
  text: string;
}

/** A run has ended. It is the last event. */
export interface RunFinished extends EventBase<"run_finished"> {
  isError: boolean;
}

/** An event of another kind. */
export interface OtherEvent extends EventBase<"fork" | "fetched" | "bound"> {
  [name: string]: Json;
}

export type Event =
  | RunStarted | CellStarted | Output | Display | UpdateDisplay | ClearOutput | Status | CallStarted | CallFinished
  | InputRequest | CellFinished | Background | RunFinished | OtherEvent;

/** A run under way: an asynchronous iterator of its events. */
export declare class Run implements AsyncIterableIterator<Event>, AsyncDisposable {
  private constructor();
  [Symbol.asyncIterator](): this;
  next(): Promise<IteratorResult<Event, undefined>>;
  /** Stops the run: its events are not wanted any more. */
  return(): Promise<IteratorResult<Event, undefined>>;
  /** Result of the run. Reads the events that are left. */
  result(): Promise<Result>;
  /** Answers a request for input; null is the end of the input. */
  answer(request: InputRequest, value: string | null): void;
  /** Stops the run, which goes on to its proper end; what its cells have made stays. */
  cancel(): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A name of a sandbox, and what it has. */
export interface Variable {
  name: string;
  type: string;
  size: number | null;
  preview: string;
}

/** An entry of a folder. */
export interface Entry {
  name: string;
  kind: "file" | "folder" | "link" | "other";
  size: number | null;
  /** Seconds since the Unix epoch. */
  modifiedAt: number | null;
}

/** Files of a sandbox. Paths are below `/workspace` unless they begin with a slash. */
export declare class Folder {
  private constructor();
  /** The bytes of a file. */
  read(path: string): Promise<Uint8Array>;
  /** The text of a file. */
  read(path: string, encoding: "utf8" | "latin1" | "base64" | "hex"): Promise<string>;
  /** Writes a file, and makes the folders that it is in. */
  write(path: string, content: string | Uint8Array): Promise<void>;
  /** The entries of a folder, by name. */
  list(path?: string): Promise<Entry[]>;
  /** Removes a file, or a folder that is empty. */
  remove(path: string): Promise<void>;
  /** Copies a folder of the host with all in it. Links in it are not followed. */
  upload(folder: string, path?: string): Promise<void>;
}

/** The state of a sandbox, in a file; or on a server, by a name. A file that was made for it goes with it. */
export declare class Snapshot implements AsyncDisposable {
  constructor(path: string);
  readonly path: string;
  /** The whole snapshot, to be kept elsewhere. */
  bytes(): Promise<Uint8Array>;
  /** Removes a file that was made for it. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** A sandbox whose names and files live on from cell to cell. */
export declare class Sandbox implements AsyncDisposable {
  private constructor();
  readonly name: string;
  readonly language: "py" | "js";
  /** Opens a sandbox in this process. It is granted nothing but what its options say. */
  static create(options?: SandboxOptions): Promise<Sandbox>;
  /** Opens a sandbox on a server, with the same methods. Of the options it has those that the server allows. It ends with this object. */
  static connect(url: string, token: string, options?: SandboxOptions): Promise<Sandbox>;
  /** Runs cells, and returns what they come to. A cell that raises is no exception here: see `Result.check`. */
  run(cells: Cells, options?: RunOptions): Promise<Result>;
  /** Runs cells, and gives their events as they happen. What is not read holds up the cells. */
  stream(cells: Cells, options?: RunOptions): Run;
  /** Makes a function of the program run in this sandbox, which knows nothing around it: arguments and results are JSON. */
  cell<Arguments extends unknown[], Value>(
    fn: (...args: Arguments) => Value,
  ): Promise<(...args: Arguments) => Promise<Awaited<Value>>>;
  /** The value of a name, as JSON has it. */
  get(name: string, options?: { language?: Language }): Promise<any>;
  /** Binds a name to a value, which crosses as JSON. */
  set(name: string, value: unknown, options?: { language?: Language }): Promise<void>;
  /** Its files. */
  readonly files: Folder;
  /** Its names, each with a preview of what it has. */
  variables(options?: { language?: Language }): Promise<Variable[]>;
  /** Completions of a text at a cursor, which is at its end unless given. */
  complete(code: string, options?: { cursor?: number; language?: Language }): Promise<string[]>;
  /** Gives a language, or all, a fresh interpreter. Files stay. */
  reset(language?: Language): Promise<void>;
  /** A sandbox of its own that begins with the state of this one: names, open generators, files. */
  fork(name?: string): Promise<Sandbox>;
  /** Writes its state into a file: one of its own that goes with the snapshot, unless a path is given. */
  snapshot(path?: string): Promise<Snapshot>;
  /** Takes it back to a snapshot. Files stay as they are. */
  rewind(snapshot: Snapshot | string): Promise<void>;
  /** Gives its memory back until it is used again. */
  hibernate(): Promise<void>;
  /** Ends the recording, which closing it does as well. */
  endRecording(): Promise<void>;
  /** Ends it and its runs. What is kept in a store is on the disk when this returns. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A request that was refused: a wrong grant, a sandbox that is closed, a server that cannot be reached, a file that is not there. */
export declare class SandboxError extends Error {
  constructor(message: string, code?: string, hint?: string | null);
  /** A stable word for programs, such as `usage`, `closed`, `quota` or `ENOENT`. */
  readonly code: string;
  /** A remedy, in words. */
  readonly hint: string | null;
}

/** A cell that failed, where a value of it was wanted. */
export declare class CellFailed extends Error {
  constructor(error: CellError);
  readonly error: CellError;
}

/** Says where the guests are, where compiled code is kept, and how many interpreters may be in memory at the same time. */
export declare function configure(settings: { guests?: string; cache?: string; kernels?: number }): void;

/** Plays a recording again, in this process and with nothing granted, and returns its events, which are those of then. */
export declare function replay(path: string): Promise<Event[]>;
