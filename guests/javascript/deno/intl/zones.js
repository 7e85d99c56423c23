// Time zones: their rules come from the library of moment-timezone's data, which is loaded when a zone but UTC is asked for.
const UTC = ["utc", "etc/utc", "gmt", "etc/gmt", "etc/uct", "uct", "zulu", "etc/zulu", "universal", "etc/universal", "greenwich", "etc/greenwich"];
// Long names, with what stands where `_` does: Standard, Daylight; and the letters of short ones.
const NAMES = {
  "America/New_York": ["Eastern _ Time", "E"], "America/Detroit": ["Eastern _ Time", "E"], "America/Toronto": ["Eastern _ Time", "E"],
  "America/Chicago": ["Central _ Time", "C"], "America/Winnipeg": ["Central _ Time", "C"],
  "America/Denver": ["Mountain _ Time", "M"], "America/Boise": ["Mountain _ Time", "M"], "America/Phoenix": ["Mountain _ Time", "M"],
  "America/Edmonton": ["Mountain _ Time", "M"], "America/Los_Angeles": ["Pacific _ Time", "P"], "America/Vancouver": ["Pacific _ Time", "P"],
  "America/Anchorage": ["Alaska _ Time", "AK"], "Pacific/Honolulu": ["Hawaii-Aleutian _ Time", "H"], "America/Halifax": ["Atlantic _ Time", "A"],
  "Europe/Paris": ["Central European _ Time"], "Europe/Berlin": ["Central European _ Time"], "Europe/Madrid": ["Central European _ Time"],
  "Europe/Rome": ["Central European _ Time"], "Europe/Amsterdam": ["Central European _ Time"], "Europe/Vienna": ["Central European _ Time"],
  "Europe/Zurich": ["Central European _ Time"], "Europe/Stockholm": ["Central European _ Time"], "Europe/Athens": ["Eastern European _ Time"],
  "Europe/Moscow": ["Moscow _ Time"], "Asia/Tokyo": ["Japan _ Time"], "Asia/Seoul": ["Korean _ Time"], "Asia/Shanghai": ["China _ Time"],
  "Asia/Kolkata": ["India _ Time"], "Asia/Calcutta": ["India _ Time"], "Asia/Dubai": ["Gulf _ Time"], "Asia/Singapore": ["Singapore _ Time"],
};

// Unpacked zones by the small letters of their names: the ends of spans in milliseconds, and minutes east of UTC.
const known = new Map();
let packed;

// A number as the data writes it: base 60, with a sign and a fraction.
function unpack(text) {
  const value = (letter) => {
    const code = letter.charCodeAt(0);
    return code > 96 ? code - 87 : code > 64 ? code - 29 : code - 48;
  };
  const [whole, fraction = ""] = text.replace("-", "").split(".");
  let number = 0;
  for (const letter of whole) number = 60 * number + value(letter);
  for (let i = 0, unit = 1 / 60; i < fraction.length; i++, unit /= 60) number += unit * value(fraction[i]);
  return text.startsWith("-") ? -number : number;
}

// Texts of zones, and names that are others', both by small letters.
function tables() {
  if (packed === undefined) {
    const { zones, links } = kit.library("zones");
    packed = { zones: new Map(), links: new Map() };
    for (const zone of zones) packed.zones.set(zone.slice(0, zone.indexOf("|")).toLowerCase(), zone);
    for (const link of links) {
      const [target, name] = link.split("|");
      packed.links.set(name.toLowerCase(), [name, target.toLowerCase()]);
    }
  }
  return packed;
}

function zoneOf(asked) {
  const key = asked.toLowerCase();
  if (UTC.includes(key)) return { name: "UTC", offsets: [0], ends: [Infinity] };
  const fixed = /^([-+])(\d{2})(?::?([0-5]\d))?$/.exec(asked);
  if (fixed !== null && Number(fixed[2]) < 24) {
    const minutes = (Number(fixed[2]) * 60 + Number(fixed[3] ?? 0)) * (fixed[1] === "-" ? -1 : 1);
    return { name: `${minutes < 0 ? "-" : "+"}${fixed[2]}:${fixed[3] ?? "00"}`, offsets: [minutes], ends: [Infinity] };
  }
  if (!known.has(key)) {
    const { zones, links } = tables();
    const [linked, target] = links.get(key) ?? [];
    const text = zones.get(target ?? key);
    if (text === undefined) throw new RangeError(`Invalid time zone specified: ${asked}`);
    const [name, , offsets, indices, spans = ""] = text.split("|");
    const minutes = offsets.split(" ").map((one) => -unpack(one));
    let at = 0;
    const ends = spans === "" ? [] : spans.split(" ").map((span) => (at += unpack(span) * 60000));
    const own = linked ?? name;
    known.set(key, { name: own, offsets: [...indices].map((index) => minutes[unpack(index)]), ends: [...ends, Infinity], names: NAMES[own] ?? NAMES[name] });
  }
  return known.get(key);
}

const spanOf = (zone, time) => zone.ends.findIndex((end) => time < end);
// Minutes east of UTC at a time.
const offsetAt = (zone, time) => zone.offsets[spanOf(zone, time)];

// Is the clock ahead of what it is before and after?
function isDaylight(zone, time) {
  const at = spanOf(zone, time);
  const near = [zone.offsets[at - 1], zone.offsets[at + 1]].filter((one) => one !== undefined);
  return near.length > 0 && zone.ends[at] !== Infinity && near.every((one) => one < zone.offsets[at]);
}

// The difference from Greenwich as a name: `GMT+5:30`, or `GMT+05:30` at length.
function gmt(minutes, isLong) {
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.round(Math.abs(minutes) % 60)];
  const tail = rest === 0 && !isLong ? "" : `:${String(rest).padStart(2, "0")}`;
  return `GMT${minutes < 0 ? "-" : "+"}${isLong ? String(hours).padStart(2, "0") : hours}${tail}`;
}

// How a zone is called at a time; `style` as the option `timeZoneName` has it.
function nameOf(zone, time, style) {
  const minutes = offsetAt(zone, time);
  if (style.endsWith("Offset")) return gmt(minutes, style === "longOffset");
  if (zone.name === "UTC") return style.startsWith("long") ? "Coordinated Universal Time" : "UTC";
  const [long, letters] = zone.names ?? [];
  const isLong = style.startsWith("long");
  if (isLong && long !== undefined) return long.replace("_", style === "longGeneric" ? "" : isDaylight(zone, time) ? (/Europ/.test(long) ? "Summer" : "Daylight") : "Standard").replace("  ", " ");
  if (!isLong && letters !== undefined) return `${letters}${style === "shortGeneric" ? "" : isDaylight(zone, time) ? "D" : "S"}T`;
  return minutes === 0 ? "GMT" : gmt(minutes, isLong);
}

const names = () => [...tables().zones.values()].map((zone) => zone.slice(0, zone.indexOf("|"))).concat([...tables().links.values()].map(([name]) => name)).sort();

// The zone of local time, which the engine asks for the offsets of.
let local = zoneOf("UTC");

// Makes local time that of a zone as TZ names it; one that is not known is UTC, as in Node.
function setLocal(named) {
  try {
    local = zoneOf((named ?? "UTC").replace(/^:/, "").replace(/^\/usr\/share\/zoneinfo\//, "") || "UTC");
  } catch {
    local = zoneOf("UTC");
  }
  const spoken = local.ends.map((end, at) => nameOf(local, Number.isFinite(end) ? end - 1 : (local.ends[at - 1] ?? 0), "long"));
  const known = [...new Set(spoken)];
  host.setZone(local.ends, local.offsets, spoken.map((name) => known.indexOf(name)), known);
}
const localName = () => local.name;

module.exports = { localName, nameOf, names, offsetAt, setLocal, zoneOf };
