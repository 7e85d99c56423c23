// Values as text, in the manner of Node: what `console.log` and a cell's last expression print.
(function (host, kit) {
  "use strict";

  const DEPTH = 4;
  const ITEMS = 100;
  const STRING_LENGTH = 10000;
  const LINE_LENGTH = 76;

  const TypedArray = Object.getPrototypeOf(Uint8Array);
  const arrayKind = Object.getOwnPropertyDescriptor(TypedArray.prototype, Symbol.toStringTag).get;

  // Works across anything a program may do to a value's prototype: a method that throws says no.
  const brandCheck = (method) => (value) => {
    try {
      method.call(value);
      return true;
    } catch {
      return false;
    }
  };
  const getter = (prototype, name) => Object.getOwnPropertyDescriptor(prototype, name).get;
  const isMap = brandCheck(getter(Map.prototype, "size"));
  const isSet = brandCheck(getter(Set.prototype, "size"));
  const isDate = brandCheck(Date.prototype.getTime);
  const isArrayBuffer = brandCheck(getter(ArrayBuffer.prototype, "byteLength"));
  const isDataView = brandCheck(getter(DataView.prototype, "byteLength"));
  const isError = (value) => (typeof Error.isError === "function" ? Error.isError(value) : value instanceof Error);

  function quote(text) {
    if (text.length > STRING_LENGTH) text = text.slice(0, STRING_LENGTH) + "…";
    const mark = !text.includes("'") ? "'" : !text.includes('"') ? '"' : text.includes("`") ? "'" : "`";
    let out = mark;
    for (const c of text) {
      const code = c.codePointAt(0);
      if (c === mark || c === "\\") out += "\\" + c;
      else if (c === "\n") out += "\\n";
      else if (c === "\t") out += "\\t";
      else if (c === "\r") out += "\\r";
      else if (code < 0x20 || code === 0x7f) out += "\\x" + code.toString(16).padStart(2, "0");
      else out += c;
    }
    return out + mark;
  }

  const isIdentifier = (name) => /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(name);
  const isIndex = (name) => /^(0|[1-9]\d*)$/.test(name);

  function keyText(key) {
    if (typeof key === "symbol") return `[${String(key)}]`;
    return isIdentifier(key) ? key : quote(key);
  }

  // Name of the nearest constructor on the prototype chain; null for an object without one.
  function constructorName(value) {
    for (let object = value; object !== null; object = Object.getPrototypeOf(object)) {
      const own = Object.getOwnPropertyDescriptor(object, "constructor");
      if (own !== undefined && typeof own.value === "function" && own.value.name !== "") return String(own.value.name);
    }
    return null;
  }

  // Parts between brackets: on one line when they fit, else one to a line.
  function enclose(open, parts, close, indent) {
    if (parts.length === 0) return open + close;
    const width = parts.reduce((sum, part) => sum + part.length + 2, open.length + indent);
    const flat = width <= LINE_LENGTH && !parts.some((part) => part.includes("\n"));
    if (flat) return `${open} ${parts.join(", ")} ${close}`;
    const pad = "\n" + " ".repeat(indent + 2);
    return `${open}${pad}${inColumns(parts, indent).join("," + pad)}\n${" ".repeat(indent)}${close}`;
  }

  // Long lists of short things, several to a line; a last part that says how much was left out has its own.
  function inColumns(parts, indent) {
    const items = parts.at(-1).startsWith("... ") ? parts.slice(0, -1) : parts;
    if (items.length <= 6 || items.some((part) => part.length > 12 || part.includes("\n"))) return parts;
    const width = Math.max(...items.map((part) => part.length));
    const columns = Math.max(1, Math.floor((LINE_LENGTH - indent) / (width + 2)));
    const lines = [];
    for (let i = 0; i < items.length; i += columns) {
      lines.push(items.slice(i, i + columns).map((part) => part.padStart(width)).join(", "));
    }
    return [...lines, ...parts.slice(items.length)];
  }

  class Inspector {
    constructor(depth) {
      this.depth = depth;
      this.open = [];
    }

    // Own enumerable properties, except the elements of a list.
    properties(value, level, indent, skipElements) {
      const parts = [];
      const keys = Reflect.ownKeys(value);
      for (const key of keys) {
        if (skipElements && typeof key === "string" && isIndex(key)) continue;
        const own = Object.getOwnPropertyDescriptor(value, key);
        if (own === undefined || !own.enumerable) continue;
        if (parts.length >= ITEMS) {
          parts.push(`... ${keys.length - ITEMS} more`);
          break;
        }
        let text;
        if (own.get !== undefined) text = own.set !== undefined ? "[Getter/Setter]" : "[Getter]";
        else if (own.set !== undefined) text = "[Setter]";
        else text = this.format(own.value, level + 1, indent + 2);
        parts.push(`${keyText(key)}: ${text}`);
      }
      return parts;
    }

    // Up to ITEMS elements by a function of the index.
    elements(length, element) {
      const parts = [];
      for (let i = 0; i < length && i < ITEMS; i++) parts.push(element(i));
      if (length > ITEMS) parts.push(`... ${length - ITEMS} more item${length - ITEMS > 1 ? "s" : ""}`);
      return parts;
    }

    array(value, name, level, indent) {
      const parts = [];
      let holes = 0;
      const flush = () => {
        if (holes > 0) parts.push(`<${holes} empty item${holes > 1 ? "s" : ""}>`);
        holes = 0;
      };
      for (let i = 0; i < value.length && parts.length < ITEMS; i++) {
        if (!Object.hasOwn(value, i)) {
          holes++;
          continue;
        }
        flush();
        parts.push(this.format(value[i], level + 1, indent + 2));
      }
      flush();
      if (value.length > ITEMS && parts.length >= ITEMS) parts.push(`... ${value.length - ITEMS} more items`);
      parts.push(...this.properties(value, level, indent, true));
      const prefix = name === "Array" ? "" : `${name ?? "[Array: null prototype]"}(${value.length}) `;
      return prefix + enclose("[", parts, "]", indent);
    }

    map(value, name, level, indent) {
      const entries = [...Map.prototype.entries.call(value)];
      const parts = this.elements(entries.length, (i) => {
        const [key, item] = entries[i];
        return `${this.format(key, level + 1, indent + 2)} => ${this.format(item, level + 1, indent + 2)}`;
      });
      return `${name}(${entries.length}) ` + enclose("{", parts, "}", indent);
    }

    set(value, name, level, indent) {
      const items = [...Set.prototype.values.call(value)];
      const parts = this.elements(items.length, (i) => this.format(items[i], level + 1, indent + 2));
      return `${name}(${items.length}) ` + enclose("{", parts, "}", indent);
    }

    error(value, level, indent) {
      let text = kit.errorText(value);
      const skip = new Set(["name", "message", "stack", "cause", "errors"]);
      const parts = [];
      for (const key of Reflect.ownKeys(value)) {
        const own = Object.getOwnPropertyDescriptor(value, key);
        if (!own.enumerable || skip.has(key)) continue;
        parts.push(`${keyText(key)}: ${"value" in own ? this.format(own.value, level + 1, indent + 2) : "[Getter]"}`);
      }
      if (value.cause !== undefined) parts.push(`[cause]: ${this.format(value.cause, level + 1, indent + 2)}`);
      if (Array.isArray(value.errors)) parts.push(`[errors]: ${this.format(value.errors, level + 1, indent + 2)}`);
      if (indent > 0) text = text.replaceAll("\n", "\n" + " ".repeat(indent));
      return parts.length === 0 ? text : `${text} ${enclose("{", parts, "}", indent)}`;
    }

    callable(value, level, indent) {
      const isClass = Function.prototype.toString.call(value).startsWith("class");
      const name = typeof value.name === "string" && value.name !== "" ? value.name : "(anonymous)";
      const parent = isClass ? Object.getPrototypeOf(value) : null;
      const kind = isClass ? "class" : (constructorName(value) ?? "Function");
      let head = isClass ? `[class ${name}` : `[${kind}: ${name}`;
      if (isClass && typeof parent === "function" && parent.name) head += ` extends ${parent.name}`;
      head += "]";
      const parts = this.properties(value, level, indent, false);
      return parts.length === 0 ? head : `${head} ${enclose("{", parts, "}", indent)}`;
    }

    promise(value, level, indent) {
      const [state, result] = host.promiseState(value);
      if (state === "pending") return "Promise { <pending> }";
      const text = this.format(result, level + 1, indent + 2);
      return enclose("Promise {", [state === "rejected" ? `<rejected> ${text}` : text], "}", indent);
    }

    object(value, level, indent) {
      const name = constructorName(value);
      if (isError(value)) return this.error(value, level, indent);
      if (Array.isArray(value)) return this.array(value, name, level, indent);
      const kind = arrayKind.call(value);
      if (kind !== undefined) {
        const parts = this.elements(value.length, (i) => this.format(value[i], level + 1, indent + 2));
        return `${name ?? kind}(${value.length}) ` + enclose("[", parts, "]", indent);
      }
      if (isMap(value)) return this.map(value, name ?? "Map", level, indent);
      if (isSet(value)) return this.set(value, name ?? "Set", level, indent);
      if (isDate(value)) return Number.isNaN(Date.prototype.getTime.call(value)) ? "Invalid Date" : Date.prototype.toISOString.call(value);
      if (value instanceof RegExp) return String(value);
      if (host.promiseState(value) !== undefined) return this.promise(value, level, indent);
      if (value instanceof WeakMap || value instanceof WeakSet) return `${name} { <items unknown> }`;
      if (isArrayBuffer(value) || isDataView(value)) return `${name} { byteLength: ${value.byteLength} }`;
      if (value instanceof Number || value instanceof String || value instanceof Boolean) {
        return `[${name}: ${this.format(value.valueOf(), level + 1, indent)}]`;
      }
      const tag = value[Symbol.toStringTag];
      const label = typeof tag === "string" && tag !== "" && tag !== name ? ` [${tag}]` : "";
      const prefix = name === null ? "[Object: null prototype]" : name === "Object" && label === "" ? "" : name;
      const parts = this.properties(value, level, indent, false);
      return (prefix + label === "" ? "" : prefix + label + " ") + enclose("{", parts, "}", indent);
    }

    format(value, level, indent) {
      switch (typeof value) {
        case "string":
          return level === 0 ? value : quote(value);
        case "number":
          return Object.is(value, -0) ? "-0" : String(value);
        case "bigint":
          return `${value}n`;
        case "symbol":
        case "boolean":
        case "undefined":
          return String(value);
      }
      if (value === null) return "null";
      if (this.open.includes(value)) return "[Circular]";
      if (level > this.depth) return Array.isArray(value) ? "[Array]" : `[${constructorName(value) ?? "Object"}]`;
      this.open.push(value);
      try {
        const custom = value[Symbol.for("nodejs.util.inspect.custom")];
        if (typeof custom === "function") {
          const result = custom.call(value, this.depth - level, {}, kit.inspect);
          return typeof result === "string" ? result : this.format(result, level, indent);
        }
        return typeof value === "function" ? this.callable(value, level, indent) : this.object(value, level, indent);
      } catch (error) {
        if (error instanceof RangeError) throw error;
        return `[uninspectable: ${error}]`;
      } finally {
        this.open.pop();
      }
    }
  }

  // Text of a value; strings are quoted.
  kit.inspect = (value, options) => new Inspector(options?.depth === null ? Infinity : (options?.depth ?? DEPTH)).format(value, 1, 0);
  kit.quote = quote;
  kit.isError = isError;
  kit.constructorName = constructorName;

  // What `console.log` prints for its arguments: %-sequences of the first, the others after blanks.
  kit.format = (values) => {
    let next = 0;
    let out = "";
    if (typeof values[0] === "string") {
      next = 1;
      out = values.length === 1 ? values[0] : values[0].replace(/%([sdifjoOc%])/g, (whole, letter) => {
        if (letter === "%") return "%";
        if (next >= values.length) return whole;
        const value = values[next++];
        switch (letter) {
          case "s":
            return typeof value === "string" ? value : typeof value === "object" ? kit.inspect(value, { depth: 1 }) : String(value);
          case "d":
            return typeof value === "bigint" ? `${value}n` : String(Number(value));
          case "i":
            return String(Number.parseInt(value, 10));
          case "f":
            return String(Number.parseFloat(value));
          case "j":
            return JSON.stringify(value);
          case "c":
            return "";
          default:
            return kit.inspect(value);
        }
      });
    }
    for (; next < values.length; next++) {
      const value = values[next];
      out += (next > 0 ? " " : "") + (typeof value === "string" ? value : kit.inspect(value));
    }
    return out;
  };
})
