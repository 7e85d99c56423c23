// Values of the program as JSON: strictly, where `JSON.stringify` would leave them out or make something else of them.

/**
 * Makes JSON of a value. `undefined` is null, and members that are undefined are left out.
 *
 * Throws `TypeError` for what JSON cannot carry, with the way to it.
 */
export function toJson(value) {
  switch (typeof value) {
    case "undefined":
      return "null";
    case "string":
    case "boolean":
      return JSON.stringify(value);
    case "number":
      return Number.isFinite(value) ? String(value) : refuse("", value);
    default:
      break;
  }
  const checked = function (key, member) {
    // The member itself, before a `toJSON` of it was called.
    const found = this[key];
    switch (typeof member) {
      case "number":
        return Number.isFinite(member) ? member : refuse(key, member);
      case "bigint":
      case "function":
      case "symbol":
        return refuse(key, member);
      case "undefined":
        return Array.isArray(this) ? refuse(key, member) : member;
      case "object":
        if (found instanceof Map || found instanceof Set || ArrayBuffer.isView(found) || found instanceof ArrayBuffer) {
          // Bytes of Node have a `toJSON` that nobody expects.
          return refuse(key, found);
        }
        return member;
      default:
        return member;
    }
  };
  return JSON.stringify(value, checked) ?? "null";
}

function refuse(key, value) {
  const place = key === "" ? "" : ` at \`${key}\``;
  const name = typeof value === "object" ? `an object ${value.constructor?.name ?? ""}`.trim() : kind(value);
  throw new TypeError(`${name}${place} is no JSON`);
}

function kind(value) {
  switch (typeof value) {
    case "number":
      return String(value);
    case "undefined":
      return "undefined";
    default:
      return `a ${typeof value}`;
  }
}
