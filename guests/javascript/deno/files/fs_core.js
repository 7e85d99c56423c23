// What node:fs is made of: calls of the system, the errors they give, and arguments as Node takes them.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
const codes = require("deno/deno_node/internal/errors.ts");
const { fs: constants } = require("deno/deno_node/internal_binding/constants.ts");

const { files } = host;

// Numbers as on Linux, and Node's texts.
const ERRORS = {
  EACCES: [13, "permission denied"], EBADF: [9, "bad file descriptor"], EBUSY: [16, "resource busy or locked"],
  EDQUOT: [122, "disk quota exceeded"], EEXIST: [17, "file already exists"], EFBIG: [27, "file too large"],
  EINVAL: [22, "invalid argument"], EIO: [5, "i/o error"], EISDIR: [21, "illegal operation on a directory"],
  ELOOP: [40, "too many symbolic links encountered"], EMFILE: [24, "too many open files"],
  ENAMETOOLONG: [36, "name too long"], ENOENT: [2, "no such file or directory"],
  ENOSPC: [28, "no space left on device"], ENOTDIR: [20, "not a directory"], ENOTEMPTY: [39, "directory not empty"],
  ENOTSUP: [95, "operation not supported"], ENOSYS: [38, "function not implemented"], ENOMEM: [12, "not enough memory"],
  EAGAIN: [11, "resource temporarily unavailable"], ESPIPE: [29, "invalid seek"], EMLINK: [31, "too many links"],
  EINTR: [4, "interrupted system call"], EILSEQ: [84, "illegal byte sequence"], EPERM: [1, "operation not permitted"],
  EROFS: [30, "read-only file system"], EXDEV: [18, "cross-device link not permitted"],
};

// Folders that are looked at to tell which were granted, and how many of those are named.
const LOOKED_AT = 100;
const NAMED = 8;

// The granted folders, each by the first of its names. Folders that lead to them and to nothing else have no device.
function grantedFolders() {
  const home = host.workingDirectory();
  const identity = (path) => {
    const found = files.status(path, true);
    return typeof found === "number" ? [0, 0] : [found[2], found[3]];
  };
  const folders = [home];
  const known = new Set([identity(home).join()]);
  const unseen = ["/"];
  for (let looked = 0; looked < LOOKED_AT && unseen.length > 0 && folders.length <= NAMED; looked++) {
    const folder = unseen.shift();
    const flat = host.list(folder);
    for (let at = 0; at < flat.length; at += 2) {
      const path = `${folder === "/" ? "" : folder}/${flat[at]}`;
      if (flat[at].startsWith(".") || flat[at + 1] !== "directory") continue;
      const [device, inode] = identity(path);
      if (device === 0) unseen.push(path);
      else if (!known.has(`${device},${inode}`)) {
        known.add(`${device},${inode}`);
        folders.push(path);
      }
    }
  }
  return folders.length > NAMED ? [...folders.slice(0, NAMED), "…"] : folders;
}

// What there is instead of a path that the session was not granted.
function granted(path) {
  const home = host.workingDirectory();
  const isOutside = typeof path === "string" && path.startsWith("/") && path !== home && !path.startsWith(`${home}/`);
  return isOutside ? ` (the session's folders are ${grantedFolders().join(", ")})` : "";
}

function failure(code, syscall, path, dest) {
  const [errno, text] = ERRORS[code] ?? ERRORS.EIO;
  const where = (path === undefined ? "" : ` '${path}'`) + (dest === undefined ? "" : ` -> '${dest}'`);
  const error = new Error(`${code}: ${text}, ${syscall}${where}${code === "EACCES" ? granted(path) || granted(dest) : ""}`);
  Object.assign(error, { errno: -errno, code, syscall });
  if (path !== undefined) error.path = path;
  if (dest !== undefined) error.dest = dest;
  return error;
}

// The result of a call, unless it is the number of an error.
function check(result, syscall, path, dest) {
  if (typeof result === "number" && result < 0) throw failure(files.errorName(-result), syscall, path, dest);
  return result;
}

// A path as text, of text, a buffer or a file URL.
function pathOf(path, name = "path") {
  let text = path;
  if (path instanceof Uint8Array) text = kit.decode(path);
  else if (path?.href !== undefined && path.protocol !== undefined) text = kit.requireBuiltin("url").fileURLToPath(path);
  if (typeof text !== "string") throw new codes.ERR_INVALID_ARG_TYPE(name, ["string", "Buffer", "URL"], path);
  if (text.includes("\0")) throw new codes.ERR_INVALID_ARG_VALUE(name, path, "must be a string, Uint8Array, or URL without null bytes");
  return text;
}

const FLAGS = {
  r: 0, rs: 0, "r+": 2, "rs+": 2, w: 0o1101, wx: 0o1301, "w+": 0o1102, "wx+": 0o1302,
  a: 0o2101, ax: 0o2301, "a+": 0o2102, "ax+": 0o2302,
};

function flagsOf(flags) {
  if (typeof flags === "number") return flags;
  const number = Object.hasOwn(FLAGS, flags) ? FLAGS[flags] : undefined;
  if (number === undefined) throw new codes.ERR_INVALID_ARG_VALUE("flags", flags);
  return number;
}

const UMASK = 0o022;

// Descriptors that were opened here: others are not for cells to close.
const open = new Set();

// The streams of the session, by the names that Linux has for them.
const STANDARD = { "/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2, "/dev/fd/0": 0, "/dev/fd/1": 1, "/dev/fd/2": 2 };
const isStandard = (fd) => fd === 0 || fd === 1 || fd === 2;
// As of a pipe: no size, and no place in a folder.
const STANDARD_STATUS = [0o010600, 0, 0, 0, 1, 0, 0, 0];

function openSync(path, flags = "r", mode = 0o666) {
  const text = pathOf(path);
  if (Object.hasOwn(STANDARD, text)) return STANDARD[text];
  const number = flagsOf(flags);
  const isNew = (number & constants.O_CREAT) !== 0 && mode !== undefined && typeof files.status(text, true) === "number";
  const fd = check(text === "" ? -44 : files.open(text, number, mode), "open", text);
  open.add(fd);
  if (isNew && modeOf(mode) !== 0o666) keepMode(new Stats(files.status(fd)), modeOf(mode) & ~UMASK);
  return fd;
}

function closeSync(fd) {
  if (isStandard(fd)) return; // cells share them
  need(fd, "close");
  open.delete(fd);
  check(files.close(fd), "close");
}

function need(fd, syscall) {
  if (typeof fd !== "number") throw new codes.ERR_INVALID_ARG_TYPE("fd", "number", fd);
  if (!open.has(fd)) throw failure("EBADF", syscall);
}

// ---- Stats

// The permission bits that cells have set, by device and inode, of no more files than this.
const modes = new Map();
const MODES_MAX = 10000;
const PERMISSIONS = 0o7777;

// A mode, as a number or as text in base eight.
function modeOf(mode, name = "mode") {
  const number = typeof mode === "string" && /^[0-7]+$/.test(mode) ? parseInt(mode, 8) : mode;
  if (typeof number !== "number") throw new codes.ERR_INVALID_ARG_TYPE(name, "number", mode);
  return number & PERMISSIONS;
}

// Keeps the permission bits of a file, of which the host keeps none.
function keepMode({ dev, ino }, mode) {
  modes.delete(`${dev}:${ino}`);
  if (modes.size >= MODES_MAX) modes.delete(modes.keys().next().value);
  modes.set(`${dev}:${ino}`, modeOf(mode));
}

// What may be met in a folder: a session is shown no sockets and devices there.
class Entry {
  isFIFO() {
    return false;
  }
  isSocket() {
    return false;
  }
  isBlockDevice() {
    return false;
  }
  isCharacterDevice() {
    return false;
  }
}

class Stats extends Entry {
  isFIFO() {
    return (Number(this.mode) & constants.S_IFMT) === constants.S_IFIFO;
  }
  constructor([kept, size, dev, ino, nlink, atimeMs, mtimeMs, ctimeMs]) {
    super();
    const set = modes.get(`${dev}:${ino}`);
    const mode = set === undefined ? kept : (kept & ~PERMISSIONS) | set;
    Object.assign(this, {
      dev, mode, nlink, uid: 1000, gid: 1000, rdev: 0, blksize: 4096, ino, size, blocks: Math.ceil(size / 512),
      atimeMs, mtimeMs, ctimeMs, birthtimeMs: ctimeMs,
    });
  }
  isFile() {
    return (Number(this.mode) & constants.S_IFMT) === constants.S_IFREG;
  }
  isDirectory() {
    return (Number(this.mode) & constants.S_IFMT) === constants.S_IFDIR;
  }
  isSymbolicLink() {
    return (Number(this.mode) & constants.S_IFMT) === constants.S_IFLNK;
  }
}

// The times as dates, which are made when they are read.
for (const name of ["atime", "mtime", "ctime", "birthtime"]) {
  Object.defineProperty(Stats.prototype, name, {
    get() {
      const value = new Date(Math.round(Number(this[`${name}Ms`])));
      Object.defineProperty(this, name, { value, writable: true, enumerable: false, configurable: true });
      return value;
    },
    set(value) {
      Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true });
    },
    enumerable: true,
    configurable: true,
  });
}

// The same with BigInts, and times in nanoseconds besides.
class BigIntStats extends Stats {
  constructor(values) {
    super(values);
    for (const key of Object.keys(this)) {
      const value = this[key];
      if (key.endsWith("Ms")) this[`${key.slice(0, -2)}Ns`] = BigInt(Math.round(value * 1e3)) * 1000n;
      if (typeof value === "number") this[key] = BigInt(Math.floor(value));
    }
  }
}

const status = (path, follows, syscall, Class = Stats) => {
  const text = pathOf(path);
  if (Object.hasOwn(STANDARD, text)) return new Class(STANDARD_STATUS);
  const found = text === "" ? -44 : files.status(text, follows);
  return found === -44 ? undefined : new Class(check(found, syscall, text));
};

const missing = (path, syscall) => failure("ENOENT", syscall, pathOf(path));

function stat(syscall, follows) {
  return (path, options) => {
    const found = status(path, follows, syscall, options?.bigint ? BigIntStats : Stats);
    if (found !== undefined) return found;
    if (options?.throwIfNoEntry === false) return undefined;
    throw missing(path, syscall);
  };
}

const TYPE = Symbol("type");
const TYPES = { file: 1, directory: 2, symlink: 3 };

class Dirent extends Entry {
  constructor(name, parentPath, type) {
    super();
    this.name = name;
    this.parentPath = parentPath;
    this.path = parentPath;
    this[TYPE] = TYPES[type] ?? 0;
  }
  isFile() {
    return this[TYPE] === TYPES.file;
  }
  isDirectory() {
    return this[TYPE] === TYPES.directory;
  }
  isSymbolicLink() {
    return this[TYPE] === TYPES.symlink;
  }
}

// ---- Options

const encodingOf = (options) => (typeof options === "string" ? options : options?.encoding) ?? undefined;

const textOrBytes = (bytes, encoding) => {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (encoding === undefined || encoding === "buffer") return buffer;
  if (!Buffer.isEncoding(encoding)) throw new codes.ERR_INVALID_ARG_VALUE("encoding", encoding, "is invalid encoding");
  return buffer.toString(encoding);
};

const bytesOf = (data, encoding) => {
  if (typeof data === "string") return Buffer.from(data, encoding);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  throw new codes.ERR_INVALID_ARG_TYPE("data", ["string", "Buffer", "TypedArray", "DataView"], data);
};

module.exports = {
  Buffer, Dirent, STANDARD_STATUS, Stats, bytesOf, check, closeSync, codes, constants, encodingOf, failure, files, flagsOf, isStandard, keepMode, missing,
  need, openSync, pathOf, stat, status, textOrBytes,
};
