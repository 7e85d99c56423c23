// Brotli, unpacked.
export { decompress } from "brotli/decompress";
