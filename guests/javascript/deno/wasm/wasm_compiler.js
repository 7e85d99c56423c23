// Functions of WebAssembly as functions in JavaScript. A slot of the stack is a variable, by its height, and blocks are
// statements with labels. Integers of 64 bits are BigInts.
const { Reader } = require("deno/wasm/wasm_reader.js");

const u = (text) => `(${text} >>> 0)`;
const wide = (text) => `BigInt.asIntN(64, ${text})`;
const unsigned = (text) => `BigInt.asUintN(64, ${text})`;
const bool = (text) => `(${text} ? 1 : 0)`;
const fround = (text) => `Math.fround(${text})`;

// By opcode: how many operands there are, and the expression.
const OPERATIONS = new Map();
const unary = (code, make) => OPERATIONS.set(code, [1, make]);
const binary = (code, make) => OPERATIONS.set(code, [2, make]);

unary(0x45, (a) => bool(`${a} === 0`));
unary(0x50, (a) => bool(`${a} === 0n`));
const compared = ["===", "!==", "<", "<", ">", ">", "<=", "<=", ">=", ">="];
compared.forEach((sign, i) => {
  const isUnsigned = i >= 2 && i % 2 === 1;
  binary(0x46 + i, (a, b) => bool(isUnsigned ? `${u(a)} ${sign} ${u(b)}` : `${a} ${sign} ${b}`));
  binary(0x51 + i, (a, b) => bool(isUnsigned ? `${unsigned(a)} ${sign} ${unsigned(b)}` : `${a} ${sign} ${b}`));
});
["===", "!==", "<", ">", "<=", ">="].forEach((sign, i) => {
  for (const base of [0x5b, 0x61]) binary(base + i, (a, b) => bool(`${a} ${sign} ${b}`));
});
// i32
unary(0x67, (a) => `Math.clz32(${a})`);
unary(0x68, (a) => `h.ctz(${a})`);
unary(0x69, (a) => `h.popcnt(${a})`);
binary(0x6a, (a, b) => `(${a} + ${b} | 0)`);
binary(0x6b, (a, b) => `(${a} - ${b} | 0)`);
binary(0x6c, (a, b) => `Math.imul(${a}, ${b})`);
binary(0x6d, (a, b) => `h.div(${a}, ${b})`);
binary(0x6e, (a, b) => `h.divU(${a}, ${b})`);
binary(0x6f, (a, b) => `h.rem(${a}, ${b})`);
binary(0x70, (a, b) => `h.remU(${a}, ${b})`);
["&", "|", "^", "<<", ">>"].forEach((sign, i) => binary(0x71 + i, (a, b) => `(${a} ${sign} ${b})`));
binary(0x76, (a, b) => `(${a} >>> ${b} | 0)`);
binary(0x77, (a, b) => `h.rotl(${a}, ${b})`);
binary(0x78, (a, b) => `h.rotl(${a}, -${b})`);
// i64
unary(0x79, (a) => `h.clz64(${a})`);
unary(0x7a, (a) => `h.ctz64(${a})`);
unary(0x7b, (a) => `h.popcnt64(${a})`);
["+", "-", "*"].forEach((sign, i) => binary(0x7c + i, (a, b) => wide(`${a} ${sign} ${b}`)));
binary(0x7f, (a, b) => `h.div64(${a}, ${b})`);
binary(0x80, (a, b) => `h.divU64(${a}, ${b})`);
binary(0x81, (a, b) => `h.rem64(${a}, ${b})`);
binary(0x82, (a, b) => `h.remU64(${a}, ${b})`);
["&", "|", "^"].forEach((sign, i) => binary(0x83 + i, (a, b) => `(${a} ${sign} ${b})`));
binary(0x86, (a, b) => wide(`${a} << (${b} & 63n)`));
binary(0x87, (a, b) => `(${a} >> (${b} & 63n))`);
binary(0x88, (a, b) => wide(`${unsigned(a)} >> (${b} & 63n)`));
binary(0x89, (a, b) => `h.rotl64(${a}, ${b})`);
binary(0x8a, (a, b) => `h.rotl64(${a}, -${b})`);
// f32 and f64
const functions = ["Math.abs", undefined, "Math.ceil", "Math.floor", "Math.trunc", "h.nearest", "Math.sqrt"];
for (const [base, round] of [[0x8b, fround], [0x99, (text) => text]]) {
  functions.forEach((name, i) => unary(base + i, (a) => (name === undefined ? `(-${a})` : round(`${name}(${a})`))));
  ["+", "-", "*", "/"].forEach((sign, i) => binary(base + 7 + i, (a, b) => round(`(${a} ${sign} ${b})`)));
  binary(base + 11, (a, b) => `Math.min(${a}, ${b})`);
  binary(base + 12, (a, b) => `Math.max(${a}, ${b})`);
  binary(base + 13, (a, b) => `h.copysign(${a}, ${b})`);
}
// From one type to another
unary(0xa7, (a) => `Number(BigInt.asIntN(32, ${a}))`);
for (const code of [0xa8, 0xaa]) unary(code, (a) => `h.trunc(${a})`);
for (const code of [0xa9, 0xab]) unary(code, (a) => `h.truncU(${a})`);
unary(0xac, (a) => `BigInt(${a})`);
unary(0xad, (a) => `BigInt(${u(a)})`);
for (const code of [0xae, 0xb0]) unary(code, (a) => `h.trunc64(${a})`);
for (const code of [0xaf, 0xb1]) unary(code, (a) => `h.truncU64(${a})`);
unary(0xb2, (a) => fround(a));
unary(0xb3, (a) => fround(u(a)));
unary(0xb4, (a) => `h.float32(${a})`);
unary(0xb5, (a) => `h.float32(${unsigned(a)})`);
unary(0xb6, (a) => fround(a));
unary(0xb7, (a) => a);
unary(0xb8, (a) => u(a));
unary(0xb9, (a) => `Number(${a})`);
unary(0xba, (a) => `Number(${unsigned(a)})`);
unary(0xbb, (a) => a);
unary(0xbc, (a) => `h.bits32(${a})`);
unary(0xbd, (a) => `h.bits64(${a})`);
unary(0xbe, (a) => `h.fromBits32(${a})`);
unary(0xbf, (a) => `h.fromBits64(${a})`);
unary(0xc0, (a) => `(${a} << 24 >> 24)`);
unary(0xc1, (a) => `(${a} << 16 >> 16)`);
for (const [code, bits] of [[0xc2, 8], [0xc3, 16], [0xc4, 32]]) unary(code, (a) => `BigInt.asIntN(${bits}, ${a})`);
unary(0xd1, (a) => bool(`${a} === null`));
// Numbers that do not fit become the nearest that does.
const SATURATED = ["h.sat(A)", "h.satU(A)", "h.sat(A)", "h.satU(A)", "h.sat64(A)", "h.satU64(A)", "h.sat64(A)", "h.satU64(A)"];

const LOADS = {
  0x28: "Int32", 0x29: "BigInt64", 0x2a: "Float32", 0x2b: "Float64", 0x2c: "Int8", 0x2d: "Uint8", 0x2e: "Int16", 0x2f: "Uint16",
  0x30: "Int8", 0x31: "Uint8", 0x32: "Int16", 0x33: "Uint16", 0x34: "Int32", 0x35: "Uint32",
};
const STORES = {
  0x36: ["Int32", (a) => a], 0x37: ["BigInt64", (a) => a], 0x38: ["Float32", (a) => a], 0x39: ["Float64", (a) => a], 0x3a: ["Int8", (a) => a],
  0x3b: ["Int16", (a) => a], 0x3c: ["Int8", (a) => `Number(${a} & 0xffn)`], 0x3d: ["Int16", (a) => `Number(${a} & 0xffffn)`], 0x3e: ["Int32", (a) => `Number(BigInt.asIntN(32, ${a}))`],
};
const ZEROS = { i32: "0", i64: "0n", f32: "0", f64: "0", funcref: "null", externref: "null" };
const numeral = (value) => (Object.is(value, -0) ? "-0" : value < 0 ? `(${value})` : String(value));

// The source of a function, of what its module says.
class Body {
  constructor(module, code, type, fail) {
    Object.assign(this, { module, code, type, fail });
    this.reader = new Reader(module.bytes, fail, code.from, code.end);
    this.lines = [];
    this.height = 0;
    this.deepest = 0;
    this.frames = [];
    this.isDead = false;
    this.labels = 0;
  }
  push(text) {
    this.lines.push(`s${this.height++} = ${text};`);
    this.deepest = Math.max(this.deepest, this.height);
  }
  pop() {
    if (this.height <= (this.frames.at(-1)?.base ?? 0)) this.fail("not enough arguments on the stack", this.reader.at);
    return `s${--this.height}`;
  }
  slots(count) {
    if (this.height - count < (this.frames.at(-1)?.base ?? 0)) this.fail("not enough arguments on the stack", this.reader.at);
    return Array.from({ length: count }, (_, i) => `s${this.height - count + i}`);
  }
  // The number of something of which there are so many.
  index(count, what) {
    const index = this.reader.u32();
    return index < count ? index : this.fail(`there is no ${what} ${index}: there are ${count}`, this.reader.at);
  }
  local() {
    return `l${this.index(this.type.parameters.length + this.code.locals.length, "local")}`;
  }
  global() {
    return `G[${this.index(this.module.counts.global, "global")}].v`;
  }
  table() {
    return `T[${this.index(this.module.counts.table, "table")}]`;
  }
  memory() {
    return this.module.counts.memory > 0 ? "M" : this.fail("there is no memory", this.reader.at);
  }
  blockType() {
    const byte = this.reader.bytes[this.reader.at];
    if (byte === 0x40) return (this.reader.at++, { parameters: [], results: [] });
    if (byte >= 0x40 && byte < 0x80) return { parameters: [], results: [this.reader.type()] };
    return this.module.types[this.reader.i32()] ?? this.fail("there is no such type", this.reader.at);
  }
  open(kind, type, condition) {
    const base = this.height - type.parameters.length;
    const frame = { kind, base, label: `L${this.labels++}`, results: type.results.length, parameters: type.parameters.length, condition };
    this.frames.push(frame);
    if (kind === "loop") this.lines.push(`${frame.label}: for (;;) {`);
    else if (kind === "if") this.lines.push(`${frame.label}: { if (${condition}) {`);
    else this.lines.push(`${frame.label}: {`);
  }
  // Goes to the frame at that depth, with what it takes.
  jump(depth) {
    const frame = this.frames.at(-1 - depth) ?? this.fail("invalid branch depth", this.reader.at);
    const count = frame.kind === "loop" ? frame.parameters : frame.results;
    const moves = this.move(frame.base, count);
    if (depth === this.frames.length - 1) return `${moves} return ${this.result(frame.base)};`;
    return `${moves} ${frame.kind === "loop" ? "continue" : "break"} ${frame.label};`;
  }
  move(base, count) {
    const from = this.height - count;
    if (from === base || count === 0) return "";
    return Array.from({ length: count }, (_, i) => `s${base + i} = s${from + i};`).join(" ");
  }
  result(base) {
    const { results } = this.type;
    if (results.length === 0) return "undefined";
    return results.length === 1 ? `s${base}` : `[${results.map((_, i) => `s${base + i}`).join(", ")}]`;
  }
  end() {
    const frame = this.frames.pop();
    const found = this.height - frame.base;
    if (!this.isDead && found !== frame.results) this.fail(`expected ${frame.results} elements on the stack, found ${found}`, this.reader.at);
    if (frame.kind === "loop") this.lines.push(this.isDead ? "}" : `break ${frame.label}; }`);
    else if (frame.kind === "if" || frame.kind === "else") this.lines.push("} }");
    else if (frame.kind === "function") this.lines.push(this.isDead ? "" : `return ${this.result(frame.base)};`);
    else this.lines.push("}");
    this.height = frame.base + frame.results;
    this.deepest = Math.max(this.deepest, this.height);
    this.isDead = false;
  }
  compile() {
    this.frames.push({ kind: "function", base: 0, label: "F", results: this.type.results.length, parameters: 0 });
    while (this.frames.length > 0) this.instruction();
    const names = this.type.parameters.map((_, i) => `l${i}`);
    const locals = this.code.locals.map((type, i) => `l${names.length + i} = ${ZEROS[type]}`);
    const slots = Array.from({ length: this.deepest }, (_, i) => `s${i}`);
    const declared = [...locals, ...slots];
    return `return function (${names.join(", ")}) {${declared.length > 0 ? ` let ${declared.join(", ")};` : ""}\n${this.lines.join("\n")}\n}`;
  }
  stop(text) {
    this.lines.push(text);
    this.isDead = true;
    this.deadDepth = 0;
  }
  // Skips code that is never reached, of which only its ends count.
  skip(code) {
    if (code === 0x02 || code === 0x03 || code === 0x04) {
      this.blockType();
      this.deadDepth++;
    } else if (code === 0x0b && this.deadDepth > 0) this.deadDepth--;
    else if (code === 0x0b) this.end();
    else if (code === 0x05 && this.deadDepth === 0) this.otherwise();
    else this.immediates(code);
  }
  immediates(code) {
    const { reader } = this;
    if (code === 0x0c || code === 0x0d || code === 0x10 || (code >= 0x20 && code <= 0x26) || code === 0xd2) reader.u32();
    else if (code === 0x0e) reader.list(() => reader.u32()), reader.u32();
    else if (code === 0x11) reader.u32(), reader.u32();
    else if (code === 0x1c) reader.list(() => reader.type());
    else if (code >= 0x28 && code <= 0x3e) reader.u32(), reader.u32();
    else if (code === 0x3f || code === 0x40 || code === 0xd0) reader.byte();
    else if (code === 0x41) reader.i32();
    else if (code === 0x42) reader.i64();
    else if (code === 0x43) reader.f32();
    else if (code === 0x44) reader.f64();
    else if (code === 0xfc) {
      const more = reader.u32();
      if (more === 8 || more === 10 || more === 12 || more === 14) reader.u32(), reader.u32();
      else if (more > 8) reader.u32();
    }
  }
  otherwise() {
    const frame = this.frames.at(-1);
    if (frame.kind !== "if") this.fail("else does not match an if", this.reader.at);
    frame.kind = "else";
    this.lines.push("} else {");
    this.height = frame.base + frame.parameters;
    this.isDead = false;
  }
  address() {
    this.memory();
    this.reader.u32();
    const offset = this.reader.u32();
    return (slot) => (offset === 0 ? u(slot) : `${u(slot)} + ${offset}`);
  }
  call(type, target) {
    const given = this.slots(type.parameters.length).join(", ");
    this.height -= type.parameters.length;
    const call = target(given);
    if (type.results.length === 0) this.lines.push(`${call};`);
    else if (type.results.length === 1) this.push(call);
    else {
      this.lines.push(`{ const r = ${call};`);
      type.results.forEach((_, i) => this.push(`r[${i}]`));
      this.lines.push("}");
    }
  }
  instruction() {
    const { reader } = this;
    const code = reader.byte();
    if (this.isDead) return this.skip(code);
    const operation = OPERATIONS.get(code);
    if (operation !== undefined) {
      const [count, make] = operation;
      const slots = this.slots(count);
      this.height -= count;
      return this.push(make(...slots));
    }
    if (LOADS[code] !== undefined) {
      const place = this.address();
      const read = `M.view.get${LOADS[code]}(${place(this.pop())}, true)`;
      return this.push(code >= 0x30 ? `BigInt(${read})` : read);
    }
    if (STORES[code] !== undefined) {
      const place = this.address();
      const [type, value] = STORES[code];
      const given = this.pop();
      return void this.lines.push(`M.view.set${type}(${place(this.pop())}, ${value(given)}, true);`);
    }
    switch (code) {
      case 0x00: return this.stop('h.trap("unreachable");');
      case 0x01: return undefined;
      case 0x02: return this.open("block", this.blockType());
      case 0x03: return this.open("loop", this.blockType());
      case 0x04: {
        const type = this.blockType();
        return this.open("if", type, this.pop());
      }
      case 0x05: return this.otherwise();
      case 0x0b: return this.end();
      case 0x0c: return this.stop(this.jump(reader.u32()));
      case 0x0d: {
        const condition = this.pop();
        return void this.lines.push(`if (${condition}) { ${this.jump(reader.u32())} }`);
      }
      case 0x0e: {
        const depths = reader.list(() => reader.u32());
        const last = reader.u32();
        const index = this.pop();
        const cases = depths.map((depth, i) => `case ${i}: ${this.jump(depth)}`);
        return this.stop(`switch (${index}) { ${cases.join("\n")}\ndefault: ${this.jump(last)} }`);
      }
      case 0x0f: return this.stop(this.jump(this.frames.length - 1));
      case 0x10: {
        const index = reader.u32();
        return this.call(this.module.typeOf(index) ?? this.fail("there is no such function", reader.at), (given) => `F[${index}](${given})`);
      }
      case 0x11: {
        const type = this.index(this.module.types.length, "type");
        const table = this.table();
        const index = this.pop();
        return this.call(this.module.types[type], (given) => `h.indirect(${table}, ${index}, ${type})(${given})`);
      }
      case 0x1a: return void this.pop();
      case 0x1c: reader.list(() => reader.type()); // fallthrough
      case 0x1b: {
        const [a, b, condition] = this.slots(3);
        this.height -= 3;
        return this.push(`(${condition} ? ${a} : ${b})`);
      }
      case 0x20: return this.push(this.local());
      case 0x21: return void this.lines.push(`${this.local()} = ${this.pop()};`);
      case 0x22: return void this.lines.push(`${this.local()} = ${this.slots(1)[0]};`);
      case 0x23: return this.push(this.global());
      case 0x24: return void this.lines.push(`${this.global()} = ${this.pop()};`);
      case 0x25: return this.push(`h.tableGet(${this.table()}, ${this.pop()})`);
      case 0x26: {
        const [table, value] = [this.table(), this.pop()];
        return void this.lines.push(`h.tableSet(${table}, ${this.pop()}, ${value});`);
      }
      case 0x3f: return reader.byte(), this.push(`${this.memory()}.size()`);
      case 0x40: return reader.byte(), this.push(`${this.memory()}.extend(${this.pop()})`);
      case 0x41: return this.push(numeral(reader.i32()));
      case 0x42: return this.push(`${numeral(reader.i64())}n`.replace(/^\((.*)\)n$/, "($1n)"));
      case 0x43: return this.push(numeral(reader.f32()));
      case 0x44: return this.push(numeral(reader.f64()));
      case 0xd0: return reader.byte(), this.push("null");
      case 0xd2: return this.push(`h.functionAt(${this.index(this.module.counts.function, "function")})`);
      case 0xfc: return this.further(reader.u32());
      default: return this.fail(`the opcode 0x${code.toString(16)} is not there: of WebAssembly, there is version 2 without vectors`, reader.at - 1);
    }
  }
  further(code) {
    const { reader } = this;
    if (code < 8) return this.push(SATURATED[code].replace("A", this.pop()));
    const three = (make) => {
      const slots = this.slots(3);
      this.height -= 3;
      this.lines.push(`${make(...slots)};`);
    };
    switch (code) {
      case 8: {
        const segment = this.index(this.module.data.length, "data segment");
        reader.byte();
        return three((to, from, size) => `h.memoryInit(${this.memory()}, ${segment}, ${to}, ${from}, ${size})`);
      }
      case 9: return void this.lines.push(`h.dataDrop(${this.index(this.module.data.length, "data segment")});`);
      case 10: return reader.byte(), reader.byte(), three((to, from, size) => `h.memoryCopy(${this.memory()}, ${to}, ${from}, ${size})`);
      case 11: return reader.byte(), three((to, value, size) => `h.memoryFill(${this.memory()}, ${to}, ${value}, ${size})`);
      case 12: {
        const segment = this.index(this.module.elements.length, "element segment");
        const table = this.table();
        return three((to, from, size) => `h.tableInit(${table}, ${segment}, ${to}, ${from}, ${size})`);
      }
      case 13: return void this.lines.push(`h.elementDrop(${this.index(this.module.elements.length, "element segment")});`);
      case 14: {
        const [to, from] = [this.table(), this.table()];
        return three((a, b, size) => `h.tableCopy(${to}, ${from}, ${a}, ${b}, ${size})`);
      }
      case 15: {
        const [table, count] = [this.table(), this.pop()];
        return this.push(`${table}.extend(${count}, ${this.pop()})`);
      }
      case 16: return this.push(`${this.table()}.items.length`);
      case 17: {
        const table = this.table();
        return three((from, value, size) => `h.tableFill(${table}, ${from}, ${value}, ${size})`);
      }
      default: return this.fail(`the opcode 0xfc 0x${code.toString(16)} is not there`, reader.at);
    }
  }
}

module.exports = { sourceOf: (module, code, type, fail) => new Body(module, code, type, fail).compile() };
