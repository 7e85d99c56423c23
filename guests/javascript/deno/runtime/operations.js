// The operations that Deno's JavaScript calls: what its runtime does in Rust, and the prelude's `host` does here.
const percent = require("deno/network/percent.js");
const { WideDecoder, wideEncodingOf } = require("deno/runtime/wide_text.js");
const { encodeText, decodeText, classOf } = host;

// ---- Text

const toBytes = (data) =>
  data instanceof Uint8Array ? data
  : ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
  : new Uint8Array(data);

const withoutMark = (bytes) => (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes);

const notValid = (encoding = "utf-8") => {
  const error = new TypeError(`The encoded data was not valid for encoding ${encoding}`);
  error.code = "ERR_ENCODING_INVALID_ENCODED_DATA";
  return error;
};

// Text of bytes in UTF-8. Mistakes become U+FFFD, or a TypeError when `fatal`.
function decode(data, fatal, ignoreMark) {
  const bytes = ignoreMark ? toBytes(data) : withoutMark(toBytes(data));
  const text = decodeText(bytes, fatal);
  if (text === undefined) throw notValid();
  return text;
}

const UTF8 = "utf-8";

// Labels of the encodings that are there, by name.
const LABELS = {
  "utf-8": ["unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "utf-8", "utf8", "x-unicode20utf8"],
  "utf-16le": ["csunicode", "iso-10646-ucs-2", "ucs-2", "unicode", "unicodefeff", "utf-16", "utf-16le"],
  "utf-16be": ["unicodefffe", "utf-16be"],
  "windows-1252": ["ansi_x3.4-1968", "ascii", "cp1252", "iso-8859-1", "iso8859-1", "iso_8859-1", "l1", "latin1", "us-ascii", "windows-1252", "x-cp1252"],
};

// What windows-1252 has where Latin-1 has control characters.
const WINDOWS = "€\x81‚ƒ„…†‡ˆ‰Š‹Œ\x8dŽ\x8f\x90‘’“”•–—˜™š›œ\x9džŸ";

// Encodings of one byte for a character, besides that of the West.
const pages = () => kit.library("encodings");

// Bytes at the end that begin a character which goes on in the next piece.
function unfinished(bytes, encoding) {
  const { length } = bytes;
  if (encoding === UTF8) {
    for (let n = 1; n <= Math.min(3, length); n++) {
      const byte = bytes[length - n];
      if (byte >= 0xc0) return n < (byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4) ? n : 0;
      if (byte < 0x80) return 0;
    }
    return 0;
  }
  if (!encoding.startsWith("utf-16")) return 0;
  const odd = length % 2;
  const high = bytes[length - odd - (encoding === "utf-16le" ? 1 : 2)];
  return odd + (high >= 0xd8 && high <= 0xdb ? 2 : 0);
}

// Decodes text that comes in pieces.
class Decoder {
  #encoding;
  #fatal;
  #keepsMark;
  #rest = new Uint8Array(0);
  #started = false;
  #wide;

  constructor(encoding, fatal, keepsMark) {
    if (wideEncodingOf(encoding) === encoding) this.#wide = new WideDecoder(encoding, fatal);
    this.#encoding = encoding;
    this.#fatal = fatal;
    this.#keepsMark = keepsMark;
  }

  decode(data, streams) {
    const piece = toBytes(data);
    if (this.#wide !== undefined) return this.#wide.decode(piece, streams);
    const bytes = new Uint8Array(this.#rest.length + piece.length);
    bytes.set(this.#rest);
    bytes.set(piece, this.#rest.length);
    const held = streams ? unfinished(bytes, this.#encoding) : 0;
    this.#rest = bytes.slice(bytes.length - held);
    const text = this.#text(bytes.subarray(0, bytes.length - held));
    if (this.#started || text === "") return text;
    this.#started = true;
    return text[0] === "\ufeff" && !this.#keepsMark && this.#encoding.startsWith("utf-") ? text.slice(1) : text;
  }

  #text(bytes) {
    if (this.#encoding === UTF8) return decode(bytes, this.#fatal, true);
    if (this.#encoding === "windows-1252") {
      return host.decodeLatin1(bytes, 0xff).replace(/[\x80-\x9f]/g, (c) => WINDOWS[c.charCodeAt(0) - 0x80]);
    }
    if (!this.#encoding.startsWith("utf-16")) {
      const [, page] = pages()[this.#encoding];
      const text = host.decodeLatin1(bytes, 0xff).replace(/[\x80-\xff]/g, (c) => page[c.charCodeAt(0) - 0x80]);
      if (this.#fatal && text.includes("\ufffd")) throw notValid(this.#encoding);
      return text;
    }
    const ordered = this.#encoding === "utf-16le" ? bytes : bytes.map((_, i) => bytes[i ^ 1] ?? 0);
    const text = host.decodeUtf16(ordered);
    const isWhole = bytes.length % 2 === 0 && text.isWellFormed();
    if (this.#fatal && !isWhole) throw notValid(this.#encoding);
    return text.toWellFormed() + (bytes.length % 2 === 0 ? "" : "\ufffd");
  }
}

function normalizeLabel(label) {
  const plain = label.trim().toLowerCase();
  const found = Object.keys(LABELS).find((name) => LABELS[name].includes(plain));
  if (found !== undefined) return found;
  const page = Object.entries(pages()).find(([name, [labels]]) => name === plain || labels.split(" ").includes(plain));
  if (page !== undefined) return page[0];
  const wide = wideEncodingOf(plain);
  if (wide !== undefined) return wide;
  throw new RangeError(`The "${label}" encoding is not supported`);
}

// How much was read and written: in one number while a number holds that exactly, which is asked for first; else it is negative, and
// `counts` are asked for.
const PACKED = 0x100000000;
const PACKED_MAX = 0x1fffff;
const NOT_PACKED = -1;

function encodeInto(text, target, counts) {
  const [read, written] = host.encodeInto(text, target);
  if (counts === undefined) return read > PACKED_MAX ? NOT_PACKED : read * PACKED + written;
  counts[0] = read;
  counts[1] = written;
}

// ---- Base64

// `atob`: the text of bytes, one character for each.
function atob(text) {
  try {
    return host.decodeLatin1(Uint8Array.fromBase64(text.replace(/[\t\n\f\r ]+/g, "")), 0xff);
  } catch (error) {
    throw error instanceof SyntaxError ? new TypeError(error.message) : error;
  }
}

function btoa(text) {
  const bytes = host.encodeLatin1(text, true);
  if (bytes === undefined) throw new TypeError("not Latin-1");
  return bytes.toBase64();
}

const range = (data, offset, length) => toBytes(data).subarray(offset, offset + length);

// Base64 as Node reads it: both alphabets, anything else skipped, the rest after `=` too.
function decodeLoosely(text) {
  const plain = text.split("=", 1)[0].replace(/[^A-Za-z0-9+/_-]/g, "").replaceAll("-", "+").replaceAll("_", "/");
  // A single character at the end is no byte.
  return Uint8Array.fromBase64(plain.length % 4 === 1 ? plain.slice(0, -1) : plain);
}

function decodeInto(text, target, offset) {
  const bytes = decodeLoosely(text);
  const part = bytes.subarray(0, Math.max(0, target.length - offset));
  target.set(part, offset);
  return part.length;
}

// ---- URLs

let serialization;

function fillUrl(href, base, components) {
  const parsed = host.parseUrl(href, base, components);
  if (parsed === undefined) return 2;
  serialization = parsed;
  return parsed === href ? 0 : 1;
}

// What `op_url_reparse` is asked to set, by number.
const URL_SETTERS = ["hash", "host", "hostname", "password", "pathname", "port", "protocol", "search", "username"];

function setUrl(href, setter, value, components) {
  const parsed = host.setUrl(href, URL_SETTERS[setter], value, components);
  if (parsed === undefined) return 2;
  serialization = parsed;
  return parsed === href ? 0 : 1;
}

// Text of application/x-www-form-urlencoded, where `+` is a space and mistakes stay as they are.
function formText(text) {
  const spaced = text.replaceAll("+", " ");
  return spaced.includes("%") ? decodeText(percent.decode(spaced), false) : spaced;
}

function parseForm(text, bytes) {
  const source = bytes === undefined ? text : decodeText(bytes, false);
  const pairs = [];
  for (const part of source.split("&")) {
    if (part === "") continue;
    const equals = part.indexOf("=");
    pairs.push(equals < 0 ? [formText(part), ""] : [formText(part.slice(0, equals)), formText(part.slice(equals + 1))]);
  }
  return pairs;
}

const formEscape = (text) =>
  encodeURIComponent(text.toWellFormed())
    .replace(/[!'()~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`)
    .replaceAll("%20", "+");

const formOf = (pairs) => pairs.map(([name, value]) => `${formEscape(name)}=${formEscape(value)}`).join("&");

// ---- Blobs: parts are byte arrays, by number; a part lives as long as the blobs that are made of it.

class Part {
  constructor(bytes) {
    this.bytes = bytes;
  }
}

const objectUrls = new Map();

function createObjectUrl(mediaType, parts) {
  const url = `blob:nodedata:${globalThis.crypto.randomUUID()}`;
  objectUrls.set(url, { mediaType, parts: parts.map((uuid) => ({ uuid, size: uuid.bytes.length })) });
  return url;
}

// ---- Node

// The text of a range of bytes; the encodings are utf8, latin1, ascii and utf16le.
function slice(bytes, start, end, encoding) {
  const part = toBytes(bytes).subarray(start, end);
  if (encoding === 1) return host.decodeLatin1(part, 0xff);
  if (encoding === 2) return host.decodeLatin1(part, 0x7f);
  return encoding === 3 ? host.decodeUtf16(part) : host.decodeText(part, false);
}

// The variables that a `.env` file sets.
function parseEnv(text) {
  const LINE = /^\s*(?:export\s+)?([\w.-]+)\s*=[^\S\n]*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|`([^`]*)`|([^#\n]*))/gm;
  const found = {};
  for (const [, name, quoted, single, backticked, bare] of text.matchAll(LINE)) {
    found[name] = quoted?.replaceAll("\\n", "\n") ?? single ?? backticked ?? bare.trim();
  }
  return found;
}

const URL_BASE64 = { alphabet: "base64url", omitPadding: true };

// Seconds and nanoseconds, as two numbers of 32 bits.
function writeClock(target, milliseconds) {
  const numbers = new Uint32Array(target.buffer);
  numbers[0] = Math.floor(milliseconds / 1e3);
  numbers[1] = Math.floor((milliseconds % 1e3) * 1e6);
}

// As on Linux.
const FS_CONSTANTS = {
  UV_FS_SYMLINK_DIR: 1, UV_FS_SYMLINK_JUNCTION: 2, O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2, UV_DIRENT_UNKNOWN: 0,
  UV_DIRENT_FILE: 1, UV_DIRENT_DIR: 2, UV_DIRENT_LINK: 3, UV_DIRENT_FIFO: 4, UV_DIRENT_SOCKET: 5, UV_DIRENT_CHAR: 6,
  UV_DIRENT_BLOCK: 7, S_IFMT: 61440, S_IFREG: 32768, S_IFDIR: 16384, S_IFCHR: 8192, S_IFBLK: 24576, S_IFIFO: 4096,
  S_IFLNK: 40960, S_IFSOCK: 49152, O_CREAT: 64, O_EXCL: 128, UV_FS_O_FILEMAP: 0, O_NOCTTY: 256, O_TRUNC: 512,
  O_APPEND: 1024, O_DIRECTORY: 65536, O_NOATIME: 262144, O_NOFOLLOW: 131072, O_SYNC: 1052672, O_DSYNC: 4096,
  O_DIRECT: 16384, O_NONBLOCK: 2048, S_IRWXU: 448, S_IRUSR: 256, S_IWUSR: 128, S_IXUSR: 64, S_IRWXG: 56, S_IRGRP: 32,
  S_IWGRP: 16, S_IXGRP: 8, S_IRWXO: 7, S_IROTH: 4, S_IWOTH: 2, S_IXOTH: 1, F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1,
  UV_FS_COPYFILE_EXCL: 1, COPYFILE_EXCL: 1, UV_FS_COPYFILE_FICLONE: 2, COPYFILE_FICLONE: 2,
  UV_FS_COPYFILE_FICLONE_FORCE: 4, COPYFILE_FICLONE_FORCE: 4,
};

let lastAsyncId = 1; // of the program itself

const ops = {
  op_now: (target) => writeClock(target, host.now()),
  op_time_origin: (target) => writeClock(target, Date.now() - host.now()),
  op_encoding_normalize_label: normalizeLabel,
  op_encoding_decode_utf8: (data, ignoreMark) => decode(data, false, ignoreMark),
  op_encoding_decode_utf8_ascii_only: () => null,
  op_encoding_decode_single: (data, label, fatal, ignoreBOM) =>
    new Decoder(label, fatal, ignoreBOM).decode(data, false),
  op_encoding_new_decoder: (label, fatal, ignoreBOM) => new Decoder(label, fatal, ignoreBOM),
  op_encoding_decode: (data, decoder, stream) => decoder.decode(data, stream),
  op_encoding_encode_into: encodeInto,
  op_encoding_encode_into_fallback: encodeInto,
  op_base64_atob: atob,
  op_base64_btoa: btoa,
  op_base64_decode: (text) => Uint8Array.fromBase64(text),
  op_base64url_decode: (text) => decodeLoosely(text),
  op_base64_encode_from_buffer: (data, offset, length) => range(data, offset, length).toBase64(),
  op_base64url_encode_from_buffer: (data, offset, length) => range(data, offset, length).toBase64(URL_BASE64),
  op_base64_decode_into: decodeInto,
  op_base64url_decode_into: decodeInto,
  op_url_parse: (href, components) => fillUrl(href, undefined, components),
  op_url_parse_with_base: (href, base, components) => fillUrl(href, base, components),
  op_url_get_serialization: () => serialization,
  op_url_reparse: setUrl,
  op_url_parse_search_params: parseForm,
  op_url_stringify_search_params: formOf,
  op_blob_create_part: (bytes) => new Part(toBytes(bytes).slice()),
  op_blob_slice_part: (id, { start, len }) => new Part(id.bytes.subarray(start, start + len)),
  op_blob_read_part: async (id) => id.bytes.slice(),
  op_blob_clone_part: (id) => id,
  op_blob_remove_part: () => {},
  op_blob_create_object_url: createObjectUrl,
  op_blob_from_object_url: (url) => objectUrls.get(url) ?? null,
  op_blob_revoke_object_url: (url) => void objectUrls.delete(url),
  op_node_new_async_id: () => ++lastAsyncId,
  op_node_guess_handle_type: (fd) => (fd >= 0 && fd <= 2 ? 4 : 5), // a pipe, or unknown
  op_node_parse_env: parseEnv,
  op_node_view_has_buffer: () => true,
  op_node_build_os: () => "linux",
  op_node_call_is_from_dependency: () => false,
  op_node_encoding_slice: slice,
  op_node_buffer_compare: (a, b) => host.compareBytes(a, b),
  op_node_buffer_compare_offset: (source, target, sourceStart, targetStart, sourceEnd, targetEnd) =>
    host.compareBytes(toBytes(source).subarray(sourceStart, sourceEnd), toBytes(target).subarray(targetStart, targetEnd)),
  op_mark_as_untransferable: () => {},
  op_is_utf8: (bytes) => host.decodeText(toBytes(bytes), true) !== undefined,
  op_is_ascii: (bytes) => toBytes(bytes).every((byte) => byte < 0x80),
  op_transcode: (bytes, from) => kit.requireBuiltin("buffer").Buffer.from(bytes).toString(from),
  op_node_idna_domain_to_ascii: (text) => host.domainToAscii(text),
  op_node_idna_to_ascii: (text) => host.domainToAscii(text),
  op_node_idna_domain_to_unicode: (text) => host.domainToUnicode(text),
  op_node_get_own_non_index_properties: (object, filter) =>
    Reflect.ownKeys(object).filter((key) => !/^(?:0|[1-9]\d*)$/.test(String(key)) && (filter === 0 || Object.prototype.propertyIsEnumerable.call(object, key))),
  op_get_env_no_permission_check: () => undefined,
};

ops.op_node_fs_constants = () => FS_CONSTANTS;

module.exports = {
  ops,
  classOf,
  encode: encodeText,
  decode,
  byteLength: (text) => host.byteLength(text),
  isModuleNamespace: (value) => host.isModuleNamespace?.(value) ?? false,
  context: () => host.context(),
  setContext: (context) => host.setContext(context),
  // Nothing waits for a timer of the platform's own.
  startTimer: (task, delay) => {
    const id = host.startTimer(task, delay);
    host.referTo(id, false);
    return id;
  },
  stopTimer: (id) => host.stopTimer(id),
};
