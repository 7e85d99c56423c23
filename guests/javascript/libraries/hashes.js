// Hash functions, and what is made of them.
import { md5, ripemd160, sha1 } from "@noble/hashes/legacy.js";
import { sha224, sha256, sha384, sha512, sha512_256 } from "@noble/hashes/sha2.js";
import { sha3_224, sha3_256, sha3_384, sha3_512 } from "@noble/hashes/sha3.js";
import { blake2b, blake2s } from "@noble/hashes/blake2.js";

export { hkdf } from "@noble/hashes/hkdf.js";
export { hmac } from "@noble/hashes/hmac.js";
export { pbkdf2 } from "@noble/hashes/pbkdf2.js";
export { scrypt } from "@noble/hashes/scrypt.js";

// By the names that OpenSSL, and so Node, has for them.
export const byName = {
  md5, ripemd160, sha1, sha224, sha256, sha384, sha512, "sha512-256": sha512_256,
  "sha3-224": sha3_224, "sha3-256": sha3_256, "sha3-384": sha3_384, "sha3-512": sha3_512,
  blake2b512: blake2b, blake2s256: blake2s,
};
