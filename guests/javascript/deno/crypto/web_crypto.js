// A part of the Web Cryptography API: digests, HMAC, AES, PBKDF2 and HKDF.
const { DOMException } = require("deno/deno_web/01_dom_exception.js");
const aes = require("deno/crypto/aes.js");
const hashes = () => kit.library("hashes");

const INTEGERS = [
  Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, BigInt64Array, BigUint64Array,
];
const QUOTA_BYTES = 65536;
const SECRET = Symbol("secret"); // so that cells cannot construct what only the platform makes

const refuse = (name, message) => {
  throw new DOMException(message, name);
};

const bytesOf = (data) => {
  if (data instanceof ArrayBuffer) return new Uint8Array(data.slice(0));
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength));
  throw new TypeError("an ArrayBuffer or a view of one is needed");
};
const bufferOf = (bytes) => bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);

const nameOf = (algorithm) => String(typeof algorithm === "object" && algorithm !== null ? algorithm.name : algorithm).toUpperCase();

// A hash function, by the name that the standard has for it.
function hashOf(algorithm) {
  const name = nameOf(algorithm);
  const found = { "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512" }[name];
  if (found === undefined) refuse("NotSupportedError", "Unrecognized algorithm name");
  return { name, hash: hashes().byName[found] };
}

class CryptoKey {
  #about;
  #bytes;
  constructor(secret, about, bytes) {
    if (secret !== SECRET) throw new TypeError("Illegal constructor");
    this.#about = about;
    this.#bytes = bytes;
  }
  get type() {
    return "secret";
  }
  get algorithm() {
    return this.#about.algorithm;
  }
  get extractable() {
    return this.#about.extractable;
  }
  get usages() {
    return [...this.#about.usages];
  }
  [Symbol.for("nodejs.util.inspect.custom")](depth, options, inspect) {
    if (depth < 0) return this;
    const { type, extractable, algorithm, usages } = this;
    return `CryptoKey ${inspect({ type, extractable, algorithm, usages }, { ...options, depth: options.depth === null ? null : options.depth - 1 })}`;
  }
  static bytes(key, algorithm, usage) {
    if (key.algorithm.name !== algorithm) refuse("InvalidAccessError", `the key is for ${key.algorithm.name}`);
    if (!key.usages.includes(usage)) refuse("InvalidAccessError", `the key does not allow '${usage}'`);
    return key.#bytes;
  }
  static exported(key) {
    if (!key.extractable) refuse("InvalidAccessException", "key is not extractable");
    return key.#bytes;
  }
}
const { bytes: keyBytes, exported } = CryptoKey;
delete CryptoKey.bytes;
delete CryptoKey.exported;

const AES = ["AES-CBC", "AES-CTR", "AES-GCM"];

// Encrypts or decrypts with one of them.
function crypt(algorithm, key, data, decrypts) {
  const name = nameOf(algorithm);
  if (!AES.includes(name)) refuse("NotSupportedError", `Unrecognized algorithm name '${name}': ${AES.join(", ")} are there`);
  const secret = keyBytes(key, name, decrypts ? "decrypt" : "encrypt");
  const iv = bytesOf(algorithm.iv ?? algorithm.counter);
  if (name !== "AES-GCM" && iv.length !== 16) refuse("OperationError", `the ${name === "AES-CBC" ? "iv" : "counter"} must have 16 bytes`);
  const coder = aes.create(aes.describe(`aes-${secret.length * 8}-${name.slice(4)}`), secret, iv, decrypts, Math.ceil((algorithm.length ?? 128) / 8));
  let text = bytesOf(data);
  const tagBytes = (algorithm.tagLength ?? 128) / 8;
  if (name === "AES-GCM") {
    if (algorithm.additionalData !== undefined) coder.authenticate(bytesOf(algorithm.additionalData));
    if (decrypts) {
      if (text.length < tagBytes) refuse("OperationError", "The provided data is too small");
      coder.tag = text.slice(text.length - tagBytes);
      text = text.slice(0, text.length - tagBytes);
    }
  }
  let out;
  try {
    const head = coder.update(text);
    out = aes.joined(head, coder.final());
  } catch {
    refuse("OperationError", "The operation failed for an operation-specific reason");
  }
  return bufferOf(name === "AES-GCM" && !decrypts ? aes.joined(out, coder.tag.slice(0, tagBytes)) : out);
}

function makeKey(algorithm, extractable, usages, bytes) {
  const name = nameOf(algorithm);
  if (name === "HMAC") {
    const { name: hash } = hashOf(algorithm.hash);
    return new CryptoKey(SECRET, { algorithm: { name, hash: { name: hash }, length: bytes.length * 8 }, extractable, usages }, bytes);
  }
  if (name === "PBKDF2" || name === "HKDF") return new CryptoKey(SECRET, { algorithm: { name }, extractable: false, usages }, bytes);
  if (AES.includes(name)) {
    if (![16, 24, 32].includes(bytes.length)) refuse("DataError", "Invalid key length");
    return new CryptoKey(SECRET, { algorithm: { name, length: bytes.length * 8 }, extractable, usages }, bytes);
  }
  return refuse("NotSupportedError", `Unrecognized algorithm name '${name}': HMAC, ${AES.join(", ")}, PBKDF2 and HKDF are there`);
}

function derive(algorithm, key, length, usage) {
  const name = nameOf(algorithm);
  const { hash } = hashOf(algorithm.hash);
  const secret = keyBytes(key, name, usage);
  const salt = bytesOf(algorithm.salt);
  if (!(length > 0) || length % 8 !== 0) refuse("OperationError", "length must be a multiple of 8");
  if (name === "PBKDF2") return hashes().pbkdf2(hash, secret, salt, { c: algorithm.iterations, dkLen: length / 8 });
  return hashes().hkdf(hash, secret, salt, bytesOf(algorithm.info), length / 8);
}

const unsupported = (operation) => async () => refuse("NotSupportedError", `crypto.subtle.${operation} is not available in this sandbox`);

class SubtleCrypto {
  constructor(secret) {
    if (secret !== SECRET) throw new TypeError("Illegal constructor");
  }
  async digest(algorithm, data) {
    const bytes = bytesOf(data);
    return bufferOf(hashOf(algorithm).hash(bytes));
  }
  async importKey(format, data, algorithm, extractable, usages) {
    if (format === "jwk" && data?.kty === "oct") data = Uint8Array.fromBase64(data.k, { alphabet: "base64url" });
    else if (format !== "raw") refuse("NotSupportedError", `keys of the format '${format}' cannot be imported: 'raw' and symmetric 'jwk' can`);
    return makeKey(algorithm, extractable === true, [...usages], bytesOf(data));
  }
  async exportKey(format, key) {
    if (format !== "raw") refuse("NotSupportedError", `keys cannot be exported in the format '${format}': 'raw' can`);
    return bufferOf(exported(key).slice());
  }
  async generateKey(algorithm, extractable, usages) {
    const isAes = AES.includes(nameOf(algorithm));
    const bytes = new Uint8Array(algorithm.length === undefined && !isAes ? hashOf(algorithm.hash).hash.blockLen : Math.ceil(algorithm.length / 8));
    host.fillRandom(bytes);
    return makeKey(algorithm, extractable === true, [...usages], bytes);
  }
  async sign(algorithm, key, data) {
    const { hash } = hashOf(key.algorithm.hash);
    return bufferOf(hashes().hmac(hash, keyBytes(key, nameOf(algorithm), "sign"), bytesOf(data)));
  }
  async verify(algorithm, key, signature, data) {
    const { hash } = hashOf(key.algorithm.hash);
    const expected = hashes().hmac(hash, keyBytes(key, nameOf(algorithm), "verify"), bytesOf(data));
    return host.compareBytes(expected, bytesOf(signature)) === 0;
  }
  async encrypt(algorithm, key, data) {
    return crypt(algorithm, key, data, false);
  }
  async decrypt(algorithm, key, data) {
    return crypt(algorithm, key, data, true);
  }
  async deriveBits(algorithm, key, length) {
    return bufferOf(derive(algorithm, key, length, "deriveBits"));
  }
  async deriveKey(algorithm, key, target, extractable, usages) {
    const length = target.length ?? hashOf(target.hash).hash.blockLen * 8;
    return makeKey(target, extractable === true, [...usages], derive(algorithm, key, length, "deriveKey"));
  }
}
for (const name of ["wrapKey", "unwrapKey"]) SubtleCrypto.prototype[name] = unsupported(name);

class Crypto {
  #subtle = new SubtleCrypto(SECRET);
  constructor(secret) {
    if (secret !== SECRET) throw new TypeError("Illegal constructor");
  }
  get subtle() {
    return this.#subtle;
  }
  getRandomValues(array) {
    if (!INTEGERS.some((kind) => array instanceof kind)) refuse("TypeMismatchError", "The data argument must be an integer-type TypedArray");
    if (array.byteLength > QUOTA_BYTES) {
      refuse("QuotaExceededError", "The requested length exceeds 65,536 bytes");
    }
    host.fillRandom(array);
    return array;
  }
  randomUUID() {
    const bytes = new Uint8Array(16);
    host.fillRandom(bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    return bytes.toHex().replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }
}
for (const kind of [Crypto, SubtleCrypto, CryptoKey]) {
  Object.defineProperty(kind.prototype, Symbol.toStringTag, { value: kind.name, configurable: true });
}

module.exports = { Crypto, CryptoKey, SubtleCrypto, crypto: new Crypto(SECRET) };
