// AES in the modes that programs use, piece by piece, and without knowing of Node.
const library = () => kit.library("ciphers");

const BLOCK = 16;
const TAG = 16;
const MODES = ["cbc", "ctr", "ecb", "gcm"];
const KEYS = [16, 24, 32];

// Names as OpenSSL has them, of `aes-256-gcm` and its like.
const names = KEYS.flatMap((size) => MODES.map((mode) => `aes-${size * 8}-${mode}`));

function describe(name) {
  const [, bits, mode] = /^(?:id-)?aes-?(128|192|256)-?(cbc|ctr|ecb|gcm)$/.exec(name.toLowerCase()) ?? [];
  if (mode === undefined) return undefined;
  return { name: `aes-${bits}-${mode}`, mode, keyLength: bits / 8, ivLength: { cbc: 16, ctr: 16, ecb: 0, gcm: 12 }[mode], blockSize: mode === "cbc" || mode === "ecb" ? BLOCK : 1 };
}

// As OpenSSL says what is wrong: a number, the library, and the reason.
const fail = (message, code) => {
  const [, library, reason] = /^error:[^:]*:([^:]*)::(.*)$/.exec(message) ?? [];
  throw Object.assign(new Error(message), reason === undefined ? { code } : { library, reason, code });
};

function joined(a, b) {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

const xor = (target, other) => {
  for (let i = 0; i < target.length; i++) target[i] ^= other[i];
  return target;
};

// Whole blocks, each on its own or chained to the one before it; the last one is padded.
class Blocks {
  padding = true;
  #key;
  #last;
  #rest = new Uint8Array(0);
  #decrypts;
  constructor(key, iv, decrypts, chained) {
    const { aes } = library();
    this.#key = decrypts ? aes.expandKeyDecLE(key) : aes.expandKeyLE(key);
    this.#last = chained ? iv.slice() : undefined;
    this.#decrypts = decrypts;
  }
  #block(block) {
    const { aes } = library();
    if (this.#last === undefined) return this.#decrypts ? aes.decryptBlock(this.#key, block) : aes.encryptBlock(this.#key, block);
    if (!this.#decrypts) return (this.#last = aes.encryptBlock(this.#key, xor(block, this.#last)).slice());
    const sealed = block.slice();
    xor(aes.decryptBlock(this.#key, block), this.#last);
    this.#last = sealed;
    return block;
  }
  update(bytes) {
    const whole = joined(this.#rest, bytes);
    // The last block that is decrypted holds the padding.
    const kept = this.#decrypts && this.padding && whole.length > 0 ? whole.length - ((whole.length - 1) % BLOCK) - 1 : whole.length - (whole.length % BLOCK);
    this.#rest = whole.slice(kept);
    const out = new Uint8Array(kept);
    for (let at = 0; at < kept; at += BLOCK) out.set(this.#block(whole.slice(at, at + BLOCK)), at);
    return out;
  }
  final() {
    const rest = this.#rest;
    if (!this.padding || this.#decrypts) {
      if (this.padding ? rest.length !== BLOCK : rest.length > 0) fail("error:1C80006B:Provider routines::wrong final block length", "ERR_OSSL_WRONG_FINAL_BLOCK_LENGTH");
      if (!this.padding) return rest;
      const block = this.#block(rest);
      const count = block[BLOCK - 1];
      const isPadded = count >= 1 && count <= BLOCK && block.subarray(BLOCK - count).every((byte) => byte === count);
      if (!isPadded) fail("error:1C800064:Provider routines::bad decrypt", "ERR_OSSL_BAD_DECRYPT");
      return block.slice(0, BLOCK - count);
    }
    return this.#block(joined(rest, new Uint8Array(BLOCK - rest.length).fill(BLOCK - rest.length)));
  }
}

// A stream of key bytes: the encrypted numbers of the blocks.
class Counter {
  #key;
  #counter;
  #bytes;
  #stream = new Uint8Array(0);
  // `bytes` of the counter count; the others stay.
  constructor(key, counter, bytes) {
    this.#key = library().aes.expandKeyLE(key);
    this.#counter = counter.slice();
    this.#bytes = bytes;
  }
  #next() {
    const stream = library().aes.encryptBlock(this.#key, this.#counter.slice());
    for (let i = BLOCK - 1; i >= BLOCK - this.#bytes && (this.#counter[i] = this.#counter[i] + 1 & 0xff) === 0; i--);
    return stream;
  }
  update(bytes) {
    const out = bytes.slice();
    for (let at = 0; at < out.length;) {
      if (this.#stream.length === 0) this.#stream = this.#next();
      const size = Math.min(this.#stream.length, out.length - at);
      for (let i = 0; i < size; i++) out[at + i] ^= this.#stream[i];
      this.#stream = this.#stream.subarray(size);
      at += size;
    }
    return out;
  }
  final() {
    return new Uint8Array(0);
  }
}

// A counter with a tag: of what is encrypted, and of further data that is not.
class Galois {
  tag;
  #counter;
  #hash;
  #first;
  #rest = new Uint8Array(0);
  #lengths = [0, 0];
  #decrypts;
  constructor(key, iv, decrypts) {
    const { aes, ghash } = library();
    const expanded = aes.expandKeyLE(key);
    const hashKey = aes.encryptBlock(expanded, new Uint8Array(BLOCK));
    let start = new Uint8Array(BLOCK);
    if (iv.length === 12) {
      start.set(iv);
      start[15] = 1;
    } else {
      start = ghash.create(hashKey).update(iv).update(lengthsOf(0, iv.length)).digest();
    }
    this.#first = aes.encryptBlock(expanded, start.slice());
    this.#counter = new Counter(key, start, 4);
    this.#counter.update(new Uint8Array(BLOCK));
    this.#hash = ghash.create(hashKey);
    this.#decrypts = decrypts;
  }
  // All of it at once, before any other.
  authenticate(bytes) {
    this.#lengths[0] += bytes.length;
    this.#hash.update(bytes);
  }
  update(bytes) {
    const out = this.#counter.update(bytes);
    const whole = joined(this.#rest, this.#decrypts ? bytes : out);
    const kept = whole.length - (whole.length % BLOCK);
    if (kept > 0) this.#hash.update(whole.slice(0, kept));
    this.#rest = whole.slice(kept);
    this.#lengths[1] += bytes.length;
    return out;
  }
  final() {
    if (this.#rest.length > 0) this.#hash.update(this.#rest);
    const tag = xor(this.#hash.update(lengthsOf(...this.#lengths)).digest(), this.#first);
    if (!this.#decrypts) this.tag = tag;
    else if (this.tag === undefined || host.compareBytes(tag.slice(0, this.tag.length), this.tag) !== 0) {
      throw new Error("Unsupported state or unable to authenticate data");
    }
    return new Uint8Array(0);
  }
}

// Two lengths in bits, as the tag counts them.
function lengthsOf(a, b) {
  const block = new DataView(new ArrayBuffer(BLOCK));
  block.setBigUint64(0, BigInt(a) * 8n);
  block.setBigUint64(8, BigInt(b) * 8n);
  return new Uint8Array(block.buffer);
}

// What encrypts or decrypts: `update(bytes)` and then `final()`.
function create({ mode }, key, iv, decrypts, counterBytes = BLOCK) {
  if (mode === "gcm") return new Galois(key.slice(), iv, decrypts);
  if (mode === "ctr") return new Counter(key.slice(), iv, counterBytes);
  return new Blocks(key.slice(), iv, decrypts, mode === "cbc");
}

module.exports = { TAG, create, describe, joined, names };
