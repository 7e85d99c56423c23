// gzip and deflate.
export { Deflate, Gunzip, Gzip, Inflate, Unzlib, Zlib, deflateSync, gunzipSync, gzipSync, inflateSync, unzlibSync, zlibSync } from "fflate/browser";
