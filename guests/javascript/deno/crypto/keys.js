// Key pairs of node:crypto: made, read and written, signatures, encryption with RSA, and secrets that two sides agree on.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const codes = require("deno/deno_node/internal/errors.ts");
const { Writable } = kit.requireBuiltin("stream");
const formats = require("deno/crypto/key_formats.js");

const { bytesOfNumber, inverse, power } = formats;
const library = () => kit.library("curves");
const CURVES = { prime256v1: "p256", secp384r1: "p384", secp521r1: "p521", secp256k1: "secp256k1" };
const ALIASES = { "P-256": "prime256v1", secp256r1: "prime256v1", "P-384": "secp384r1", "P-521": "secp521r1" };
const constants = {
  RSA_PKCS1_PADDING: 1, RSA_NO_PADDING: 3, RSA_PKCS1_OAEP_PADDING: 4, RSA_PKCS1_PSS_PADDING: 6,
  RSA_PSS_SALTLEN_DIGEST: -1, RSA_PSS_SALTLEN_MAX_SIGN: -2, RSA_PSS_SALTLEN_AUTO: -2,
};
const RSA_BITS_MIN = 512;
const RSA_BITS_MAX = 4096;
const ROUNDS = 8; // of the test for primes

const hashName = (name) => String(name).toLowerCase().replace(/^rsa-/, "").replace("-", "");
function hashOf(name) {
  const found = { sha1: 1, sha224: 1, sha256: 1, sha384: 1, sha512: 1 }[hashName(name)] && library()[hashName(name)];
  if (!found) throw new Error("Invalid digest: " + name);
  return found;
}

// Makes the functions, of what the module has besides: keys that are secret, and random bytes.
function make({ KeyObject, randomBytes, later }) {
  const keys = new WeakMap();

  class AsymmetricKeyObject extends KeyObject {
    constructor(key, type) {
      super(new Uint8Array(0));
      this.type = type;
      keys.set(this, key);
    }
    get asymmetricKeyType() {
      return keys.get(this).kind;
    }
    get asymmetricKeyDetails() {
      const { kind, n, e, curve } = keys.get(this);
      return kind === "rsa" ? { modulusLength: n.toString(2).length, publicExponent: e } : kind === "ec" ? { namedCurve: curve } : {};
    }
    get symmetricKeySize() {
      return undefined;
    }
    export({ format = "pem", type, cipher } = {}) {
      const key = keys.get(this);
      const written = this.type === "public" ? { ...key, isPrivate: false } : key;
      if (format === "jwk") return formats.toJwk(written);
      if (cipher !== undefined) throw kit.unsupported("crypto's encryption of keys", "write the key as it is");
      const kind = type ?? (this.type === "public" ? "spki" : "pkcs8");
      return format === "der" ? formats.toDer(written, kind) : formats.toPem(written, kind);
    }
    equals(other) {
      return other instanceof AsymmetricKeyObject && other.type === this.type && this.export({ format: "der" }).equals(other.export({ format: "der" }));
    }
  }
  class PublicKeyObject extends AsymmetricKeyObject {}
  class PrivateKeyObject extends AsymmetricKeyObject {}

  // Fills in the public part of a private key.
  function whole(key) {
    if (key.kind === "rsa" || key.point !== undefined) return key;
    const curve = library()[key.kind === "ec" ? CURVES[key.curve] : key.kind];
    const point = key.kind === "ec" ? curve.getPublicKey(key.secret, false) : curve.getPublicKey(key.secret);
    return { ...key, point: Buffer.from(point) };
  }

  // The key that an argument stands for: an object for one, a text, bytes, or options with one of these.
  function read(given) {
    if (given instanceof AsymmetricKeyObject) return keys.get(given);
    if (typeof given === "string") return whole(formats.fromPem(given));
    if (ArrayBuffer.isView(given)) return whole(formats.fromPem(Buffer.from(given).toString("latin1")));
    if (given === null || typeof given !== "object" || given.key === undefined) {
      throw new codes.ERR_INVALID_ARG_TYPE("key", ["ArrayBuffer", "Buffer", "TypedArray", "DataView", "string", "KeyObject", "CryptoKey"], given);
    }
    if (given.format === "jwk") return whole(formats.fromJwk(given.key));
    if (given.format === "der") return whole(formats.fromDer(Buffer.from(given.key)));
    return read(given.key);
  }
  function readPrivate(given) {
    const key = read(given);
    if (!key.isPrivate) throw Object.assign(new Error("error:1E08010C:DECODER routines::unsupported"), { code: "ERR_OSSL_UNSUPPORTED" });
    return key;
  }

  // ---- New keys

  function isPrime(number) {
    let odd = number - 1n;
    let halvings = 0;
    for (; !(odd & 1n); odd >>= 1n) halvings++;
    for (let round = 0; round < ROUNDS; round++) {
      const base = 2n + (formats.numberOf(randomBytes(8)) % (number - 3n));
      let value = power(base, odd, number);
      if (value === 1n || value === number - 1n) continue;
      let at = 1;
      for (; at < halvings && value !== number - 1n; at++) value = (value * value) % number;
      if (value !== number - 1n) return false;
    }
    return true;
  }

  const SMALL = [3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47];
  for (let each = 53; each < 4000; each += 2) if (SMALL.every((one) => each % one)) SMALL.push(each);

  // A prime of so many bits, the first two of which are set. Steps from a random number, and leaves out what small primes divide.
  function prime(bits) {
    for (;;) {
      const start = formats.numberOf(randomBytes(bits / 8)) | (3n << BigInt(bits - 2)) | 1n;
      const rests = SMALL.map((one) => Number(start % BigInt(one)));
      for (let step = 0; step < 4000; step += 2) {
        if (SMALL.some((one, at) => (rests[at] + step) % one === 0)) continue;
        const number = start + BigInt(step);
        if (number >> BigInt(bits) === 0n && isPrime(number)) return number;
      }
    }
  }

  function newRsa({ modulusLength, publicExponent = 65537 }) {
    if (!Number.isInteger(modulusLength)) throw new codes.ERR_INVALID_ARG_TYPE("options.modulusLength", "number", modulusLength);
    if (modulusLength < RSA_BITS_MIN || modulusLength > RSA_BITS_MAX || modulusLength % 16 !== 0) {
      throw new RangeError(`a modulus has ${RSA_BITS_MIN} to ${RSA_BITS_MAX} bits here, and a multiple of 16`);
    }
    const e = BigInt(publicExponent);
    for (;;) {
      const [q, p] = [prime(modulusLength / 2), prime(modulusLength / 2)].sort((a, b) => (a < b ? -1 : 1));
      const d = p === q ? undefined : inverse(e, (p - 1n) * (q - 1n));
      if (d !== undefined) return { kind: "rsa", isPrivate: true, n: p * q, e, d, p, q };
    }
  }

  function newKey(type, options) {
    if (type === "rsa" || type === "rsa-pss") return newRsa(options);
    if (type === "ed25519" || type === "x25519") return whole({ kind: type, isPrivate: true, secret: randomBytes(32) });
    if (type !== "ec") throw kit.unsupported(`crypto.generateKeyPair of the type ${type}`, "there are rsa, ec, ed25519 and x25519");
    const curve = ALIASES[options.namedCurve] ?? options.namedCurve;
    if (CURVES[curve] === undefined) throw Object.assign(new Error("Invalid EC curve name"), { code: "ERR_CRYPTO_INVALID_CURVE" });
    const { utils, lengths } = library()[CURVES[curve]];
    return whole({ kind: "ec", curve, isPrivate: true, secret: Buffer.from(utils.randomSecretKey(randomBytes(lengths.seed))) });
  }

  function generateKeyPairSync(type, options = {}) {
    const key = newKey(type, options);
    const given = (object, encoding) => (encoding === undefined ? object : object.export(encoding));
    return {
      publicKey: given(new PublicKeyObject(key, "public"), options.publicKeyEncoding),
      privateKey: given(new PrivateKeyObject(key, "private"), options.privateKeyEncoding),
    };
  }

  // ---- Signatures

  const PKCS1 = { sha1: "PKCS1_SHA1", sha224: "PKCS1_SHA224", sha256: "PKCS1_SHA256", sha384: "PKCS1_SHA384", sha512: "PKCS1_SHA512" };

  function rsaSigner(algorithm, { padding, saltLength }, key) {
    const hash = hashOf(algorithm);
    if (padding !== constants.RSA_PKCS1_PSS_PADDING) return library()[PKCS1[hashName(algorithm)]];
    const most = Math.ceil((key.n.toString(2).length - 1) / 8) - hash.outputLen - 2;
    const salt = saltLength === undefined || saltLength === constants.RSA_PSS_SALTLEN_MAX_SIGN ? most
      : saltLength === constants.RSA_PSS_SALTLEN_DIGEST ? hash.outputLen : saltLength;
    return library().PSS(hash, library().mgf1(hash), salt);
  }
  const optionsOf = (given) => (given !== null && typeof given === "object" && given.key !== undefined ? given : {});
  const ecOptions = (options) => ({ prehash: false, lowS: false, format: options.dsaEncoding === "ieee-p1363" ? "compact" : "der" });

  function signBytes(algorithm, data, given) {
    const key = readPrivate(given);
    const options = optionsOf(given);
    if (key.kind === "ed25519") return Buffer.from(library().ed25519.sign(data, key.secret));
    if (key.kind === "ec") return Buffer.from(library()[CURVES[key.curve]].sign(hashOf(algorithm ?? "sha256")(data), key.secret, ecOptions(options)));
    return Buffer.from(rsaSigner(algorithm ?? "sha256", options, key).sign({ n: key.n, d: key.d }, data));
  }

  function verifyBytes(algorithm, data, given, signature) {
    const key = read(given);
    const options = optionsOf(given);
    try {
      if (key.kind === "ed25519") return library().ed25519.verify(signature, data, key.point);
      if (key.kind === "ec") return library()[CURVES[key.curve]].verify(signature, hashOf(algorithm ?? "sha256")(data), key.point, ecOptions(options));
      return rsaSigner(algorithm ?? "sha256", options, key).verify({ n: key.n, e: key.e }, data, signature);
    } catch (error) {
      if (/^Invalid digest/.test(error.message)) throw error;
      return false; // what is no signature at all
    }
  }

  const bytes = (data, encoding) =>
    typeof data === "string" ? new Uint8Array(Buffer.from(data, encoding)) : ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data);

  class Signing extends Writable {
    _algorithm;
    _pieces = [];
    constructor(algorithm) {
      super();
      hashOf(algorithm);
      this._algorithm = algorithm;
    }
    _write(chunk, encoding, done) {
      this.update(chunk, encoding);
      done();
    }
    update(data, encoding) {
      this._pieces.push(Buffer.from(bytes(data, encoding)));
      return this;
    }
  }
  class Sign extends Signing {
    sign(key, encoding) {
      const made = signBytes(this._algorithm, new Uint8Array(Buffer.concat(this._pieces)), key);
      return encoding === undefined || encoding === "buffer" ? made : made.toString(encoding);
    }
  }
  class Verify extends Signing {
    verify(key, signature, encoding) {
      return verifyBytes(this._algorithm, new Uint8Array(Buffer.concat(this._pieces)), key, bytes(signature, encoding));
    }
  }

  // ---- Encryption with RSA

  function box(options) {
    if (options.padding === constants.RSA_PKCS1_PADDING) return library().PKCS1_KEM;
    const hash = hashOf(options.oaepHash ?? "sha1");
    return library().OAEP(hash, library().mgf1(hash), options.oaepLabel === undefined ? undefined : bytes(options.oaepLabel));
  }
  const publicEncrypt = (given, data) => {
    const { n, e } = read(given);
    return Buffer.from(box(optionsOf(given)).encrypt({ n, e }, bytes(data)));
  };
  const privateDecrypt = (given, data) => {
    const { n, d } = readPrivate(given);
    try {
      return Buffer.from(box(optionsOf(given)).decrypt({ n, d }, bytes(data)));
    } catch {
      throw Object.assign(new Error("error:02000079:rsa routines::oaep decoding error"), { code: "ERR_OSSL_RSA_OAEP_DECODING_ERROR" });
    }
  };
  // Padded as signatures are, without a digest.
  const privateEncrypt = (given, data) => {
    const { n, d } = readPrivate(given);
    const size = bytesOfNumber(n).length;
    const content = bytes(data);
    if (content.length > size - 11) throw new Error("error:0200006E:rsa routines::data too large for key size");
    const padded = Buffer.concat([Buffer.from([0, 1]), Buffer.alloc(size - 3 - content.length, 255), Buffer.from([0]), content]);
    return bytesOfNumber(power(formats.numberOf(padded), d, n), size);
  };
  const publicDecrypt = (given, data) => {
    const { n, e } = read(given);
    const opened = bytesOfNumber(power(formats.numberOf(bytes(data)), e, n), bytesOfNumber(n).length);
    const end = opened.indexOf(0, 2);
    if (opened[1] !== 1 || end < 10) throw new Error("error:0200008A:rsa routines::invalid padding");
    return opened.subarray(end + 1);
  };

  // ---- Secrets that two sides agree on

  class ECDH {
    #curve;
    #secret;
    constructor(name) {
      const curve = ALIASES[name] ?? name;
      if (CURVES[curve] === undefined) throw Object.assign(new Error("Invalid EC curve name"), { code: "ERR_CRYPTO_INVALID_CURVE" });
      this.#curve = curve;
    }
    #points() {
      return library()[CURVES[this.#curve]];
    }
    generateKeys(encoding, format) {
      this.#secret = newKey("ec", { namedCurve: this.#curve }).secret;
      return this.getPublicKey(encoding, format);
    }
    getPublicKey(encoding, format) {
      const point = Buffer.from(this.#points().getPublicKey(this.#secret, format === "compressed"));
      return encoding === undefined || encoding === "buffer" ? point : point.toString(encoding);
    }
    getPrivateKey(encoding) {
      return encoding === undefined || encoding === "buffer" ? Buffer.from(this.#secret) : Buffer.from(this.#secret).toString(encoding);
    }
    setPrivateKey(secret, encoding) {
      this.#secret = Buffer.from(bytes(secret, encoding));
    }
    computeSecret(other, inputEncoding, outputEncoding) {
      const shared = Buffer.from(this.#points().getSharedSecret(this.#secret, bytes(other, inputEncoding)).subarray(1));
      return outputEncoding === undefined || outputEncoding === "buffer" ? shared : shared.toString(outputEncoding);
    }
  }

  function diffieHellman({ privateKey, publicKey }) {
    const [mine, theirs] = [readPrivate(privateKey), read(publicKey)];
    if (mine.kind === "x25519") return Buffer.from(library().x25519.getSharedSecret(mine.secret, theirs.point));
    return Buffer.from(library()[CURVES[mine.curve]].getSharedSecret(mine.secret, theirs.point).subarray(1));
  }

  const generateKeyPair = (type, options, callback) => {
    later((error, pair) => (error ? callback(error) : callback(null, pair.publicKey, pair.privateKey)), () => generateKeyPairSync(type, options));
  };
  generateKeyPair[kit.requireBuiltin("util").promisify.custom] = async (type, options) => generateKeyPairSync(type, options);
  const either = (now) => (...values) => {
    const callback = typeof values.at(-1) === "function" ? values.pop() : undefined;
    return callback === undefined ? now(...values) : later(callback, () => now(...values));
  };
  return {
    constants, ECDH, Sign, Verify, diffieHellman, generateKeyPair, generateKeyPairSync, privateDecrypt, privateEncrypt, publicDecrypt, publicEncrypt,
    createECDH: (name) => new ECDH(name),
    createPrivateKey: (given) => new PrivateKeyObject(readPrivate(given), "private"),
    createPublicKey: (given) => new PublicKeyObject(read(given), "public"),
    createSign: (algorithm) => new Sign(algorithm),
    createVerify: (algorithm) => new Verify(algorithm),
    getCurves: () => Object.keys(CURVES),
    sign: either((algorithm, data, key) => signBytes(algorithm, bytes(data), key)),
    verify: either((algorithm, data, key, signature) => verifyBytes(algorithm, bytes(data), key, bytes(signature))),
  };
}

module.exports = { make };
