// Key pairs: signatures and agreements on elliptic curves, and RSA.
export { ed25519, x25519 } from "@noble/curves/ed25519.js";
export { p256, p384, p521 } from "@noble/curves/nist.js";
export { secp256k1 } from "@noble/curves/secp256k1.js";
export { sha1 } from "@noble/hashes/legacy.js";
export { sha224, sha256, sha384, sha512 } from "@noble/hashes/sha2.js";
export { mgf1, OAEP, PSS, PKCS1_KEM, PKCS1_SHA1, PKCS1_SHA224, PKCS1_SHA256, PKCS1_SHA384, PKCS1_SHA512 } from "micro-rsa-dsa-dh/rsa.js";
