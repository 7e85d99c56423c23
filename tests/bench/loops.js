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

  // Floating-point arithmetic on properties of objects.
  nbody() {
    const body = (x, y, z, vx, vy, vz, mass) => ({ x, y, z, vx, vy, vz, mass });
    const bodies = [
      body(0, 0, 0, 0, 0, 0, 39.47),
      body(4.84, -1.16, -0.103, 0.606, 2.81, -0.0252, 0.0377),
      body(8.34, 4.12, -0.403, -1.01, 1.82, 0.00841, 0.0113),
      body(12.9, -15.1, -0.223, 1.08, 0.868, -0.0108, 0.00172),
    ];
    for (let step = 0; step < 12000; step++) {
      for (let i = 0; i < bodies.length; i++) {
        const a = bodies[i];
        for (let j = i + 1; j < bodies.length; j++) {
          const b = bodies[j];
          const dx = a.x - b.x, dy = a.y - b.y, dz = a.z - b.z;
          const square = dx * dx + dy * dy + dz * dz;
          const pull = 0.01 / (square * Math.sqrt(square));
          a.vx -= dx * b.mass * pull;
          a.vy -= dy * b.mass * pull;
          a.vz -= dz * b.mass * pull;
          b.vx += dx * a.mass * pull;
          b.vy += dy * a.mass * pull;
          b.vz += dz * a.mass * pull;
        }
      }
      for (const each of bodies) {
        each.x += 0.01 * each.vx;
        each.y += 0.01 * each.vy;
        each.z += 0.01 * each.vz;
      }
    }
    return bodies.reduce((sum, each) => sum + each.x, 0).toFixed(9);
  },

  // Objects that hold each other, made and thrown away.
  trees() {
    const grow = (depth) => (depth ? { left: grow(depth - 1), right: grow(depth - 1) } : { left: null, right: null });
    const count = (tree) => (tree.left ? 1 + count(tree.left) + count(tree.right) : 1);
    let nodes = 0;
    for (let round = 0; round < 6; round++) nodes += count(grow(13));
    return nodes;
  },

  // Typed arrays.
  sieve() {
    const limit = 600000;
    const composite = new Uint8Array(limit + 1);
    const sums = new Float64Array(64);
    for (let i = 2; i <= limit; i++) {
      if (composite[i]) continue;
      sums[i & 63] += i;
      for (let j = i * i; j <= limit; j += i) composite[j] = 1;
    }
    return sums.reduce((sum, each) => sum + each, 0);
  },

  // Classes with methods and private fields: spheres that rays meet.
  rays() {
    class Vector {
      constructor(x, y, z) {
        this.x = x;
        this.y = y;
        this.z = z;
      }
      minus(other) {
        return new Vector(this.x - other.x, this.y - other.y, this.z - other.z);
      }
      dot(other) {
        return this.x * other.x + this.y * other.y + this.z * other.z;
      }
    }
    class Sphere {
      #middle;
      #square;
      constructor(middle, radius) {
        this.#middle = middle;
        this.#square = radius * radius;
      }
      meets(from, towards) {
        const offset = this.#middle.minus(from);
        const along = offset.dot(towards);
        const apart = offset.dot(offset) - along * along;
        return along > 0 && apart < this.#square ? along - Math.sqrt(this.#square - apart) : Infinity;
      }
    }
    const spheres = Array.from({ length: 8 }, (_, n) => new Sphere(new Vector(n - 4, (n * 3) % 5 - 2, 6 + n), 1.3));
    const eye = new Vector(0, 0, 0);
    let depth = 0;
    for (let y = 0; y < 80; y++) {
      for (let x = 0; x < 80; x++) {
        const length = Math.hypot(x / 40 - 1, y / 40 - 1, 1);
        const towards = new Vector((x / 40 - 1) / length, (y / 40 - 1) / length, 1 / length);
        const nearest = Math.min(...spheres.map((sphere) => sphere.meets(eye, towards)));
        if (nearest < Infinity) depth += nearest;
      }
    }
    return depth.toFixed(6);
  },

  // Jobs that take turns: inheritance, queues, destructuring, generators.
  schedule() {
    class Job {
      inbox = [];
      done = 0;
      send(value) {
        this.inbox.push(value);
      }
    }
    class Worker extends Job {
      step() {
        const [first, ...rest] = this.inbox;
        if (first !== undefined) {
          this.done += first & 15;
          this.inbox = rest;
        }
      }
    }
    const workers = Array.from({ length: 6 }, () => new Worker());
    function* numbers(limit) {
      for (let n = 1; n <= limit; n++) yield { number: n, to: n % workers.length };
    }
    for (const { number, to } of numbers(20000)) {
      workers[to].send(number);
      for (const worker of workers) worker.step();
    }
    return workers.reduce((sum, { done }) => sum + done, 0);
  },

  // Long integers: powers by modulus.
  powers() {
    const modulus = 2n ** 255n - 19n;
    let base = 9n, sum = 0n;
    for (let round = 0; round < 24; round++) {
      let result = 1n, square = base;
      for (let exponent = modulus - 2n; exponent > 0n; exponent >>= 1n) {
        if (exponent & 1n) result = (result * square) % modulus;
        square = (square * square) % modulus;
      }
      sum += result;
      base = (base * 3n) % modulus;
    }
    return String(sum % 1000000007n);
  },
};
