// AES, block by block, and the authentication of its Galois mode.
export { unsafe as aes } from "@noble/ciphers/aes.js";
export { ghash } from "@noble/ciphers/_polyval.js";
