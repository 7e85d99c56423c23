// Connectors: sources of data that the host holds. Each is a global name, and what can be fetched from it are its members:
// `await warehouse.orders({ since: "2026-01-01" })` gives an array of objects. The host hands columns over, as buffers.
(function (host, kit) {
  "use strict";

  const { define } = kit;

  // ---- Columns into rows

  const PIECE = 4 << 20;
  const DAY = 86_400_000;
  const A_MILLISECOND = { s: 1e-3, ms: 1, us: 1e3, ns: 1e6 };
  const NOT_A_TIME = -(2n ** 63n);

  // Makes dates of times in a unit since 1970, without what is finer than a millisecond.
  function momentsIn(unit) {
    if (unit === "s") return (n) => new Date(Number(n) * 1e3);
    const per = BigInt(A_MILLISECOND[unit]);
    return (n) => new Date(Number((n - (((n % per) + per) % per)) / per));
  }

  // Buffers of kinds that have not two.
  const BUFFERS = { boolean: 1, integer: 1, float: 1, timestamp: 1, duration: 1, date: 1, category: 3, repeated: 3 };

  // Takes a table that the host lends, whole.
  function taken({ table, bytes }) {
    const all = new Uint8Array(bytes);
    for (let at = 0; at < bytes; ) {
      const piece = host.take(table, Math.min(PIECE, bytes - at));
      if (piece.length === 0) throw new Error("the rows are not there any more: fetch them again");
      all.set(piece, at);
      at += piece.length;
    }
    return all.buffer;
  }

  // What is read of a buffer, piece by piece.
  function reader(buffer) {
    let at = 0;
    const take = (length) => buffer.slice(at, (at += length));
    const head = () => {
      const [length] = new Uint32Array(take(4));
      return JSON.parse(new TextDecoder().decode(take(length)));
    };
    return { take, head };
  }

  // A whole number that a Number can hold is one.
  const plain = (number) =>
    number >= Number.MIN_SAFE_INTEGER && number <= Number.MAX_SAFE_INTEGER ? Number(number) : number;

  const ARRAYS = {
    integer: {
      true: { 8: Int8Array, 16: Int16Array, 32: Int32Array, 64: BigInt64Array },
      false: { 8: Uint8Array, 16: Uint16Array, 32: Uint32Array, 64: BigUint64Array },
    },
    float: { undefined: { 16: globalThis.Float16Array, 32: Float32Array, 64: Float64Array } },
  };

  function cut(take, sizes, made) {
    const offsets = new Int32Array(take(sizes[0]));
    const bytes = new Uint8Array(take(sizes[1]));
    return Array.from({ length: Math.max(offsets.length - 1, 0) }, (_, i) => made(bytes.subarray(offsets[i], offsets[i + 1])));
  }

  function texts(take, sizes) {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return cut(take, sizes, (bytes) => decoder.decode(bytes));
  }

  // JSON in which numbers may be what Python writes for those that are none.
  const NO_NUMBERS = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g;
  const MARK = "\u0000number";
  function parsed(text) {
    try {
      return JSON.parse(text);
    } catch (error) {
      const marked = text.replace(NO_NUMBERS, (found) => (found[0] === '"' ? found : JSON.stringify({ [MARK]: found })));
      if (marked === text) throw error;
      return JSON.parse(marked, (_, value) => (value !== null && typeof value === "object" && MARK in value ? Number(value[MARK]) : value));
    }
  }

  function valuesOf(take, kind, sizes) {
    switch (kind.kind) {
      case "boolean":
        return Array.from(new Uint8Array(take(sizes[0])), (byte) => byte !== 0);
      case "integer":
      case "float": {
        const numbers = new ARRAYS[kind.kind][kind.signed][kind.bits](take(sizes[0]));
        return kind.kind === "integer" && kind.bits === 64 ? Array.from(numbers, plain) : Array.from(numbers);
      }
      case "timestamp": {
        const moment = momentsIn(kind.unit);
        return Array.from(new BigInt64Array(take(sizes[0])), (n) => (n === NOT_A_TIME ? null : moment(n)));
      }
      case "duration": {
        const per = A_MILLISECOND[kind.unit];
        return Array.from(new BigInt64Array(take(sizes[0])), (n) => (n === NOT_A_TIME ? null : Number(n) / per));
      }
      case "date":
        // Days have no time zone: they are texts, as they are in JSON.
        return Array.from(new Int32Array(take(sizes[0])), (days) => new Date(days * DAY).toISOString().replace(/T.*/, ""));
      case "category":
      case "repeated": {
        const codes = new Int32Array(take(sizes[0]));
        const names = texts(take, sizes.slice(1));
        return Array.from(codes, (code) => (code < 0 ? null : names[code]));
      }
      case "binary":
        return cut(take, sizes, (bytes) => bytes.slice());
      case "json":
        return texts(take, sizes).map((text) => (text === "" ? null : parsed(text)));
      default:
        // Decimals keep all their digits as texts.
        return texts(take, sizes);
    }
  }

  // How many bytes the buffers of so many values have.
  const WIDTHS = { boolean: 1, timestamp: 8, duration: 8, date: 4 };
  function lengths({ nullable, type: { kind, bits, count, bytes, item, fields } }, rows) {
    const mask = nullable ? [rows] : [];
    if (kind === "null") return mask;
    if (kind === "integer" || kind === "float") return [...mask, (rows * bits) / 8];
    if (kind in WIDTHS) return [...mask, rows * WIDTHS[kind]];
    if (kind === "category" || kind === "repeated") return [...mask, 4 * rows, 4 * (count + 1), bytes];
    if (kind === "list" || kind === "map") return [...mask, 4 * (rows + 1), ...lengths(item, count)];
    if (kind === "struct") return [...mask, ...fields.flatMap((field) => lengths(field, rows))];
    return [...mask, 4 * (rows + 1), bytes];
  }

  // Buffers of other lengths would give other rows their values.
  function checked({ name, rows, nullable, type, buffers }, count) {
    if (rows !== count) throw new RangeError(`column '${name}' came with ${rows} rows, where the table has ${count}`);
    const wanted = lengths({ nullable, type }, rows);
    if (`${wanted}` !== `${buffers}`) {
      throw new RangeError(`column '${name}' came in buffers of [${buffers}] bytes, where its ${rows} rows need [${wanted}]`);
    }
  }

  function columnOf({ take, head }, count) {
    const said = head();
    checked(said, count);
    return { name: said.name, values: partOf(take, said, count, [...said.buffers]) };
  }

  // The values of a column, or of what lies in one. It takes the sizes of their buffers.
  function partOf(take, { nullable, type, extension }, rows, sizes) {
    const there = nullable ? new Uint8Array(take(sizes.shift())) : undefined;
    let values = nestedOf(take, type, rows, sizes);
    if (extension?.name === "arrow.uuid") values = values.map((bytes) => (bytes?.length === 16 ? uuid(bytes) : bytes));
    return there === undefined ? values : values.map((value, i) => (there[i] ? value : null));
  }

  function uuid(bytes) {
    const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }

  function nestedOf(take, type, rows, sizes) {
    switch (type.kind) {
      case "null":
        return new Array(rows).fill(null);
      case "list":
      case "map": {
        const ends = new Int32Array(take(sizes.shift()));
        const items = partOf(take, type.item, type.count, sizes);
        const entries = type.kind === "map" ? items.map((entry) => Object.values(entry)) : items;
        return Array.from({ length: rows }, (_, i) => entries.slice(ends[i], ends[i + 1]));
      }
      case "struct": {
        const columns = type.fields.map((field) => ({ name: field.name, values: partOf(take, field, rows, sizes) }));
        return objects(columns, rows);
      }
      default:
        return valuesOf(take, type, sizes.splice(0, BUFFERS[type.kind] ?? 2));
    }
  }

  function objects(columns, rows) {
    return Array.from({ length: rows }, (_, i) => {
      const row = {};
      for (const { name, values } of columns) {
        // A column may be called `__proto__`.
        if (name === "__proto__") Object.defineProperty(row, name, { value: values[i], enumerable: true, configurable: true, writable: true });
        else row[name] = values[i];
      }
      return row;
    });
  }

  function rowsOf(told) {
    const table = reader(taken(told));
    const { columns: count, rows } = table.head();
    const columns = Array.from({ length: count }, () => columnOf(table, rows));
    return objects(columns, rows);
  }

  // ---- Datasets

  function datasetName(what, name, isNeeded) {
    if (typeof name === "string" || (!isNeeded && name === undefined)) return name;
    throw new TypeError(`${what} takes the name of a dataset, and not ${kit.inspect(name)}`);
  }

  function versionAsked(name, options) {
    const { version } = kit.options("loadDataset", options, { version: "size" });
    return [host.calls.TABLES_READ, datasetName("loadDataset", name, true), version];
  }

  const loadDataset = kit.bridge("loadDataset", versionAsked, rowsOf);
  define(globalThis, "loadDataset", loadDataset);
  const listDatasets = kit.bridge("listDatasets", (name) => [host.calls.TABLES_LIST, datasetName("listDatasets", name, false)]);
  define(globalThis, "listDatasets", listDatasets);

  // ---- Names

  // What the host says of each fetch, by its name with that of its connector.
  function specs() {
    return new Map(host.fetches().flatMap(({ fetches, ...connector }) => fetches.map(({ name, description, schema, columns }) =>
      [`${connector.name}.${name}`, { description, connector, schema: JSON.parse(schema), columns }])));
  }

  function fetchSpec(name, { description, schema, columns }) {
    const required = schema?.required ?? [];
    const parameters = Object.entries(schema?.properties ?? {}).map(([key, about]) => [key, { ...about, required: required.includes(key) }]);
    return {
      name, description, parameters: Object.fromEntries(parameters),
      columns: Object.fromEntries(columns),
    };
  }

  let names = [];
  function listed() {
    const found = Object.fromEntries(names.map((name) => [name, { name, description: "", fetches: {} }]));
    for (const [whole, said] of specs()) {
      const dot = whole.indexOf(".");
      const connector = found[whole.slice(0, dot)];
      if (connector === undefined) continue;
      connector.description = said.connector.description;
      connector.fetches[whole.slice(dot + 1)] = fetchSpec(whole.slice(dot + 1), said);
    }
    return found;
  }

  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

  // The arguments by their names, and the options behind them: one object has them itself, others have the names of the
  // schema, in its order.
  function namedArguments(name, values) {
    const [first] = values;
    if (first === undefined || first === null || isObject(first)) return [first ?? {}, values[1]];
    const parameters = Object.entries(specs().get(name)?.schema?.properties ?? {});
    const isOption = (value, i) => i >= parameters.length || (isObject(value) && parameters[i][1].type !== "object");
    const end = values.findIndex(isOption);
    const [given, behind] = end < 0 ? [values, []] : [values.slice(0, end), values.slice(end)];
    if (behind.length > 1 || !behind.every(isObject)) {
      throw new TypeError(`${name} takes one object of named arguments, or ${parameters.length} in the order of ${name}.spec(), and not ${kit.inspect(values)}`);
    }
    return [Object.fromEntries(given.map((value, i) => [parameters[i][0], value])), behind[0]];
  }

  function asked(connector, fetch, values) {
    const name = `${connector}.${fetch}`;
    const [given, options] = namedArguments(name, values);
    const { refresh = false } = kit.options(name, options, { refresh: "flag" });
    return [host.calls.FETCHES_CALL, connector, fetch, kit.argumentsText(`connectors.${name}`, given), refresh];
  }

  function fetchOf(connector, name) {
    const whole = `${connector}.${name}`;
    const call = kit.bridge(whole, (...values) => asked(connector, name, values), rowsOf);
    define(call, "name", name);
    return define(call, "spec", () => {
      const said = specs().get(whole);
      if (said === undefined) throw new RangeError(`'${connector}' has no fetch '${name}'; ${connector}.spec() tells of all`);
      return fetchSpec(name, said);
    });
  }

  function connectorOf(connector) {
    const fetchNames = () => Object.keys(listed()[connector]?.fetches ?? {});
    const spec = () => listed()[connector];
    return kit.transparent(new Proxy(Object.create(null), {
      get(_, name) {
        // `await warehouse` looks for `then`: the connector itself is not a promise. What shows it looks for its class.
        if (typeof name !== "string" || name === "then" || name === "constructor") return undefined;
        return name === "spec" ? spec : fetchOf(connector, name);
      },
      has: (_, name) => fetchNames().includes(name),
      ownKeys: () => fetchNames(),
      getOwnPropertyDescriptor: (_, name) =>
        typeof name === "string" ? { value: fetchOf(connector, name), configurable: true, enumerable: true } : undefined,
      set: () => false,
    }));
  }

  const connectors = () => listed();
  define(globalThis, "connectors", connectors);

  // Binds the names that the session was granted, in the place of those before.
  kit.bindConnectors = () => {
    for (const name of names) {
      delete connectors[name];
      delete globalThis[name];
    }
    names = host.connectors();
    for (const name of names) {
      const value = connectorOf(name);
      define(connectors, name, value);
      Object.defineProperty(globalThis, name, { value, writable: true, enumerable: false, configurable: true });
    }
  };
})
