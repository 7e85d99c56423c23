// The binary format of WebAssembly: what a module says, with the bodies of its functions as they stand.
const TYPES = { 0x7f: "i32", 0x7e: "i64", 0x7d: "f32", 0x7c: "f64", 0x70: "funcref", 0x6f: "externref" };
const KINDS = ["function", "table", "memory", "global"];
const MODULE_BYTES_MAX = 32 << 20;

class Reader {
  constructor(bytes, fail, at = 0, end = bytes.length) {
    Object.assign(this, { bytes, fail, at, end, view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength) });
  }
  byte() {
    if (this.at >= this.end) this.fail("unexpected end", this.at);
    return this.bytes[this.at++];
  }
  // A number of at most 32 bits.
  u32() {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    return this.fail("a number is too long", this.at);
  }
  i32() {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return shift < 28 && byte & 0x40 ? value | (-1 << (shift + 7)) : value;
    }
    return this.fail("a number is too long", this.at);
  }
  i64() {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asIntN(64, byte & 0x40 ? value | (-1n << (shift + 7n)) : value);
    }
    return this.fail("a number is too long", this.at);
  }
  f32() {
    if (this.at + 4 > this.end) this.fail("unexpected end", this.at);
    return this.view.getFloat32((this.at += 4) - 4, true);
  }
  f64() {
    if (this.at + 8 > this.end) this.fail("unexpected end", this.at);
    return this.view.getFloat64((this.at += 8) - 8, true);
  }
  take(length) {
    if (this.at + length > this.end) this.fail("unexpected end", this.at);
    return this.bytes.subarray(this.at, (this.at += length));
  }
  name() {
    return kit.decode(this.take(this.u32()));
  }
  list(read) {
    const length = this.u32();
    if (length > this.end - this.at) this.fail("unexpected end", this.at);
    return Array.from({ length }, () => read());
  }
  type() {
    const code = this.byte();
    return TYPES[code] ?? this.fail(`there is no type 0x${code.toString(16)} here`, this.at - 1);
  }
  limits() {
    const flags = this.byte();
    if (flags > 1) this.fail("shared and 64-bit memories are not there", this.at - 1);
    return { minimum: this.u32(), maximum: flags === 1 ? this.u32() : undefined };
  }
  table() {
    const element = this.type();
    return { element, ...this.limits() };
  }
  global() {
    const type = this.type();
    return { type, mutable: this.byte() === 1 };
  }
  // An expression that is constant, as a function of the globals and functions that there are by then.
  constant() {
    const stack = [];
    for (;;) {
      const code = this.byte();
      if (code === 0x0b) break;
      if (code === 0x41) stack.push(((value) => () => value)(this.i32()));
      else if (code === 0x42) stack.push(((value) => () => value)(this.i64()));
      else if (code === 0x43) stack.push(((value) => () => value)(this.f32()));
      else if (code === 0x44) stack.push(((value) => () => value)(this.f64()));
      else if (code === 0x23) stack.push(((index) => (instance) => instance.globals[index].v)(this.u32()));
      else if (code === 0xd0) stack.push((this.byte(), () => null));
      else if (code === 0xd2) stack.push(((index) => (instance) => instance.functionAt(index))(this.u32()));
      else this.fail(`the opcode 0x${code.toString(16)} is not constant`, this.at - 1);
    }
    return stack.at(-1) ?? this.fail("an expression has no value", this.at);
  }
}

function readModule(bytes, fail) {
  if (bytes.length > MODULE_BYTES_MAX) fail(`a module has at most ${MODULE_BYTES_MAX} bytes here`, 0);
  const hex = (from) => [...bytes.subarray(from, from + 4)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  if (bytes.length === 0) fail("BufferSource argument is empty");
  if (hex(0) !== "00 61 73 6d") fail(`expected magic word 00 61 73 6d, found ${hex(0)}`, 0);
  if (bytes.length < 8) fail("expected 4 bytes, fell off end", Math.min(bytes.length, 4));
  if (hex(4) !== "01 00 00 00") fail(`expected version 01 00 00 00, found ${hex(4)}`, 4);
  const module = {
    types: [], imports: [], functions: [], tables: [], memories: [], globals: [], exports: [], start: undefined, elements: [], codes: [], data: [], custom: [],
  };
  const reader = new Reader(bytes, fail, 8);
  while (reader.at < bytes.length) {
    const id = reader.byte();
    const size = reader.u32();
    const from = reader.at;
    const left = bytes.length - from;
    if (size > left) fail(`section (code ${id}) extends past end of the module (length ${size}, remaining bytes ${left})`, from);
    readSection(module, id, new Reader(bytes, fail, from, from + size));
    reader.at = from + size;
  }
  const typed = [...module.imports.filter(({ kind }) => kind === "function").map(({ what }) => what.type), ...module.functions];
  const unknown = typed.find((index) => index >= module.types.length);
  if (unknown !== undefined) fail(`no signature at index ${unknown} (${module.types.length} types)`, bytes.length);
  if (module.codes.length !== module.functions.length) fail(`function count is ${module.functions.length}, but code section is absent or differs`, bytes.length);
  // How many there are of each kind, imported ones among them.
  const own = { function: module.functions, table: module.tables, memory: module.memories, global: module.globals };
  module.counts = Object.fromEntries(KINDS.map((kind) => [kind, own[kind].length + module.imports.filter((each) => each.kind === kind).length]));
  const named = [...module.exports, ...(module.start === undefined ? [] : [{ kind: "function", index: module.start }])];
  for (const { table, offset } of module.elements) if (offset !== undefined) named.push({ kind: "table", index: table });
  if (module.data.some(({ offset }) => offset !== undefined)) named.push({ kind: "memory", index: 0 });
  for (const { kind, index } of named) if (!(index < module.counts[kind])) fail(`there is no ${kind} ${index}: there are ${module.counts[kind] ?? 0}`, bytes.length);
  return module;
}

function readSection(module, id, reader) {
  const { fail } = reader;
  switch (id) {
    case 0: return void module.custom.push({ name: reader.name(), bytes: reader.take(reader.end - reader.at) });
    case 1: return void (module.types = reader.list(() => {
      if (reader.byte() !== 0x60) fail("there are types of functions only", reader.at - 1);
      return { parameters: reader.list(() => reader.type()), results: reader.list(() => reader.type()) };
    }));
    case 2: return void (module.imports = reader.list(() => {
      const [from, name, kind] = [reader.name(), reader.name(), KINDS[reader.byte()]];
      const read = { function: () => ({ type: reader.u32() }), table: () => reader.table(), memory: () => reader.limits(), global: () => reader.global() }[kind];
      return { module: from, name, kind, what: read === undefined ? fail("there is no such import", reader.at - 1) : read() };
    }));
    case 3: return void (module.functions = reader.list(() => reader.u32()));
    case 4: return void (module.tables = reader.list(() => reader.table()));
    case 5: return void (module.memories = reader.list(() => reader.limits()));
    case 6: return void (module.globals = reader.list(() => ({ ...reader.global(), start: reader.constant() })));
    case 7: return void (module.exports = reader.list(() => ({ name: reader.name(), kind: KINDS[reader.byte()], index: reader.u32() })));
    case 8: return void (module.start = reader.u32());
    case 9: return void (module.elements = reader.list(() => readElements(reader)));
    case 10: return void (module.codes = reader.list(() => {
      const size = reader.u32();
      const end = reader.at + size;
      const locals = [];
      let count = 0;
      for (let groups = reader.u32(); groups > 0; groups--) {
        const [many, type] = [reader.u32(), reader.type()];
        if ((count += many) > 50000) fail("local count too large", reader.at);
        for (let i = 0; i < many; i++) locals.push(type);
      }
      const body = { locals, from: reader.at, end };
      if (end > reader.end) fail("unexpected end", reader.end);
      reader.at = end;
      return body;
    }));
    case 11: return void (module.data = reader.list(() => {
      const flags = reader.u32();
      if (flags === 2) reader.u32();
      const offset = flags === 1 ? undefined : reader.constant();
      return { offset, bytes: reader.take(reader.u32()) };
    }));
    case 12: return;
    default: fail(`unknown section code #0x${id.toString(16).padStart(2, "0")}`, reader.at);
  }
}

function readElements(reader) {
  const flags = reader.u32();
  const isActive = (flags & 1) === 0;
  const table = isActive && flags & 2 ? reader.u32() : 0;
  const offset = isActive ? reader.constant() : undefined;
  const isDeclared = (flags & 3) === 3;
  if (flags & 3) reader.byte();
  const items = flags & 4 ? reader.list(() => reader.constant()) : reader.list(() => ((index) => (instance) => instance.functionAt(index))(reader.u32()));
  return { table, offset, items: isDeclared ? [] : items };
}

module.exports = { Reader, readModule };
