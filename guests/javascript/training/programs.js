// What QuickJS is compiled to be fast at: a mixture of what programs in cells do. What runs here often is laid out for
// speed, what never runs for size; so everything that matters should run, and nothing much longer than the rest.
"use strict";

const random = (() => {
  let state = 42;
  return (below) => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return state % below;
  };
})();
const WORDS = "the quick brown fox jumps over lazy dogs while seven wizards quietly boil Zinc, größer as ñandú".split(" ");

class Shape {
  #name;
  constructor(name) {
    this.#name = name;
  }
  get name() {
    return this.#name;
  }
  area() {
    return 0;
  }
  describe() {
    return `${this.name}: ${this.area().toFixed(2)}`;
  }
}

class Circle extends Shape {
  constructor(radius) {
    super("circle");
    this.radius = radius;
  }
  area() {
    return Math.PI * this.radius ** 2;
  }
}

class Box extends Shape {
  constructor(width, height) {
    super("box");
    Object.assign(this, { width, height });
  }
  area() {
    return this.width * this.height;
  }
}

const PARTS = {
  classes() {
    let length = 0;
    for (let i = 0; i < 1500; i++) {
      const shape = i % 2 ? new Circle(i / 10) : new Box(i, i + 1);
      length += shape.describe().length + (shape instanceof Circle ? 1 : 0);
    }
    return length;
  },

  numbers() {
    const sieve = new Uint8Array(40000);
    let primes = 0;
    for (let i = 2; i < sieve.length; i++) {
      if (sieve[i]) continue;
      primes++;
      for (let j = i * 2; j < sieve.length; j += i) sieve[j] = 1;
    }
    const size = 14;
    const matrix = Array.from({ length: size }, (_, i) => Array.from({ length: size }, (_, j) => 1 / (i + j + 1)));
    let product = matrix;
    for (let n = 0; n < 3; n++) {
      product = product.map((row) => row.map((_, j) => row.reduce((sum, value, k) => sum + value * matrix[k][j], 0)));
    }
    let x = 1.5;
    for (let i = 0; i < 10000; i++) {
      if (i % 3 === 0) x = Math.sqrt(x * i + 1);
      else if (i & 4) x += Math.floor(i / 7) % 11;
      else x -= (i >>> 2) ^ 5;
    }
    return primes + product[3][4] + x;
  },

  calls() {
    const ackermann = (m, n) => (m === 0 ? n + 1 : n === 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1)));
    const counter = () => {
      let count = 0;
      return { step: (by = 1, ...more) => (count += by + more.length), get count() { return count; } };
    };
    function hanoi(n, from, to, via) {
      return n === 0 ? 0 : hanoi(n - 1, from, via, to) + 1 + hanoi(n - 1, via, to, from);
    }
    const one = counter();
    for (let i = 0; i < 4000; i++) one.step(i & 3);
    return ackermann(2, 20) + hanoi(12, "a", "b", "c") + one.count + Math.max(...[3, 1, 2].map((x) => x * 2));
  },

  strings() {
    let out = "";
    for (let i = 0; i < 6000; i++) {
      const word = WORDS[i % WORDS.length];
      out += word[0].toUpperCase() + word.slice(1) + (i % 10 ? " " : "\n");
      if (word.includes("ow") || word.startsWith("z") || word.indexOf("q") > 0) out += word.charCodeAt(1);
    }
    let hash = 0;
    for (let i = 0; i < out.length; i += 2) hash = (Math.imul(hash, 31) + out.charCodeAt(i)) | 0;
    const lines = out.split("\n").map((line) => line.trim().padEnd(40, ".").split(" ").reverse().join("-"));
    return hash + lines.filter((line) => line.length > 40).join("\n").length + [...out.slice(0, 3000)].length;
  },

  records() {
    const rows = Array.from({ length: 700 }, (_, id) => ({
      id, name: WORDS[random(WORDS.length)] + id, price: random(10000) / 100, tags: [WORDS[id % 7], "t" + (id % 3)], parent: id % 5 ? null : { id },
    }));
    const groups = {};
    for (const { name, price, tags: [first] } of rows) {
      groups[first] ??= { total: 0, names: [] };
      groups[first].total += price;
      groups[first].names.push(name);
    }
    const sorted = [...rows].sort((a, b) => b.price - a.price || a.name.localeCompare(b.name));
    const names = rows.map((row) => row.name).sort();
    let changed = rows.map((row) => ({ ...row, price: row.price * 1.1 })).filter((row) => row.parent?.id !== 10);
    for (const key in groups) for (const [k, v] of Object.entries(groups[key])) changed.push({ [k]: v });
    return sorted[0].id + names[5].length + changed.length + Object.keys(groups).length;
  },

  collections() {
    const counts = new Map(), seen = new Set(), weak = new WeakMap();
    for (let i = 0; i < 6000; i++) {
      const key = i % 3 ? WORDS[random(WORDS.length)] + (i % 50) : i % 400;
      counts.set(key, (counts.get(key) ?? 0) + 1);
      if (!seen.has(i % 1000)) seen.add(i % 1000);
    }
    const top = [...counts].sort(([, a], [, b]) => b - a).slice(0, 20);
    for (const entry of top) weak.set(entry, entry[1]);
    const queue = [[0, 0]], visited = new Set();
    while (queue.length) {
      const [x, y] = queue.shift(), at = `${x},${y}`;
      if (x > 18 || y > 18 || visited.has(at)) continue;
      visited.add(at);
      queue.push([x + 1, y], [x, y + 1]);
    }
    counts.forEach((value, key) => value === 1 && counts.delete(key));
    return counts.size + visited.size + top.reduce((sum, [, count]) => sum + count, 0);
  },

  json() {
    const data = { list: [], nested: {} };
    for (let i = 0; i < 350; i++) {
      data.list.push({ key: "item-" + i, value: i * 1.25, flag: i % 2 === 0, none: null, text: "line\n\"quoted\" é " + i });
      data.nested["k" + i] = [i, [i + 1, -i], { deep: { er: i } }];
    }
    const text = JSON.stringify(data), pretty = JSON.stringify(data, null, 2);
    const again = JSON.parse(pretty), copy = JSON.parse(text);
    return text.length + again.list.length + Object.keys(copy.nested).length;
  },

  patterns() {
    let log = "";
    for (let i = 0; i < 350; i++) {
      log += `2024-0${1 + (i % 9)}-1${i % 10}T10:${10 + (i % 50)}:00Z [${i % 4 ? "info" : "WARN"}] user_${i} GET /api/v${i % 3}/things?id=${i}&q="x y" ${200 + i} ${i}ms\n`;
    }
    let total = 0;
    for (const line of log.split(/\r?\n/)) {
      const match = /^(\d{4})-(\d\d)-(\d\d)T\S+ \[(\w+)\]\s+(?<user>\w+) (GET|POST) (\S+) (\d+) (\d+)ms$/i.exec(line);
      if (match) total += Number(match[9]) + match.groups.user.length + match[7].split(/[?&=]/).length;
    }
    const words = log.match(/\b[a-z]+\b/gi).length;
    const masked = log.replace(/"([^"]*)"/g, "<$1>").replace(/\d+/g, (digits) => "#".repeat(digits.length)).replace(/\s+$/gm, "");
    return total + words + masked.length + [...log.matchAll(/(?:user_)(\d+)|v(\d)/g)].length + (/a.*?b{2,3}|(x+x+)+y/.test(masked) ? 1 : 0);
  },

  arrays() {
    const list = Array.from({ length: 3000 }, (_, i) => (i * 7919) % 3001);
    const sum = list.map((x) => x * 2).filter((x) => x % 3).reduce((a, b) => a + b, 0);
    const copy = list.slice().reverse().concat([1, 2, 3]);
    copy.sort((a, b) => a - b);
    let low = 0, high = copy.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (copy[middle] < 1500) low = middle + 1;
      else high = middle;
    }
    const stack = [];
    for (let i = 0; i < 4000; i++) i % 3 ? stack.push(i) : stack.pop();
    const bubble = list.slice(0, 90);
    for (let i = 0; i < bubble.length; i++) for (let j = i + 1; j < bubble.length; j++) if (bubble[j] < bubble[i]) [bubble[i], bubble[j]] = [bubble[j], bubble[i]];
    const floats = Float64Array.from(list, (x) => x / 3);
    let best = -Infinity;
    for (const value of floats) if (value > best) best = value;
    return sum + low + stack.length + bubble[1] + best + list.indexOf(2999) + copy.findIndex((x) => x > 2000) + list.flatMap((x) => [x, x]).length;
  },

  iterators() {
    function* naturals(limit) {
      for (let i = 0; i < limit; i++) yield i;
    }
    function* squares(source) {
      for (const value of source) if (value % 2) yield value * value;
    }
    let total = 0;
    for (const value of squares(naturals(3000))) total += value % 10;
    const [first, second, ...rest] = naturals(500);
    let caught = 0;
    for (let i = 0; i < 300; i++) {
      try {
        if (i % 3 === 0) throw new RangeError("bad " + i);
        if (i % 3 === 1) null.property;
        caught += 2;
      } catch (error) {
        caught += error instanceof RangeError ? 1 : error.message.length;
      } finally {
        total++;
      }
    }
    return total + first + second + rest.length + caught + Object.fromEntries(rest.map((n) => ["n" + n, n])).n7;
  },

  tokens() {
    const source = "let total = (price + 3.5) * count - discount / 2; if (total >= 10) { print(\"big\", total) } ".repeat(25);
    const tokens = [];
    for (let at = 0; at < source.length; ) {
      const c = source[at];
      let end = at + 1;
      if (c === " ") { at++; continue; }
      if ((c >= "a" && c <= "z") || c === "_") while (/[a-z0-9_]/.test(source[end])) end++;
      else if (c >= "0" && c <= "9") while ((source[end] >= "0" && source[end] <= "9") || source[end] === ".") end++;
      else if (c === '"') { while (source[end] !== '"') end++; end++; }
      const text = source.substring(at, end);
      switch (text) {
        case "let": case "if": tokens.push({ type: "keyword", text, at }); break;
        case "(": case ")": case "{": case "}": tokens.push({ type: "bracket", text, at }); break;
        default: tokens.push({ type: isNaN(parseFloat(text)) ? "other" : "number", text, at });
      }
      at = end;
    }
    const big = 12345678901234567890n ** 5n % 1000000007n;
    return tokens.length + Number(big) + new Date(1700000000000).toISOString().length;
  },

  // What is used now and then: it shall run, but need not be fast.
  rarely() {
    const view = new DataView(new ArrayBuffer(64)), bytes = new Uint8Array(view.buffer);
    const log = [];
    for (let i = 0; i < 60; i++) {
      view.setFloat64(i & 31, i / 7, true);
      view.setUint32(i & 31, i * 65537);
      log.push(view.getInt16(i & 31) + view.getFloat32(i & 31, true), bytes.subarray(3, 9).join());
      bytes.fill(i, 40).copyWithin(0, 8, 16);
      bytes.set([i, i + 1, i + 2], 5);
      const date = new Date(2024, i % 12, i, i % 24);
      date.setDate(date.getDate() + i);
      log.push(date.getTime(), date.toISOString(), String(date), Date.parse("2024-02-03T04:05:06Z"), date.getDay());
      const proxy = new Proxy({ a: i }, { get: (target, key, me) => Reflect.get(target, key, me) ?? key, has: () => true });
      log.push(proxy.a, proxy.other, "x" in proxy, Reflect.ownKeys(proxy).length, Object.getPrototypeOf(proxy) === Object.prototype);
      const object = { get half() { return i / 2; }, set half(value) { log.push(value); }, [Symbol.toPrimitive]: () => i };
      object.half = object.half + +object;
      Object.defineProperty(object, "fixed", { value: i, enumerable: false });
      log.push(Object.isFrozen(Object.freeze({ ...object })), delete object.half, typeof object, `${object}`, object?.x?.y);
      log.push((2n ** BigInt(i)).toString(16), BigInt.asUintN(32, -1n * BigInt(i)), BigInt(i) / 3n + (BigInt(i) << 70n));
      log.push(i.toString(2), (i / 3).toPrecision(4), (i * 1e20).toExponential(2), parseInt("0x" + i, 16), Number("1e" + i), i.toFixed(3));
      log.push(Math.hypot(i, 3), Math.atan2(i, 2), Math.trunc(-i / 3), Math.sign(i), Math.round(i / 2), Math.log2(i + 1), Math.min(i, 4), Math.abs(-i));
      log.push("Straße ñ".normalize("NFD").toUpperCase(), "a-b-c".split("-", 2), "abc".at(-1), "x".codePointAt(0), "b".localeCompare("a"));
      log.push(encodeURIComponent("a b&ü" + i), decodeURIComponent("%C3%BC"), "abcabc".lastIndexOf("c"), "ab".repeat(i), "  x".trimStart(), "a".concat("b", i));
      const list = [5, 1, [i, [2]]];
      list.splice(1, 1, i, i + 1);
      list.unshift(list.pop());
      log.push(list.flat(2), list.includes(5), list.lastIndexOf(5), list.every(Boolean), list.some((x) => x > 3), list.with(0, 1), list.toSorted(), list.at(-1));
      log.push(Array.isArray(list), Array.of(1, 2).fill(0), list.entries().next().value, list.findLast((x) => x), [..."añ😀"], list.keys().toArray?.());
      log.push(((head, ...tail) => head + tail.length)(...list), ((strings, ...values) => strings.raw.join() + values)`a${i}b${i}`);
      outer: for (const x of [1, 2, 3]) for (const y of [1, 2, 3]) { if (y === 2) continue outer; if (x === 3) break outer; log.push(x * y); }
      do { if (i in list) break; } while (false);
      const { a = 1, ...others } = { b: 2, c: 3 }, copy = structure({ a, others, map: new Map([[i, new Set([i])]]) });
      log.push(copy, /(?<=\$)\d+(?!x)/y.test("$" + i), /\p{Lu}\u{1F600}?/u.exec("É😀"), "a.b".replace(".", "$&$&"), "aXbX".replaceAll("X", "-"), "abc".search(/c/));
      log.push(new Function("x", "return x + " + i)(1), (0, eval)("1 + " + i), JSON.stringify({ i, at: new Date(0) }, (key, value) => value, " "), JSON.parse("[1, 2]", (key, value) => value));
      log.push(new Error("e", { cause: i }).message, new AggregateError([1], "m").errors, Symbol("s").description, new WeakRef(list).deref());
      if (log.length > 500) log.length = 0;
    }
    function structure(value) {
      if (value instanceof Map) return new Map([...value].map(([key, one]) => [key, structure(one)]));
      return typeof value === "object" && value !== null && !(value instanceof Set) ? Object.fromEntries(Object.entries(value).map(([key, one]) => [key, structure(one)])) : value;
    }
    return log.length;
  },

  async tasks() {
    const sleepless = async (n) => (n > 0 ? 1 + (await sleepless(n - 1)) : 0);
    const results = await Promise.all(Array.from({ length: 150 }, async (_, i) => (await null, i * 2)));
    let total = await sleepless(60);
    for await (const value of (async function* () { for (let i = 0; i < 200; i++) yield i; })()) total += value;
    return total + results.length;
  },
};

(async () => {
  for (const part of Object.values(PARTS)) await part();
})();
