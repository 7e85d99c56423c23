// node:sqlite: databases in files of the session and in memory.
const { Buffer } = require("deno/deno_node/internal/buffer.js");
// The numbers of sessions, of which there are none.
const constants = Object.freeze({
  SQLITE_CHANGESET_OMIT: 0, SQLITE_CHANGESET_REPLACE: 1, SQLITE_CHANGESET_ABORT: 2, SQLITE_CHANGESET_DATA: 1, SQLITE_CHANGESET_NOTFOUND: 2,
  SQLITE_CHANGESET_CONFLICT: 3, SQLITE_CHANGESET_CONSTRAINT: 4, SQLITE_CHANGESET_FOREIGN_KEY: 5,
});

const errors = () => kit.platform("codes");
const invalidType = (name, type, value) => {
  throw new (errors().ERR_INVALID_ARG_TYPE)(name, type, value);
};
const coded = (code, message, Class = Error) => Object.assign(new Class(message), { code });

// Values that an option may have.
function option(options, name, type, otherwise) {
  const value = options?.[name];
  if (value === undefined) return otherwise;
  if (typeof value === type) return value;
  throw coded("ERR_INVALID_ARG_TYPE", `The "options.${name}" argument must be ${type === "boolean" ? "a boolean" : "an integer"}.`, TypeError);
}

function pathOf(path) {
  if (typeof path === "string" && !path.includes("\0")) return path;
  if (path instanceof URL) {
    if (path.protocol !== "file:") throw coded("ERR_INVALID_URL_SCHEME", "The URL must be of scheme file:", TypeError);
    return path.href;
  }
  if (path instanceof Uint8Array && !path.includes(0)) return Buffer.from(path).toString();
  throw coded("ERR_INVALID_ARG_TYPE", 'The "path" argument must be a string, Uint8Array, or URL without null bytes.', TypeError);
}

const SECRET = Symbol("secret");
// The host's own of a database, for statements.
let handleOf;

class StatementSync {
  #database;
  #handle;
  #columns;
  #parameters;
  #names;
  #bigInts = false;
  #arrays = false;
  #isBare = true;
  #isLenient = false;

  constructor(secret, database, handle) {
    if (secret !== SECRET) throw coded("ERR_ILLEGAL_CONSTRUCTOR", "Illegal constructor");
    this.#database = database;
    this.#handle = handle;
    this.#parameters = host.sqliteParameters(handle);
    this.#names = new Map();
    this.#parameters.forEach((name, index) => {
      if (name === null) return;
      this.#names.set(name, index + 1);
      const bare = name.slice(1);
      if (!this.#names.has(bare)) this.#names.set(bare, index + 1);
    });
  }

  #ready() {
    if (handleOf(this.#database) === undefined) throw coded("ERR_INVALID_STATE", "statement has been finalized");
  }

  #set(index, value) {
    if (typeof value === "bigint" && BigInt.asIntN(64, value) !== value) throw coded("ERR_INVALID_ARG_VALUE", "BigInt value is too large to bind.", TypeError);
    if (!host.sqliteBind(this.#handle, index, value)) {
      throw coded("ERR_INVALID_ARG_TYPE", `Provided value cannot be bound to SQLite parameter ${index}.`, TypeError);
    }
  }

  // Begins anew with what is given: an object of named values, and values in order.
  #bind(given) {
    this.#ready();
    host.sqliteReset(this.#handle, true);
    let [first, ...rest] = given;
    const isNamed = typeof first === "object" && first !== null && !ArrayBuffer.isView(first) && !(first instanceof ArrayBuffer);
    if (!isNamed) rest = given;
    else {
      for (const [name, value] of Object.entries(first)) {
        const isWhole = this.#parameters.includes(name);
        const index = isWhole || this.#isBare ? this.#names.get(name) : undefined;
        if (index === undefined) {
          if (this.#isLenient) continue;
          throw coded("ERR_INVALID_STATE", `Unknown named parameter '${name}'`);
        }
        this.#set(index, value);
      }
    }
    let index = 0;
    for (const value of rest) {
      do index++; while (isNamed && index <= this.#parameters.length && this.#parameters[index - 1] !== null && !/^\?/.test(this.#parameters[index - 1]));
      this.#set(index, value);
    }
    this.#columns = undefined;
  }

  #row() {
    const values = host.sqliteStep(this.#handle, this.#bigInts);
    if (values === undefined || this.#arrays) return values;
    this.#columns ??= host.sqliteColumns(this.#handle);
    const row = Object.create(null);
    for (let i = 0; i < values.length; i++) row[this.#columns[i * 5]] = values[i];
    return row;
  }

  all(...given) {
    this.#bind(given);
    try {
      const rows = [];
      for (let row = this.#row(); row !== undefined; row = this.#row()) rows.push(row);
      return rows;
    } finally {
      host.sqliteReset(this.#handle, false);
    }
  }
  get(...given) {
    this.#bind(given);
    try {
      return this.#row();
    } finally {
      host.sqliteReset(this.#handle, false);
    }
  }
  run(...given) {
    this.#bind(given);
    try {
      while (host.sqliteStep(this.#handle, true) !== undefined);
      const [changes, lastInsertRowid] = host.sqliteState(handleOf(this.#database), this.#bigInts);
      return { lastInsertRowid, changes };
    } finally {
      host.sqliteReset(this.#handle, false);
    }
  }
  iterate(...given) {
    this.#bind(given);
    let isOver = false;
    const end = () => {
      isOver = true;
      host.sqliteReset(this.#handle, false);
      return { done: true, value: null };
    };
    return Object.assign(Object.create(Iterator.prototype), {
      next: () => {
        if (isOver) return { done: true, value: null };
        this.#ready();
        const value = this.#row();
        return value === undefined ? end() : { done: false, value };
      },
      return: end,
    });
  }
  columns() {
    this.#ready();
    const found = host.sqliteColumns(this.#handle);
    return Array.from({ length: found.length / 5 }, (_, i) => {
      const [name, column, table, database, type] = found.slice(i * 5);
      return Object.assign(Object.create(null), { column, database, name, table, type });
    });
  }
  get sourceSQL() {
    this.#ready();
    return host.sqliteText(this.#handle, false);
  }
  get expandedSQL() {
    this.#ready();
    return host.sqliteText(this.#handle, true);
  }
  setReadBigInts(enabled) {
    if (typeof enabled !== "boolean") throw coded("ERR_INVALID_ARG_TYPE", 'The "readBigInts" argument must be a boolean.', TypeError);
    this.#bigInts = enabled;
  }
  setReturnArrays(enabled) {
    if (typeof enabled !== "boolean") throw coded("ERR_INVALID_ARG_TYPE", 'The "returnArrays" argument must be a boolean.', TypeError);
    this.#arrays = enabled;
  }
  setAllowBareNamedParameters(enabled) {
    if (typeof enabled !== "boolean") throw coded("ERR_INVALID_ARG_TYPE", 'The "allowBareNamedParameters" argument must be a boolean.', TypeError);
    this.#isBare = enabled;
  }
  setAllowUnknownNamedParameters(enabled) {
    if (typeof enabled !== "boolean") throw coded("ERR_INVALID_ARG_TYPE", 'The "enabled" argument must be a boolean.', TypeError);
    this.#isLenient = enabled;
  }
}

class DatabaseSync {
  #path;
  #options;
  #handle;
  static {
    handleOf = (database) => database.#handle;
  }

  constructor(path, options = {}) {
    this.#path = pathOf(path);
    if (typeof options !== "object" || options === null) throw coded("ERR_INVALID_ARG_TYPE", 'The "options" argument must be an object.', TypeError);
    this.#options = [
      option(options, "readOnly", "boolean", false), option(options, "enableForeignKeyConstraints", "boolean", true),
      option(options, "enableDoubleQuotedStringLiterals", "boolean", false), option(options, "timeout", "number", 0),
    ];
    if (option(options, "allowExtension", "boolean", false)) {
      throw kit.unsupported("sqlite extensions", "no machine code is loaded; SQLite has FTS5, R-trees, JSON and mathematics built in");
    }
    if (option(options, "open", "boolean", true)) this.open();
  }

  #ready() {
    if (this.#handle === undefined) throw coded("ERR_INVALID_STATE", "database is not open");
    return this.#handle;
  }

  open() {
    if (this.#handle !== undefined) throw coded("ERR_INVALID_STATE", "database is already open");
    this.#handle = host.sqliteOpen(this.#path, ...this.#options);
  }
  close() {
    if (!host.sqliteClose(this.#ready())) throw coded("ERR_INVALID_STATE", "database cannot be closed while a statement runs");
    this.#handle = undefined;
  }
  [Symbol.dispose]() {
    if (this.#handle !== undefined) this.close();
  }
  get isOpen() {
    return this.#handle !== undefined;
  }
  get isTransaction() {
    return host.sqliteState(this.#ready(), true)[2];
  }
  location(name = "main") {
    if (typeof name !== "string") throw coded("ERR_INVALID_ARG_TYPE", 'The "dbName" argument must be a string.', TypeError);
    const rows = new StatementSync(SECRET, this, host.sqlitePrepare(this.#ready(), "PRAGMA database_list")).all();
    return rows.find((row) => row.name === name)?.file || null;
  }
  exec(sql) {
    const handle = this.#ready();
    if (typeof sql !== "string") throw coded("ERR_INVALID_ARG_TYPE", 'The "sql" argument must be a string.', TypeError);
    host.sqliteExec(handle, sql);
  }
  prepare(sql) {
    const handle = this.#ready();
    if (typeof sql !== "string") throw coded("ERR_INVALID_ARG_TYPE", 'The "sql" argument must be a string.', TypeError);
    return new StatementSync(SECRET, this, host.sqlitePrepare(handle, sql));
  }
  function(name, options, run = options) {
    const handle = this.#ready();
    if (typeof name !== "string") throw coded("ERR_INVALID_ARG_TYPE", 'The "name" argument must be a string.', TypeError);
    if (typeof run !== "function") throw coded("ERR_INVALID_ARG_TYPE", 'The "function" argument must be a function.', TypeError);
    const given = run === options ? {} : options;
    const isVaried = option(given, "varargs", "boolean", false);
    host.sqliteFunction(
      handle, name, isVaried ? -1 : run.length, run, option(given, "deterministic", "boolean", false),
      option(given, "directOnly", "boolean", false), option(given, "useBigIntArguments", "boolean", false),
    );
  }
  aggregate() {
    throw kit.unsupported("DatabaseSync.aggregate", "SQL's own aggregates and window functions are there, and functions for single values (database.function)");
  }
  createSession() {
    throw kit.unsupported("DatabaseSync.createSession", "changes cannot be recorded; compare tables with EXCEPT instead");
  }
  applyChangeset() {
    this.createSession();
  }
  enableLoadExtension() {
    throw kit.unsupported("DatabaseSync.enableLoadExtension", "no machine code is loaded");
  }
  loadExtension() {
    this.enableLoadExtension();
  }
}

// Copies a database into a file, as `VACUUM INTO` does: the file is replaced.
async function backup(database, path) {
  if (!(database instanceof DatabaseSync)) invalidType("sourceDb", "object", database);
  const target = pathOf(path);
  kit.requireBuiltin("fs").rmSync(target, { force: true });
  database.prepare("VACUUM INTO ?").run(target);
  return database.prepare("PRAGMA page_count").get().page_count;
}

module.exports = { DatabaseSync, StatementSync, backup, constants };
