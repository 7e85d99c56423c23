// Loops that keep a processor busy, run both in a sandbox and by a native QuickJS. Each returns something that tells
// whether the same work was done.

const LOOPS = {
  // Calls of functions.
  fib() {
    const fib = (n) => (n < 2 ? n : fib(n - 1) + fib(n - 2));
    return fib(27);
  },

  // Strings built character by character, and a sort of strings.
  sort() {
    let text = "";
    for (let i = 0; i < 200000; i++) text += String.fromCharCode(97 + (i % 26));
    const keys = [];
    for (let i = 0; i < 30000; i++) keys.push("k" + ((i * 7919) % 30011));
    keys.sort();
    return text.length + keys[100].length;
  },

  json() {
    const users = [];
    for (let i = 0; i < 3000; i++) {
      users.push({ id: i, name: "user " + i, tags: ["a", "b", "c"], n: { x: i / 3, y: null, z: true } });
    }
    let length = 0;
    for (let i = 0; i < 4; i++) {
      const text = JSON.stringify(users);
      length += text.length + JSON.parse(text).length;
    }
    return length;
  },

  regex() {
    let text = "";
    for (let i = 0; i < 4000; i++) text += "foo bar" + i + "@example" + (i % 7) + ".com, lorem ipsum dolor; ";
    let length = 0;
    for (const match of text.matchAll(/([a-z0-9]+)@([a-z0-9]+)\.com/g)) length += match[1].length;
    return length + text.replace(/[aeiou]+/g, (vowels) => vowels.toUpperCase()).length;
  },

  // Arithmetic on local numbers.
  loop() {
    let x = 0;
    for (let i = 0; i < 3000000; i++) x = (x + i * 3) | 0;
    return x;
  },

  // Maps, objects and chains of array methods.
  map() {
    const map = new Map();
    for (let i = 0; i < 60000; i++) map.set("k" + i, { v: i });
    let sum = 0;
    for (const [, value] of map) sum += value.v;
    return Array.from(map.values())
      .map((value) => ({ ...value, w: 1 }))
      .filter((value) => value.v % 2)
      .reduce((total, value) => total + value.w, sum);
  },
};
