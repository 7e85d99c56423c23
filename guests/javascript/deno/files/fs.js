// node:fs. The host answers each call at once, so the forms with callbacks and promises are the synchronous ones, later.
const core = require("deno/files/fs_core.js");
const { Dirent, STANDARD_STATUS, Stats, bytesOf, check, closeSync, codes, constants, encodingOf, failure, files, isStandard, keepMode, missing, need, openSync, pathOf, textOrBytes } = core;
const path = kit.requireBuiltin("path");

const CHUNK_BYTES = 64 * 1024;
const COPY_BYTES = 1 << 20;
const LINKS_MAX = 40;

const statSync = core.stat("stat", true);
const lstatSync = core.stat("lstat", false);
const stdin = () => kit.platform("stdin");
const fstatSync = (fd) => (isStandard(fd) ? new Stats(STANDARD_STATUS) : fstatOf(fd));
const fstatOf = (fd) => (need(fd, "fstat"), new Stats(check(files.status(fd), "fstat")));
const existsSync = (file) => {
  try {
    return core.status(file, true, "access") !== undefined;
  } catch {
    return false;
  }
};

// The bits of a mode that say what its owner may.
const OWNER_BITS = 6;

function accessSync(file, mode = constants.F_OK) {
  const found = core.status(file, true, "access");
  if (found === undefined) throw missing(file, "access");
  if ((mode & ~(found.mode >> OWNER_BITS) & 7) !== 0) throw failure("EACCES", "access", pathOf(file));
}

function chmodSync(file, mode) {
  keepMode(statSync(file), mode);
}
function lchmodSync(file, mode) {
  keepMode(lstatSync(file), mode);
}
function fchmodSync(fd, mode) {
  keepMode(fstatSync(fd), mode);
}

// ---- Reading and writing

function readSync(fd, buffer, offset, length, position) {
  if (fd !== 0) need(fd, "read");
  if (typeof offset === "object" && offset !== null) ({ offset, length, position } = offset);
  offset ??= 0;
  const view = bytesOf(buffer).subarray(offset, length === undefined ? undefined : offset + length);
  return fd === 0 ? stdin().readSync(view) : check(files.read(fd, view, Number(position ?? -1)), "read");
}

// What is written to the streams of the session is output of the cell.
function writeStandard(fd, bytes) {
  host.write(fd === 2 ? 1 : 0, bytes);
  return bytes.length;
}

function writeSync(fd, data, ...rest) {
  const isOutput = fd === 1 || fd === 2;
  if (!isOutput) need(fd, "write");
  let [offset, length, position] = typeof data === "string" ? [0, undefined, rest[0]] : rest;
  if (typeof offset === "object" && offset !== null) ({ offset, length, position } = offset);
  const bytes = bytesOf(data, typeof data === "string" ? rest[1] : undefined);
  offset ??= 0;
  const view = bytes.subarray(offset, length === undefined ? undefined : offset + length);
  return isOutput ? writeStandard(fd, view) : check(files.write(fd, view, Number(position ?? -1)), "write");
}

function writeWhole(fd, bytes) {
  if (fd === 1 || fd === 2) return void writeStandard(fd, bytes);
  for (let done = 0; done < bytes.length;) done += check(files.write(fd, bytes.subarray(done), -1), "write");
}

// Does `work` with a file that is open meanwhile; a number is a file that is open already.
function withFile(file, flags, mode, work) {
  if (typeof file === "number") return work(file);
  const fd = openSync(file, flags, mode);
  try {
    return work(fd);
  } finally {
    closeSync(fd);
  }
}

// One more byte than the file has, so that the end shows; what grows meanwhile gets more room.
function readWhole(fd) {
  if (fd === 0) return stdin().readWhole();
  const { size } = fstatSync(fd);
  let bytes = new Uint8Array(size > 0 ? size + 1 : CHUNK_BYTES);
  for (let total = 0; ;) {
    if (total === bytes.length) {
      const larger = new Uint8Array(total * 2);
      larger.set(bytes);
      bytes = larger;
    }
    const read = check(files.read(fd, bytes.subarray(total), -1), "read");
    if (read === 0) return bytes.subarray(0, total);
    total += read;
  }
}

const readFileSync = (file, options) => {
  if (typeof file !== "number" && core.status(file, true, "open")?.isDirectory()) throw failure("EISDIR", "read");
  return textOrBytes(withFile(file, options?.flag ?? "r", 0, readWhole), encodingOf(options));
};
const writer = (flag) => (file, data, options) => {
  const bytes = bytesOf(data, encodingOf(options));
  return withFile(file, options?.flag ?? flag, options?.mode, (fd) => writeWhole(fd, bytes));
};
const writeFileSync = writer("w");
const appendFileSync = writer("a");

// ---- Folders

function list(folder) {
  const flat = host.list(pathOf(folder));
  const entries = [];
  for (let i = 0; i < flat.length; i += 2) {
    if (flat[i] !== "." && flat[i] !== "..") entries.push(new Dirent(flat[i], pathOf(folder), flat[i + 1]));
  }
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function listed(folder) {
  const found = core.status(folder, true, "scandir");
  if (found === undefined) throw missing(folder, "scandir");
  if (!found.isDirectory()) throw failure("ENOTDIR", "scandir", pathOf(folder));
  return list(folder);
}

function readdirSync(folder, options) {
  const entries = listed(folder);
  if (options?.recursive) {
    for (let i = 0; i < entries.length; i++) {
      if (entries[i].isDirectory()) entries.push(...list(path.join(entries[i].parentPath, entries[i].name)));
    }
  }
  if (options?.withFileTypes) return entries;
  const root = pathOf(folder);
  return entries.map((entry) => {
    const name = path.relative(root, path.join(entry.parentPath, entry.name));
    return encodingOf(options) === "buffer" ? core.Buffer.from(name) : name;
  });
}

function mkdirSync(folder, options) {
  const text = pathOf(folder);
  if (!options?.recursive) return void check(files.makeFolder(text), "mkdir", text);
  let first;
  let at = path.isAbsolute(text) ? "/" : "";
  for (const name of text.split("/")) {
    at = path.join(at, name);
    const found = core.status(at, true, "mkdir");
    if (found?.isDirectory()) continue;
    if (found !== undefined) throw failure(at === path.normalize(text) ? "EEXIST" : "ENOTDIR", "mkdir", text);
    check(files.makeFolder(at), "mkdir", text);
    first ??= at;
  }
  return first;
}

const onePath = (name, syscall) => (file) => {
  const text = pathOf(file);
  check(files[name](text), syscall, text);
};
const twoPaths = (name, syscall) => (from, to) => {
  const [a, b] = [pathOf(from), pathOf(to)];
  check(files[name](a, b), syscall, a, b);
};
// A link holds no absolute path: one that is given as such is written as the way from the link's folder.
const symlinkSync = (target, place) => {
  const [to, at] = [pathOf(target), pathOf(place)];
  const path = kit.requireBuiltin("path");
  const way = to.startsWith("/") ? path.relative(path.dirname(path.resolve(at)), to) || "." : to;
  check(files.symlink(way, at), "symlink", to, at);
};
const rmdirOne = onePath("removeFolder", "rmdir");
const unlinkSync = onePath("removeFile", "unlink");
const rmdirSync = (folder, options) => (options?.recursive ? rmSync(folder, { recursive: true, force: true }) : rmdirOne(folder));

function rmSync(file, options) {
  const found = core.status(file, false, "lstat");
  if (found === undefined) {
    if (options?.force) return;
    throw missing(file, "lstat");
  }
  if (!found.isDirectory()) return unlinkSync(file);
  if (!options?.recursive) {
    const error = new Error(`Path is a directory: rm returned EISDIR (is a directory) ${pathOf(file)}`);
    throw Object.assign(error, { name: "SystemError", code: "ERR_FS_EISDIR", errno: 21, syscall: "rm", path: pathOf(file) });
  }
  for (const entry of list(file)) rmSync(path.join(pathOf(file), entry.name), options);
  return rmdirOne(file);
}

function copyOpen(source, target, flags) {
  const [from, to] = [fstatSync(source), core.status(target, true, "copyfile")];
  if (from.isDirectory()) throw failure("EISDIR", "copyfile");
  if (flags === "w" && to?.dev === from.dev && to.ino === from.ino) return;
  withFile(target, flags, 0o666, (fd) => {
    const chunk = new Uint8Array(COPY_BYTES);
    for (let read; (read = check(files.read(source, chunk, -1), "read")) > 0;) writeWhole(fd, chunk.subarray(0, read));
  });
}

function copyFileSync(from, to, mode = 0) {
  const [source, target] = [pathOf(from, "src"), pathOf(to, "dest")];
  try {
    withFile(source, "r", 0, (fd) => copyOpen(fd, target, mode & constants.COPYFILE_EXCL ? "wx" : "w"));
  } catch (error) {
    throw error.syscall === undefined ? error : failure(error.code, "copyfile", source, target);
  }
}

function cpSync(from, to, options = {}) {
  const [source, target] = [pathOf(from), pathOf(to)];
  const found = core.status(source, options.dereference === true, "cp");
  if (found === undefined) throw missing(source, "cp");
  if (options.filter !== undefined && !options.filter(source, target)) return;
  if (found.isDirectory()) {
    if (!options.recursive) {
      throw Object.assign(new Error(`Recursive option not enabled, cannot copy a directory: cp returned EISDIR (${source} is a directory (not copied)) ${source}`), { code: "ERR_FS_EISDIR" });
    }
    if (path.resolve(target).startsWith(`${path.resolve(source)}/`)) throw failure("EINVAL", "cp", source, target);
    mkdirSync(target, { recursive: true });
    for (const { name } of list(source)) cpSync(path.join(source, name), path.join(target, name), options);
    return;
  }
  if (options.force === false && existsSync(target)) {
    if (options.errorOnExist) throw failure("EEXIST", "cp", source, target);
    return;
  }
  mkdirSync(path.dirname(target), { recursive: true });
  if (found.isSymbolicLink()) files.symlink(readlinkSync(source), target);
  else copyFileSync(source, target);
}

function mkdtempSync(prefix) {
  for (;;) {
    const folder = pathOf(prefix, "prefix") + Math.random().toString(36).slice(2, 8).padEnd(6, "0");
    if (existsSync(folder)) continue;
    check(files.makeFolder(folder), "mkdtemp", `${prefix}XXXXXX`);
    return folder;
  }
}

// ---- Links and times

function readlinkSync(file) {
  const text = pathOf(file);
  return check(files.readLink(text), "readlink", text);
}

function realpathSync(file) {
  const text = pathOf(file);
  let rest = path.resolve(text).split("/").filter(Boolean);
  let at = "/";
  for (let links = 0; rest.length > 0;) {
    const next = path.join(at, rest.shift());
    const found = core.status(next, false, "realpath");
    if (found === undefined) throw missing(text, "realpath");
    if (found.isSymbolicLink()) {
      if (++links > LINKS_MAX) throw failure("ELOOP", "realpath", text);
      const target = path.resolve(at, readlinkSync(next));
      rest = [...target.split("/").filter(Boolean), ...rest];
      at = "/";
    } else {
      at = next;
    }
  }
  return at;
}

const toMilliseconds = (time) => (time instanceof Date ? time.getTime() : Number(time) * 1e3);
const timesSetter = (follows, syscall) => (file, accessed, modified) => {
  const text = pathOf(file);
  check(files.setTimes(text, toMilliseconds(accessed), toMilliseconds(modified), follows), syscall, text);
};
const ftruncateSync = (fd, length = 0) => (need(fd, "ftruncate"), void check(files.truncate(fd, length), "ftruncate"));
const truncateSync = (file, length = 0) => withFile(file, "r+", 0, (fd) => ftruncateSync(fd, length));
const fsyncSync = (fd) => (need(fd, "fsync"), void check(files.sync(fd), "fsync"));
// There is one user, and permissions are the host's affair.
const nothing = (file) => void accessSync(file);
const nothingOf = (syscall) => (fd) => need(fd, syscall);
// Several buffers, one after the other, until one cannot be filled or emptied.
const vectored = (one) => (fd, buffers, position) => {
  let total = 0;
  for (const buffer of buffers) {
    const done = one(fd, buffer, 0, buffer.byteLength, typeof position === "number" ? position + total : undefined);
    total += done;
    if (done < buffer.byteLength) break;
  }
  return total;
};

// ---- Patterns

function globSync(patterns, options = {}) {
  const { alternatives, found, matchesGlob } = require("deno/files/globs.js");
  const cwd = pathOf(options.cwd ?? host.workingDirectory(), "cwd");
  const { exclude } = options;
  const isOut = (name, entry) => (typeof exclude === "function" ? exclude(options.withFileTypes ? entry : name) : exclude?.some((one) => matchesGlob(name, one)));
  const entryAt = (file) => {
    const stats = core.status(file, false, "lstat");
    return stats && new Dirent(path.basename(file), path.dirname(file), stats.isDirectory() ? "directory" : stats.isSymbolicLink() ? "symlink" : "file");
  };
  const all = new Map();
  for (const pattern of [patterns].flat()) {
    if (typeof pattern !== "string") throw new codes.ERR_INVALID_ARG_TYPE("patterns", ["string", "string[]"], pattern);
    for (const one of alternatives(pattern)) {
      for (const [name, entry] of found(one, cwd, list, entryAt)) if (!isOut(name, entry)) all.set(name, entry);
    }
  }
  return [...(options.withFileTypes ? all.values() : all.keys())];
}

class Dir {
  #entries;
  constructor(folder) {
    this.path = pathOf(folder);
    this.#entries = listed(folder);
  }
  readSync() {
    return this.#entries.shift() ?? null;
  }
  async read() {
    return this.readSync();
  }
  closeSync() {}
  async close() {}
  async *[Symbol.asyncIterator]() {
    for (let entry = this.readSync(); entry !== null; entry = this.readSync()) yield entry;
  }
}

const sync = {
  accessSync, appendFileSync, chmodSync, chownSync: nothing, closeSync, copyFileSync, cpSync, fchmodSync,
  fchownSync: nothingOf("fchown"), fdatasyncSync: fsyncSync,
  fstatSync, fsyncSync, ftruncateSync, globSync, linkSync: twoPaths("link", "link"), lchmodSync, lchownSync: nothing, lstatSync,
  lutimesSync: timesSetter(false, "lutime"), mkdirSync, mkdtempSync, openSync, opendirSync: (folder) => new Dir(folder), readFileSync,
  readSync, readvSync: vectored(readSync), readdirSync, readlinkSync, realpathSync, renameSync: twoPaths("rename", "rename"), rmSync, rmdirSync, statSync,
  symlinkSync, truncateSync, unlinkSync, utimesSync: timesSetter(true, "utime"), writeFileSync, writeSync,
  writevSync: vectored(writeSync),
};

module.exports = { ...sync, Dir, Dirent, Stats, codes, constants, existsSync, sync };
