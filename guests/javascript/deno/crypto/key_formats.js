// How keys are written: DER and PEM (SPKI, PKCS #8, PKCS #1, SEC 1), and JWK. A key is a plain object here: `kind`, the numbers of
// RSA or the bytes of a curve's, and `isPrivate`.
const { Buffer } = require("deno/deno_node/internal/buffer.js");

const OIDS = {
  rsa: "2a864886f70d010101", ec: "2a8648ce3d0201", ed25519: "2b6570", x25519: "2b656e",
  prime256v1: "2a8648ce3d030107", secp384r1: "2b81040022", secp521r1: "2b81040023", secp256k1: "2b8104000a",
};
const NAMES = Object.fromEntries(Object.entries(OIDS).map(([name, hex]) => [hex, name]));
const JWK_CURVES = { prime256v1: "P-256", secp384r1: "P-384", secp521r1: "P-521", secp256k1: "secp256k1" };

// ---- Numbers

function bytesOfNumber(number, length) {
  const hex = number.toString(16);
  const bytes = Buffer.from(hex.length % 2 ? `0${hex}` : hex, "hex");
  return length === undefined ? bytes : Buffer.concat([Buffer.alloc(Math.max(0, length - bytes.length)), bytes]);
}
const numberOf = (bytes) => BigInt(`0x${Buffer.from(bytes).toString("hex") || "0"}`);

function power(base, exponent, modulus) {
  let result = 1n;
  for (let at = base % modulus; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = (result * at) % modulus;
    at = (at * at) % modulus;
  }
  return result;
}

function inverse(number, modulus) {
  let [a, b, x, y] = [((number % modulus) + modulus) % modulus, modulus, 1n, 0n];
  while (b !== 0n) [a, b, x, y] = [b, a % b, y, x - (a / b) * y];
  return a === 1n ? ((x % modulus) + modulus) % modulus : undefined;
}

// ---- DER

function tagged(tag, ...parts) {
  const body = Buffer.concat(parts);
  const size = body.length < 128 ? Buffer.from([body.length]) : bytesOfNumber(BigInt(body.length));
  return Buffer.concat([Buffer.from(body.length < 128 ? [tag] : [tag, 0x80 | size.length]), size, body]);
}
const sequence = (...parts) => tagged(0x30, ...parts);
const octets = (bytes) => tagged(0x04, bytes);
const bits = (bytes) => tagged(0x03, Buffer.from([0]), bytes);
const oid = (name) => tagged(0x06, Buffer.from(OIDS[name], "hex"));
const integer = (number) => {
  const bytes = bytesOfNumber(number);
  return tagged(0x02, bytes[0] & 0x80 ? Buffer.concat([Buffer.from([0]), bytes]) : bytes);
};

const bad = () => Object.assign(new Error("error:1E08010C:DECODER routines::unsupported"), { code: "ERR_OSSL_UNSUPPORTED", library: "DECODER routines", reason: "unsupported" });

// The values that stand one after another: [tag, content].
function readAll(bytes) {
  const found = [];
  for (let at = 0; at < bytes.length; ) {
    const tag = bytes[at++];
    let size = bytes[at++];
    if (size & 0x80) {
      const count = size & 0x7f;
      if (count === 0 || count > 4) throw bad();
      size = Number(numberOf(bytes.subarray(at, at + count)));
      at += count;
    }
    if (size === undefined || at + size > bytes.length) throw bad();
    found.push([tag, bytes.subarray(at, at + size)]);
    at += size;
  }
  return found;
}

const readSequence = (bytes) => {
  const [[tag, body] = []] = readAll(bytes);
  if (tag !== 0x30) throw bad();
  return readAll(body);
};

const ALGORITHMS = {
  rsa: () => sequence(oid("rsa"), Buffer.from([5, 0])),
  ec: (key) => sequence(oid("ec"), oid(key.curve)),
  ed25519: () => sequence(oid("ed25519")),
  x25519: () => sequence(oid("x25519")),
};

function rsaPrivate({ n, e, d, p, q }) {
  return sequence(...[0n, n, e, d, p, q, d % (p - 1n), d % (q - 1n), inverse(q, p)].map(integer));
}
const sec1 = (key, withCurve) =>
  sequence(integer(1n), octets(key.secret), ...(withCurve ? [tagged(0xa0, oid(key.curve))] : []), tagged(0xa1, bits(key.point)));

// A key as DER of a type: `spki`, `pkcs8`, `pkcs1` or `sec1`.
function toDer(key, type) {
  const algorithm = ALGORITHMS[key.kind](key);
  if (type === "spki") return sequence(algorithm, bits(key.kind === "rsa" ? toDer(key, "pkcs1-public") : key.point));
  if (type === "pkcs1-public" || (type === "pkcs1" && !key.isPrivate)) return sequence(integer(key.n), integer(key.e));
  if (type === "pkcs1") return rsaPrivate(key);
  if (type === "sec1") return sec1(key, true);
  const inner = key.kind === "rsa" ? rsaPrivate(key) : key.kind === "ec" ? sec1(key, false) : octets(key.secret);
  return sequence(integer(0n), algorithm, octets(inner));
}

const rsaOf = (values) => {
  const [n, e, d, p, q] = values.map(([, bytes]) => numberOf(bytes));
  return d === undefined ? { kind: "rsa", isPrivate: false, n, e } : { kind: "rsa", isPrivate: true, n, e, d, p, q };
};

// What an algorithm's sequence says: the kind, and the curve.
function algorithmOf(bytes) {
  const [kind, curve] = readAll(bytes).filter(([tag]) => tag === 0x06).map(([, name]) => NAMES[Buffer.from(name).toString("hex")]);
  if (kind === undefined || (kind === "ec" && curve === undefined)) throw bad();
  return { kind, curve };
}

function privateOf({ kind, curve }, inner) {
  if (kind === "rsa") return rsaOf(readSequence(inner).slice(1, 6));
  if (kind === "ec") return { kind, curve, isPrivate: true, secret: Buffer.from(readSequence(inner)[1][1]) };
  return { kind, isPrivate: true, secret: Buffer.from(readAll(inner)[0][1]) };
}

// The key that DER holds, whichever of the types it is.
function fromDer(bytes) {
  const values = readSequence(bytes);
  const [[first, head], [second, body] = []] = values;
  if (first === 0x30 && second === 0x03) {
    const algorithm = algorithmOf(head);
    const point = Buffer.from(body.subarray(1));
    return algorithm.kind === "rsa" ? rsaOf(readSequence(point)) : { ...algorithm, isPrivate: false, point };
  }
  if (first !== 0x02) throw bad();
  if (second === 0x30) return privateOf(algorithmOf(body), values[2][1]);
  if (second === 0x04) {
    const named = values.find(([tag]) => tag === 0xa0);
    return privateOf({ kind: "ec", curve: algorithmOf(named[1]).kind }, bytes);
  }
  return values.length > 2 ? rsaOf(values.slice(1, 6)) : rsaOf(values);
}

const LABELS = { spki: "PUBLIC KEY", pkcs8: "PRIVATE KEY", sec1: "EC PRIVATE KEY" };

function toPem(key, type) {
  const label = type === "pkcs1" ? `RSA ${key.isPrivate ? "PRIVATE" : "PUBLIC"} KEY` : LABELS[type];
  return `-----BEGIN ${label}-----\n${toDer(key, type).toString("base64").replace(/.{64}(?=.)/g, "$&\n")}\n-----END ${label}-----\n`;
}

function fromPem(text) {
  const found = /-----BEGIN ([A-Z ]+)-----\s*([\sA-Za-z0-9+/=]*)-----END \1-----/.exec(text);
  if (found === null) throw bad();
  return fromDer(Buffer.from(found[2], "base64"));
}

// ---- JWK

const text = (bytes) => Buffer.from(bytes).toString("base64url");
const OKP = { ed25519: "Ed25519", x25519: "X25519" };

function toJwk(key) {
  if (key.kind === "rsa") {
    const { n, e, d, p, q } = key;
    const more = key.isPrivate ? { d, p, q, dp: d % (p - 1n), dq: d % (q - 1n), qi: inverse(q, p) } : {};
    const written = ([name, number]) => [name, text(bytesOfNumber(number))];
    return { kty: "RSA", ...Object.fromEntries(Object.entries({ n, e, ...more }).map(written)) };
  }
  const secret = key.isPrivate ? { d: text(key.secret) } : {};
  if (key.kind !== "ec") return { crv: OKP[key.kind], ...secret, x: text(key.point), kty: "OKP" };
  const half = (key.point.length - 1) / 2;
  return { kty: "EC", x: text(key.point.subarray(1, 1 + half)), y: text(key.point.subarray(1 + half)), crv: JWK_CURVES[key.curve], ...secret };
}

const keyWith = (table, value) => Object.keys(table).find((name) => table[name] === value);

function fromJwk(jwk) {
  const bytes = (name) => Buffer.from(jwk[name], "base64url");
  const isPrivate = jwk.d !== undefined;
  if (jwk.kty === "RSA") {
    const names = isPrivate ? ["n", "e", "d", "p", "q"] : ["n", "e"];
    return { kind: "rsa", isPrivate, ...Object.fromEntries(names.map((name) => [name, numberOf(bytes(name))])) };
  }
  const secret = isPrivate ? { secret: bytes("d") } : {};
  if (jwk.kty === "OKP") return { kind: keyWith(OKP, jwk.crv), isPrivate, point: bytes("x"), ...secret };
  if (jwk.kty !== "EC") throw bad();
  return { kind: "ec", curve: keyWith(JWK_CURVES, jwk.crv), isPrivate, point: Buffer.concat([Buffer.from([4]), bytes("x"), bytes("y")]), ...secret };
}

module.exports = { bytesOfNumber, fromDer, fromJwk, fromPem, integer, inverse, numberOf, power, sequence, toDer, toJwk, toPem };
