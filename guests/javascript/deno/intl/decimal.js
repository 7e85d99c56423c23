// Decimal numbers as digits, rounded as they are written: 1.005 is 1.01 with two digits, although the double is less.
//
// `{ sign, digits, point }` is 0.digits * 10 ** point; zero has no digits. Not a number and infinity have a `word`.

function read(value) {
  if (typeof value === "bigint") return fromText(value.toString());
  if (typeof value === "string") {
    const text = value.trim();
    if (/^[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d{1,4})?$/i.test(text)) return fromText(text);
  }
  const primitive = typeof value === "object" && value !== null ? value[Symbol.toPrimitive]?.("number") ?? value.valueOf() : value;
  if (typeof primitive === "bigint") return fromText(primitive.toString());
  const number = Number(primitive);
  if (Number.isNaN(number)) return { sign: 1, word: "NaN" };
  const sign = number < 0 || Object.is(number, -0) ? -1 : 1;
  return Number.isFinite(number) ? { ...fromText(String(Math.abs(number))), sign } : { sign, word: "∞" };
}

function fromText(text) {
  const [, minus, whole, fraction = "", exponent = "0"] = /^([-+]?)(\d*)\.?(\d*)(?:e([-+]?\d+))?$/i.exec(text);
  const all = whole + fraction;
  const digits = all.replace(/^0+/, "");
  return trim({ sign: minus === "-" ? -1 : 1, digits, point: whole.length - (all.length - digits.length) + Number(exponent) });
}

function trim(number) {
  const digits = number.digits.replace(/0+$/, "");
  return { ...number, digits, point: digits === "" ? 0 : number.point };
}

const scaled = (number, power) => (number.digits === "" ? number : { ...number, point: number.point + power });

// Does a number move away from zero when `rest`, the digits that go, begins with its first?
function goesUp(mode, sign, kept, rest) {
  if (/^0*$/.test(rest)) return false;
  const half = rest[0] === "5" && /^50*$/.test(rest) ? 0 : rest[0] >= "5" ? 1 : -1;
  switch (mode) {
    case "ceil": return sign > 0;
    case "floor": return sign < 0;
    case "expand": return true;
    case "trunc": return false;
    case "halfCeil": return half > 0 || (half === 0 && sign > 0);
    case "halfFloor": return half > 0 || (half === 0 && sign < 0);
    case "halfTrunc": return half > 0;
    case "halfEven": return half > 0 || (half === 0 && "13579".includes(kept.at(-1) ?? "0"));
    default: return half >= 0;
  }
}

// Keeps so many digits, of which there may be none or fewer.
function keep(number, length, mode) {
  if (length >= number.digits.length) return number;
  const kept = length > 0 ? number.digits.slice(0, length) : "";
  const rest = length >= 0 ? number.digits.slice(length) : "0".repeat(-length) + number.digits;
  if (!goesUp(mode, number.sign, kept, rest)) return trim({ ...number, digits: kept });
  if (length <= 0) return { ...number, digits: "1", point: number.point - length + 1 };
  const up = String(BigInt(kept) + 1n);
  return trim({ ...number, digits: up, point: number.point + up.length - kept.length });
}

const toFraction = (number, places, mode) => keep(number, number.point + places, mode);
const toSignificant = (number, places, mode) => keep(number, places, mode);

// The text of both sides of the point, with zeros up to the least lengths.
function sides(number, wholeMin, fractionMin) {
  const { digits, point } = number;
  const whole = point > 0 ? digits.slice(0, point).padEnd(point, "0") : "";
  const fraction = point >= 0 ? digits.slice(point) : "0".repeat(-point) + digits;
  return [whole.padStart(wholeMin, "0"), fraction.padEnd(fractionMin, "0")];
}

module.exports = { read, scaled, sides, toFraction, toSignificant };
