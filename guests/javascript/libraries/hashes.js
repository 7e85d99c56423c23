// Hash functions, and what is made of them. Those that programs use most, and keys from passwords, are done in C.
import { ripemd160 } from "@noble/hashes/legacy.js";
import { sha3_224, sha3_256, sha3_384, sha3_512 } from "@noble/hashes/sha3.js";
import { blake2b, blake2s } from "@noble/hashes/blake2.js";
import { pbkdf2 as pbkdf2OfAny } from "@noble/hashes/pbkdf2.js";

export { hkdf } from "@noble/hashes/hkdf.js";
export { hmac } from "@noble/hashes/hmac.js";

// A digest whose state the host keeps in an array; with the methods that HMAC asks of one.
class Digest {
  constructor(kind, hash, state = host.digestStart(kind)) {
    this.kind = kind;
    this.hash = hash;
    this.state = state;
    this.outputLen = hash.outputLen;
    this.blockLen = hash.blockLen;
  }
  update(bytes) {
    host.digestUpdate(this.state, bytes);
    return this;
  }
  digest() {
    return host.digestFinish(this.state);
  }
  digestInto(target) {
    target.set(this.digest());
  }
  clone() {
    return new Digest(this.kind, this.hash, this.state.slice());
  }
  _cloneInto(target) {
    target ??= new Digest(this.kind, this.hash);
    target.state.set(this.state);
    return target;
  }
  destroy() {}
}

// A hash function of the host's, by its number there.
function native(kind, outputLen, blockLen) {
  const hash = (bytes) => hash.create().update(bytes).digest();
  return Object.assign(hash, { kind, outputLen, blockLen, create: () => new Digest(kind, hash) });
}

export const pbkdf2 = (hash, password, salt, { c, dkLen }) =>
  hash.kind === undefined ? pbkdf2OfAny(hash, password, salt, { c, dkLen }) : host.pbkdf2(hash.kind, password, salt, c, dkLen);
export const scrypt = (password, salt, { N, r, p, dkLen }) => host.scrypt(password, salt, N, r, p, dkLen);

// By the names that OpenSSL, and so Node, has for them.
export const byName = {
  md5: native(0, 16, 64), ripemd160, sha1: native(1, 20, 64), sha224: native(2, 28, 64), sha256: native(3, 32, 64),
  sha384: native(4, 48, 128), sha512: native(5, 64, 128), "sha512-256": native(6, 32, 128),
  "sha3-224": sha3_224, "sha3-256": sha3_256, "sha3-384": sha3_384, "sha3-512": sha3_512,
  blake2b512: blake2b, blake2s256: blake2s,
};
