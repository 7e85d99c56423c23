// node:crypto: hash functions, AES, keys from passwords, random bytes.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const codes = require("deno/deno_node/internal/errors.ts");
const { validateFunction, validateInt32, validateInteger, validateString } = require("deno/deno_node/internal/validators.js");
const { Transform } = kit.requireBuiltin("stream");
const { crypto: webcrypto } = require("deno/crypto/web_crypto.js");
const aes = require("deno/crypto/aes.js");

const hashes = () => kit.library("hashes");
const RANDOM_BYTES_MAX = 2 ** 31 - 1;
const RANDOM_RANGE_MAX = 2 ** 48 - 1;

// The names that libraries use for one function: `sha256`, `SHA-256`, `RSA-SHA256`.
function hashOf(name) {
  const { byName } = hashes();
  const plain = name.toLowerCase().replace(/^rsa-/, "");
  return byName[plain] ?? byName[plain.replace("-", "")] ?? byName[plain.replace("/", "-")];
}

// Plain arrays: `slice` of a buffer copies nothing.
const bytesOf = (data, encoding) =>
  typeof data === "string" ? plain(Buffer.from(data, encoding === "buffer" ? "utf8" : encoding))
  : ArrayBuffer.isView(data) ? plain(data)
  : data instanceof ArrayBuffer ? new Uint8Array(data)
  : refuseData(data);

function plain(view) {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

function refuseData(data) {
  throw new codes.ERR_INVALID_ARG_TYPE("data", ["string", "Buffer", "TypedArray", "DataView"], data);
}

const encoded = (bytes, encoding) => {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return encoding === undefined || encoding === "buffer" ? buffer : buffer.toString(encoding);
};

// Both `Hash` and `Hmac`: a stream too, as Node has it.
class Digest extends Transform {
  #state;
  #done = false;
  #result;
  constructor(state) {
    super();
    this.#state = state;
  }
  update(data, encoding) {
    if (this.#done) throw new codes.ERR_CRYPTO_HASH_FINALIZED();
    this.#state.update(bytesOf(data, encoding));
    return this;
  }
  digest(encoding) {
    if (this.#done) throw new codes.ERR_CRYPTO_HASH_FINALIZED();
    this.#done = true;
    return encoded(this.#finish(), encoding);
  }
  // What was piped in may be had as output of the stream, and by asking.
  #finish() {
    return (this.#result ??= this.#state.digest());
  }
  copy() {
    if (this.#done) throw new codes.ERR_CRYPTO_HASH_FINALIZED();
    return new this.constructor(this.#state.clone());
  }
  _transform(chunk, encoding, done) {
    this.update(chunk, encoding);
    done();
  }
  _flush(done) {
    this.push(Buffer.from(this.#finish()));
    done();
  }
}
class Hash extends Digest {}
class Hmac extends Digest {}

// Hash functions that Node has, and this guest has not.
const ABSENT = /^(?:rsa-)?(?:sm3|shake\d+|md5-sha1|sha512-224|whirlpool|md4|mdc2|ssl3-\w+|id-.*|sha512\/224)$|^rsa-/i;

// Without a code where Node gives none.
function unknown(name) {
  return new Error(`Digest method not supported${ABSENT.test(name) ? `: '${name}'; there are ${getHashes().join(", ")}` : ""}`);
}

function need(name, label) {
  validateString(name, label);
  const hash = hashOf(name);
  if (hash === undefined) throw unknown(name);
  return hash;
}

const createHash = (algorithm) => new Hash(need(algorithm, "algorithm").create());
const createHmac = (algorithm, key) => new Hmac(hashes().hmac.create(need(algorithm, "hmac"), keyBytes(key)));
const hash = (algorithm, data, encoding = "hex") => createHash(algorithm).update(data).digest(encoding);
const getHashes = () => Object.keys(hashes().byName);

// Runs `task` now, and calls back with what came of it.
function later(callback, task) {
  validateFunction(callback, "callback");
  let outcome;
  try {
    outcome = [null, task()];
  } catch (error) {
    outcome = [error];
  }
  process.nextTick(callback, ...outcome);
}

function randomBytes(size, callback) {
  validateInteger(size, "size", 0, RANDOM_BYTES_MAX);
  const make = () => {
    const bytes = Buffer.alloc(size);
    host.fillRandom(bytes);
    return bytes;
  };
  return callback === undefined ? make() : later(callback, make);
}

function randomFillSync(buffer, offset = 0, size = buffer.byteLength - offset) {
  const bytes = ArrayBuffer.isView(buffer) ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength) : new Uint8Array(buffer);
  host.fillRandom(bytes.subarray(offset, offset + size));
  return buffer;
}

function randomInt(min, max, callback) {
  if (max === undefined || typeof max === "function") [min, max, callback] = [0, min, max];
  if (!Number.isSafeInteger(min)) throw new codes.ERR_INVALID_ARG_TYPE("min", "a safe integer", min);
  if (!Number.isSafeInteger(max)) throw new codes.ERR_INVALID_ARG_TYPE("max", "a safe integer", max);
  if (max <= min) throw new codes.ERR_OUT_OF_RANGE("max", `greater than the value of "min" (${min})`, max);
  const range = max - min;
  if (range > RANDOM_RANGE_MAX) throw new codes.ERR_OUT_OF_RANGE("max - min", `<= ${RANDOM_RANGE_MAX}`, range);
  const draw = () => {
    // Numbers beyond the last whole multiple of the range would favour small results.
    const limit = Math.floor(2 ** 48 / range) * range;
    for (;;) {
      const number = randomBytes(6).readUIntBE(0, 6);
      if (number < limit) return min + (number % range);
    }
  };
  return callback === undefined ? draw() : later(callback, draw);
}

function timingSafeEqual(a, b) {
  const [x, y] = [bytesOf(a), bytesOf(b)];
  if (x.length !== y.length) throw new codes.ERR_CRYPTO_TIMING_SAFE_EQUAL_LENGTH();
  let difference = 0;
  for (let i = 0; i < x.length; i++) difference |= x[i] ^ y[i];
  return difference === 0;
}

function pbkdf2Sync(password, salt, iterations, length, digest) {
  validateInt32(iterations, "iterations", 1);
  validateInt32(length, "keylen", 0);
  return encoded(hashes().pbkdf2(need(digest, "digest"), bytesOf(password), bytesOf(salt), { c: iterations, dkLen: length }));
}

function scryptSync(password, salt, length, options = {}) {
  validateInt32(length, "keylen", 0);
  const { N = options.cost ?? 16384, r = options.blockSize ?? 8, p = options.parallelization ?? 1, maxmem = 32 << 20 } = options;
  const invalid = (why) => Object.assign(new RangeError(`Invalid scrypt params: ${why}`), { code: "ERR_CRYPTO_INVALID_SCRYPT_PARAMS" });
  if (!(Number.isInteger(Math.log2(N)) && N > 1)) throw invalid("N must be a power of two, and more than 1");
  if (128 * r * (N + p + 2) > maxmem) throw invalid("memory limit exceeded");
  return encoded(hashes().scrypt(bytesOf(password), bytesOf(salt), { N, r, p, dkLen: length }));
}

function hkdfSync(digest, key, salt, info, length) {
  const bytes = hashes().hkdf(need(digest, "digest"), bytesOf(key), bytesOf(salt), bytesOf(info), length);
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
}

const withCallback = (sync) => (...values) => later(values.pop(), () => sync(...values));

// ---- Secret keys

class KeyObject {
  #bytes;
  type = "secret";
  constructor(bytes) {
    this.#bytes = bytes;
  }
  get symmetricKeySize() {
    return this.#bytes.length;
  }
  export(options) {
    return options?.format === "jwk" ? { kty: "oct", k: Buffer.from(this.#bytes).toString("base64url") } : Buffer.from(this.#bytes);
  }
  equals(other) {
    return other instanceof KeyObject && host.compareBytes(this.#bytes, other.#bytes) === 0;
  }
  get [Symbol.toStringTag]() {
    return "KeyObject";
  }
}
const createSecretKey = (key, encoding) => new KeyObject(bytesOf(key, encoding).slice());
const generateKeySync = (type, { length }) => new KeyObject(randomBytes(Math.floor(length / 8)));
const keyBytes = (key) => (key instanceof KeyObject ? key.export() : bytesOf(key));

// ---- Ciphers

// `Cipheriv` and `Decipheriv`, which are streams too.
class AesStream extends Transform {
  #coder;
  #info;
  #ended = false;
  #decrypts;
  #tagLength;
  constructor(name, key, iv, options, decrypts) {
    super();
    validateString(name, "cipher");
    this.#info = aes.describe(name);
    if (this.#info === undefined) throw Object.assign(new Error(`Unknown cipher: '${name}'; there are ${aes.names.join(", ")}`), { code: "ERR_CRYPTO_UNKNOWN_CIPHER" });
    const secret = keyBytes(key);
    if (secret.length !== this.#info.keyLength) throw Object.assign(new RangeError("Invalid key length"), { code: "ERR_CRYPTO_INVALID_KEYLEN" });
    const start = iv === null ? new Uint8Array(0) : bytesOf(iv);
    const fits = this.#info.mode === "gcm" ? start.length > 0 : start.length === this.#info.ivLength;
    if (!fits) throw Object.assign(new TypeError("Invalid initialization vector"), { code: "ERR_CRYPTO_INVALID_IV" });
    this.#decrypts = decrypts;
    this.#tagLength = options?.authTagLength ?? aes.TAG;
    this.#coder = aes.create(this.#info, secret, start, decrypts);
  }
  #open(what) {
    if (this.#ended) throw Object.assign(new Error(`Unsupported state${what === "final" ? "" : " or unable to authenticate data"}`), { code: "ERR_CRYPTO_INVALID_STATE" });
  }
  #tagged(what) {
    if (this.#info.mode !== "gcm") throw Object.assign(new Error(`Invalid state for operation ${what}`), { code: "ERR_CRYPTO_INVALID_STATE" });
  }
  update(data, inputEncoding, outputEncoding) {
    this.#open("update");
    return encoded(this.#coder.update(bytesOf(data, inputEncoding)), outputEncoding);
  }
  final(encoding) {
    this.#open("final");
    this.#ended = true;
    return encoded(this.#coder.final(), encoding);
  }
  setAutoPadding(padding = true) {
    this.#coder.padding = padding;
    return this;
  }
  setAAD(data) {
    this.#tagged("setAAD");
    this.#coder.authenticate(bytesOf(data));
    return this;
  }
  getAuthTag() {
    this.#tagged("getAuthTag");
    if (!this.#ended || this.#decrypts) throw Object.assign(new Error("Invalid state for operation getAuthTag"), { code: "ERR_CRYPTO_INVALID_STATE" });
    return Buffer.from(this.#coder.tag.slice(0, this.#tagLength));
  }
  setAuthTag(tag, encoding) {
    this.#tagged("setAuthTag");
    const bytes = bytesOf(tag, encoding);
    if (![4, 8, 12, 13, 14, 15, 16].includes(bytes.length)) throw Object.assign(new TypeError(`Invalid authentication tag length: ${bytes.length}`), { code: "ERR_CRYPTO_INVALID_AUTH_TAG" });
    this.#coder.tag = bytes.slice();
    return this;
  }
  _transform(chunk, encoding, done) {
    try {
      this.push(this.update(chunk, encoding));
      done();
    } catch (error) {
      done(error);
    }
  }
  _flush(done) {
    try {
      this.push(this.final());
      done();
    } catch (error) {
      done(error);
    }
  }
}
class Cipheriv extends AesStream {
  constructor(name, key, iv, options) {
    super(name, key, iv, options, false);
  }
}
class Decipheriv extends AesStream {
  constructor(name, key, iv, options) {
    super(name, key, iv, options, true);
  }
}

function getCipherInfo(name) {
  const info = aes.describe(String(name));
  if (info === undefined) return undefined;
  const { blockSize, ivLength, ...rest } = info;
  return { ...rest, ...(blockSize > 1 ? { blockSize } : {}), ...(ivLength > 0 ? { ivLength } : {}) };
}

const WHY = "there are digests, HMAC, keys from passwords, AES, key pairs, signatures and randomness";
const MISSING = [
  "Certificate", "DiffieHellman", "X509Certificate", "checkPrime", "checkPrimeSync", "createDiffieHellman", "generatePrime",
  "generatePrimeSync", "getDiffieHellman",
];

module.exports = {
  createHash, createHmac, getHashes, hash, Hash, Hmac, randomBytes, randomFillSync, randomInt, timingSafeEqual,
  pbkdf2: withCallback(pbkdf2Sync), pbkdf2Sync, scrypt: withCallback(scryptSync), scryptSync,
  hkdf: withCallback(hkdfSync), hkdfSync,
  pseudoRandomBytes: randomBytes,
  randomFill: withCallback(randomFillSync),
  Cipheriv, Decipheriv, KeyObject, createSecretKey, generateKeySync, getCipherInfo,
  createCipheriv: (name, key, iv, options) => new Cipheriv(name, key, iv, options),
  createDecipheriv: (name, key, iv, options) => new Decipheriv(name, key, iv, options),
  generateKey: (type, options, callback) => later(callback, () => generateKeySync(type, options)),
  getCiphers: () => [...aes.names],
  getRandomValues: (array) => webcrypto.getRandomValues(array),
  randomUUID: () => webcrypto.randomUUID(),
  ...require("deno/crypto/keys.js").make({ KeyObject, randomBytes, later }),
  subtle: webcrypto.subtle,
  webcrypto,
  ...Object.fromEntries(MISSING.map((name) => [name, function () {
    throw kit.unsupported(`crypto.${name}`, WHY);
  }])),
};
