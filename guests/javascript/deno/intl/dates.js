// Intl.DateTimeFormat.
const { LOCALE, canonicalLocales, choice, count, join, languageOf, notationsOf, optionsOf, supportedLocalesOf } = require("deno/intl/options.js");
const { localName, nameOf, offsetAt, zoneOf } = require("deno/intl/zones.js");

const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const WIDTHS = ["narrow", "short", "long"];
const NUMERIC = ["2-digit", "numeric"];
const STYLES = ["full", "long", "medium", "short"];
const KINDS = { weekday: WIDTHS, era: WIDTHS, year: NUMERIC, month: [...NUMERIC, ...WIDTHS], day: NUMERIC, hour: NUMERIC, minute: NUMERIC, second: NUMERIC };
const DATE_FIELDS = ["weekday", "year", "month", "day"];
const TIME_FIELDS = ["dayPeriod", "hour", "minute", "second", "fractionalSecondDigits"];

// What the four styles of dates and times consist of.
const DATE_STYLES = {
  full: { weekday: "long", month: "long", day: "numeric", year: "numeric" }, long: { month: "long", day: "numeric", year: "numeric" },
  medium: { month: "short", day: "numeric", year: "numeric" }, short: { month: "numeric", day: "numeric", year: "2-digit" },
};
const TIME_STYLES = {
  full: { hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "long" }, long: { hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short" },
  medium: { hour: "numeric", minute: "2-digit", second: "2-digit" }, short: { hour: "numeric", minute: "2-digit" },
};

// Which order numeric dates have, for the few languages that programs ask for because of it.
const ORDERS = { "en-CA": "ymd", "sv-SE": "ymd", sv: "ymd", "en-GB": "dmy", "en-AU": "dmy", "en-NZ": "dmy", "en-IE": "dmy", "en-IN": "dmy" };

function readOptions(given, needed, defaults) {
  const options = optionsOf(given, "DateTimeFormat");
  const fields = {};
  for (const [name, words] of Object.entries(KINDS)) {
    const value = choice(options, name, words);
    if (value !== undefined) fields[name] = value;
  }
  const dayPeriod = choice(options, "dayPeriod", WIDTHS);
  if (dayPeriod !== undefined) fields.dayPeriod = dayPeriod;
  const fraction = count(options, "fractionalSecondDigits", 1, 3);
  if (fraction !== undefined) fields.fractionalSecondDigits = fraction;
  const zoneName = choice(options, "timeZoneName", ["short", "long", "shortOffset", "longOffset", "shortGeneric", "longGeneric"]);
  if (zoneName !== undefined) fields.timeZoneName = zoneName;
  const dateStyle = choice(options, "dateStyle", STYLES);
  const timeStyle = choice(options, "timeStyle", STYLES);
  if (dateStyle !== undefined || timeStyle !== undefined) {
    const [one] = Object.keys(fields);
    if (one !== undefined) throw new TypeError(`Can't set option ${one} when ${dateStyle !== undefined ? "dateStyle" : "timeStyle"} is used`);
    if (needed === "date" && timeStyle !== undefined) throw new TypeError("Invalid option : timeStyle");
    if (needed === "time" && dateStyle !== undefined) throw new TypeError("Invalid option : dateStyle");
    return { fields: { ...DATE_STYLES[dateStyle], ...TIME_STYLES[timeStyle] }, dateStyle, timeStyle };
  }
  const has = (names) => names.some((name) => fields[name] !== undefined);
  const isBare = !(needed !== "time" && has(DATE_FIELDS)) && !(needed !== "date" && has(TIME_FIELDS));
  if (isBare && defaults !== "time") Object.assign(fields, { year: "numeric", month: "numeric", day: "numeric" });
  if (isBare && defaults !== "date") Object.assign(fields, { hour: "numeric", minute: "numeric", second: "numeric" });
  return { fields };
}

// "h12" or "h23", and so on.
function cycleOf(options) {
  const asked = choice(options, "hourCycle", ["h11", "h12", "h23", "h24"]);
  if (options.hour12 !== undefined) return options.hour12 ? "h12" : "h23";
  return asked ?? "h12";
}

const pad = (number) => String(number).padStart(2, "0");
const literal = (value) => ({ type: "literal", value });
// Parts with a text between each two.
const spaced = (groups, between) => groups.flatMap((group, i) => (i === 0 ? group : [literal(between), ...group]));
const cut = (names, index, width) => (width === "long" ? names[index] : width === "short" ? names[index].slice(0, 3) : names[index][0]);

function monthPart(at, width) {
  const value = NUMERIC.includes(width) ? (width === "2-digit" ? pad(at.month + 1) : String(at.month + 1)) : cut(MONTHS, at.month, width);
  return [{ type: "month", value }];
}

function yearPart(at, width, era) {
  const shown = at.year > 0 || era === undefined ? at.year : 1 - at.year;
  return [{ type: "year", value: width === "2-digit" ? pad(Math.abs(shown) % 100) : String(shown) }];
}

function dateParts(at, { weekday, year, month, day, era }, order) {
  const days = weekday === undefined ? [] : [{ type: "weekday", value: cut(DAYS, at.weekday, weekday) }];
  const dayPart = day === undefined ? undefined : [{ type: "day", value: day === "2-digit" ? pad(at.day) : String(at.day) }];
  const yearParts = year === undefined ? undefined : yearPart(at, year, era);
  const eras = era === undefined ? [] : [literal(" "), { type: "era", value: { long: at.year > 0 ? "Anno Domini" : "Before Christ", short: at.year > 0 ? "AD" : "BC", narrow: at.year > 0 ? "A" : "B" }[era] }];
  let rest;
  if (month === undefined) rest = spaced([dayPart, yearParts].filter(Boolean), " ");
  else if (NUMERIC.includes(month)) rest = spaced(numericDate(at, { month, dayPart, yearParts, day }, order), order === "ymd" ? "-" : "/");
  else if (order === "dmy") rest = spaced([dayPart, monthPart(at, month), yearParts].filter(Boolean), " ");
  else if (dayPart === undefined) rest = spaced([monthPart(at, month), yearParts].filter(Boolean), " ");
  else rest = spaced([[...monthPart(at, month), literal(" "), ...dayPart], yearParts].filter(Boolean), ", ");
  if (days.length === 0) return [...rest, ...eras];
  // A day of the month comes before the name of its day.
  if (month === undefined && year === undefined && day !== undefined) return spaced([rest, days], " ");
  return rest.length === 0 ? days : [...days, literal(", "), ...rest, ...eras];
}

function numericDate(at, { month, dayPart, yearParts }, order) {
  if (order === "mdy") return [monthPart(at, month), dayPart, yearParts].filter(Boolean);
  const two = (parts) => parts?.map((part) => ({ ...part, value: part.value.padStart(2, "0") }));
  const [months, days] = [two(monthPart(at, month)), two(dayPart)];
  return (order === "ymd" ? [yearParts, months, days] : [days, months, yearParts]).filter(Boolean);
}

// The words for the halves of a day, where English does not write them as in America.
const HALVES = { "en-AU": ["am", "pm"], "en-CA": ["a.m.", "p.m."], "en-GB": ["am", "pm"], "en-IE": ["am", "pm"], "en-IN": ["am", "pm"], "en-NZ": ["am", "pm"], "en-ZA": ["am", "pm"] };

function timeParts(at, fields, cycle, halves = ["AM", "PM"]) {
  const { hour, minute, second, fractionalSecondDigits: digits, dayPeriod } = fields;
  const is12 = cycle === "h12" || cycle === "h11";
  const groups = [];
  if (hour !== undefined) {
    const value = is12 ? at.hour % 12 || (cycle === "h12" ? 12 : 0) : at.hour || (cycle === "h24" ? 24 : 0);
    groups.push([{ type: "hour", value: hour === "2-digit" || !is12 ? pad(value) : String(value) }]);
  }
  // With what stands before it a minute has two digits, and a second.
  if (minute !== undefined) groups.push([{ type: "minute", value: hour !== undefined || second !== undefined ? pad(at.minute) : String(at.minute) }]);
  const fraction = digits === undefined ? [] : [{ type: "fractionalSecond", value: String(at.millisecond).padStart(3, "0").slice(0, digits) }];
  if (second !== undefined) groups.push([{ type: "second", value: minute !== undefined ? pad(at.second) : String(at.second) }, ...(fraction.length > 0 ? [literal("."), ...fraction] : [])]);
  else if (fraction.length > 0) groups.push(fraction);
  const parts = spaced(groups, ":");
  if (hour !== undefined && is12) parts.push(literal(" "), { type: "dayPeriod", value: dayPeriod !== undefined ? periodOf(at.hour) : halves[at.hour < 12 ? 0 : 1] });
  else if (dayPeriod !== undefined && hour === undefined) parts.push({ type: "dayPeriod", value: periodOf(at.hour) });
  return parts;
}

const periodOf = (hour) => (hour === 12 ? "noon" : hour < 6 || hour >= 21 ? "at night" : hour < 12 ? "in the morning" : hour < 18 ? "in the afternoon" : "in the evening");

// What a calendar and a clock of the zone show.
function fieldsAt(time, zone) {
  const there = new Date(time + offsetAt(zone, time) * 60000);
  return {
    year: there.getUTCFullYear(), month: there.getUTCMonth(), day: there.getUTCDate(), weekday: there.getUTCDay(),
    hour: there.getUTCHours(), minute: there.getUTCMinutes(), second: there.getUTCSeconds(), millisecond: there.getUTCMilliseconds(),
  };
}

function timeOf(value) {
  const time = value === undefined ? Date.now() : Number(value);
  if (!(Math.abs(time) <= 8.64e15)) throw new RangeError("Invalid time value");
  return Math.trunc(time);
}

// The letters by which patterns of dates are known: `yn ml dn` has a year, the name of a month, and a day.
const LETTERS = { numeric: "n", "2-digit": "2", long: "l", short: "s" };

// What a language has for these fields: the pattern of the date, what writes the clock, and what stands between the two. Where it
// lacks any, the whole is American.
function formsOf(language, fields, { dateStyle, timeStyle }, options) {
  if (language?.dates === undefined) return undefined;
  const { era, dayPeriod, fractionalSecondDigits, timeZoneName, hour, minute } = fields;
  if ([era, dayPeriod, fractionalSecondDigits, timeZoneName].some((field) => field !== undefined)) return undefined;
  const hasClock = minute !== undefined || hour !== undefined;
  const isClock12 = options.hour12 ?? (options.hourCycle === undefined ? !language.time : options.hourCycle === "h12");
  const halves = hasClock && isClock12 ? notationsOf(language.tag)?.clock : undefined;
  if (["h11", "h24"].includes(options.hourCycle) && options.hour12 === undefined) return undefined;
  if (hasClock && ((isClock12 ? halves === undefined : !language.time) || hour === undefined || minute === undefined)) return undefined;
  const named = ["weekday", "year", "month", "day"].filter((name) => fields[name] !== undefined);
  const key = dateStyle ?? named.map((name) => name[0] + LETTERS[fields[name]]).join(" ");
  const pattern = language.dates[key];
  if (named.length > 0 && pattern === undefined) return undefined;
  const place = dateStyle !== undefined && timeStyle !== undefined ? 1 + STYLES.indexOf(dateStyle) : fields.month === "long" ? 5 : fields.month === "short" ? 6 : 0;
  return { language, pattern, halves, joint: language.joints?.[place] ?? (language.tag.startsWith("ko") ? " " : ", ") };
}

// A date by the pattern of a language.
function patterned(at, { language, pattern }) {
  const name = (place, index) => (language.names[place] || language.names[place - 1]).split("|")[index];
  const fields = {
    y: ["year", () => String(at.year)], z: ["year", () => pad(Math.abs(at.year) % 100)], m: ["month", () => String(at.month + 1)], M: ["month", () => pad(at.month + 1)],
    d: ["day", () => String(at.day)], D: ["day", () => pad(at.day)], L: ["month", () => name(0, at.month)], N: ["month", () => name(1, at.month)],
    S: ["month", () => name(2, at.month)], T: ["month", () => name(3, at.month)], W: ["weekday", () => name(4, at.weekday)], V: ["weekday", () => name(5, at.weekday)],
    X: ["weekday", () => (language.names[6] || language.names[4]).split("|")[at.weekday]], U: ["weekday", () => (language.names[7] || language.names[5]).split("|")[at.weekday]],
  };
  return pattern.split(/(\{.\})/).filter((text) => text !== "").map((text) => {
    const field = fields[/^\{(.)\}$/.exec(text)?.[1]];
    return field === undefined ? literal(text) : { type: field[0], value: field[1]() };
  });
}

// A clock as a language writes it: of 24 hours, or of 12 with a word for the half of the day.
function clocked(at, { hour, minute, second }, { time, tag }, halves) {
  const [sample, mark] = time || ["9", ":"];
  const value = halves === undefined ? at.hour : at.hour % 12 || 12;
  const isPadded = hour === "2-digit" || (halves === undefined && sample.length === 2);
  const hours = { type: "hour", value: isPadded ? pad(value) : String(value) };
  const groups = [[hours], ...(minute === undefined ? [] : [[{ type: "minute", value: pad(at.minute) }]]), ...(second === undefined ? [] : [[{ type: "second", value: pad(at.second) }]])];
  const parts = spaced(groups, mark);
  if (halves === undefined) return parts;
  const [morning, afternoon, isFirst, gap] = halves;
  const half = { type: "dayPeriod", value: at.hour < 12 ? morning : afternoon };
  const between = gap === "" ? [] : [literal(gap)];
  return isFirst ? [half, ...between, ...parts] : [...parts, ...between, half];
}

class DateTimeFormat {
  #fields;
  #forms;
  #settings;
  #zone;
  #cycle;
  #asked;
  #order;
  #format;

  // `needed` and `defaults` are what `toLocaleDateString` and its kin want: "date", "time", "any" or "all".
  constructor(locales, given, needed = "any", defaults = "date") {
    const [asked] = canonicalLocales(locales);
    const options = optionsOf(given, "DateTimeFormat");
    const { fields, dateStyle, timeStyle } = readOptions(options, needed, defaults);
    this.#asked = asked;
    this.#zone = zoneOf(String(options.timeZone ?? localName()));
    this.#fields = fields;
    this.#order = ORDERS[asked] ?? "mdy";
    const isEnglish = asked === undefined || asked.startsWith("en");
    this.#forms = isEnglish ? undefined : formsOf(languageOf(locales), fields, { dateStyle, timeStyle }, options);
    const isClock24 = this.#order !== "mdy" && options.hour12 === undefined && options.hourCycle === undefined && asked !== "en-CA" && !/^en-(AU|NZ|IN)$/.test(asked);
    this.#cycle = fields.hour === undefined ? undefined : this.#forms !== undefined ? (this.#forms.halves === undefined ? "h23" : "h12") : isClock24 ? "h23" : cycleOf(options);
    const hours = this.#cycle === undefined ? {} : { hourCycle: this.#cycle, hour12: this.#cycle === "h12" || this.#cycle === "h11" };
    const shown = dateStyle === undefined && timeStyle === undefined ? shownFields(fields) : { ...(dateStyle && { dateStyle }), ...(timeStyle && { timeStyle }) };
    this.#settings = { locale: this.#order === "mdy" && this.#forms === undefined ? LOCALE : asked, calendar: "gregory", numberingSystem: "latn", timeZone: this.#zone.name, ...hours, ...shown };
  }

  get format() {
    return (this.#format ??= Object.defineProperty((date) => join(this.#partsOf(timeOf(date))), "name", { value: "" }));
  }
  formatToParts(date) {
    return this.#narrow(this.#partsOf(timeOf(date)));
  }
  formatRange(from, to) {
    const [start, end] = [timeOf(from), timeOf(to)];
    const whole = join(this.#partsOf(start));
    if (whole === join(this.#partsOf(end))) return whole;
    const dash = this.#isAmerican() ? "\u2009–\u2009" : " – ";
    return this.#shortRange(start, end) ?? `${join(this.formatToParts(start))}${dash}${join(this.formatToParts(end))}`;
  }
  resolvedOptions() {
    return { ...this.#settings };
  }

  #isAmerican() {
    return this.#forms === undefined && this.#order === "mdy";
  }

  // What `format` writes with a blank before the half of a day, for the sake of old programs, is narrow elsewhere.
  #narrow(parts) {
    if (!this.#isAmerican()) return parts;
    return parts.map((part, i) => (part.value === " " && parts[i + 1]?.type === "dayPeriod" ? { ...part, value: "\u202f" } : part));
  }

  // American English names the year once, and the month, the day and its half, where they are the same.
  #shortRange(from, to) {
    const { weekday, month, day, year, hour, minute, second, era, timeZoneName } = this.#fields;
    if (!this.#isAmerican() || era !== undefined || timeZoneName !== undefined) return undefined;
    const [start, end] = [fieldsAt(from, this.#zone), fieldsAt(to, this.#zone)];
    if (hour !== undefined) {
      if (start.year !== end.year || start.month !== end.month || start.day !== end.day) return undefined;
      const clocks = [start, end].map((at) => timeParts(at, this.#fields, this.#cycle, HALVES[this.#asked]));
      const [first, last] = clocks;
      const before = this.#partsOf(from).slice(0, -first.length);
      const isSameHalf = first.at(-1).type === "dayPeriod" && first.at(-1).value === last.at(-1).value;
      return `${join(before)}${join(this.#narrow(isSameHalf ? first.slice(0, -2) : first))}\u2009–\u2009${join(this.#narrow(last))}`;
    }
    if (!["long", "short"].includes(month) || [minute, second].some((field) => field !== undefined) || start.year !== end.year) return undefined;
    const text = (at, fields) => join(dateParts(at, fields, this.#order));
    if (weekday !== undefined || day === undefined) {
      return `${text(start, { weekday, month, day })}\u2009–\u2009${text(end, this.#fields)}`;
    }
    const last = start.month === end.month ? text(end, { day }) : text(end, { month, day });
    return `${text(start, { month, day })}\u2009–\u2009${last}${year === undefined ? "" : `, ${text(end, { year })}`}`;
  }

  #partsOf(time) {
    const at = fieldsAt(time, this.#zone);
    const fields = this.#fields;
    if (this.#forms !== undefined) {
      const { pattern, language, joint, halves } = this.#forms;
      const [day, hours] = [pattern === undefined ? [] : patterned(at, this.#forms), fields.hour === undefined ? [] : clocked(at, fields, language, halves)];
      return day.length === 0 || hours.length === 0 ? [...day, ...hours] : [...day, literal(joint), ...hours];
    }
    const date = dateParts(at, fields, this.#order);
    const clock = timeParts(at, fields, this.#cycle, HALVES[this.#asked]);
    if (fields.timeZoneName !== undefined) {
      const name = { type: "timeZoneName", value: nameOf(this.#zone, time, fields.timeZoneName) };
      clock.push(...(clock.length > 0 ? [literal(" ")] : []), name);
    }
    if (date.length === 0 || clock.length === 0) return [...date, ...clock];
    const isAt = this.#fields.month === "long" && (this.#settings.dateStyle !== undefined || fields.hour !== undefined);
    const isBare = date.length === 1 && date[0].type === "weekday" && fields.timeZoneName === undefined;
    return [...date, literal(isBare ? " " : isAt ? " at " : this.#order === "ymd" && !this.#settings.locale.startsWith("en") ? " " : ", "), ...clock];
  }

  static supportedLocalesOf = supportedLocalesOf;
  get [Symbol.toStringTag]() {
    return "Intl.DateTimeFormat";
  }
}

// Minutes and seconds are shown with two digits beside others, and said to be.
function shownFields(fields) {
  const shown = { ...fields };
  if (fields.minute !== undefined && (fields.hour !== undefined || fields.second !== undefined)) shown.minute = "2-digit";
  if (fields.second !== undefined && fields.minute !== undefined) shown.second = "2-digit";
  return shown;
}

// What `toLocaleString` and its kin make of a date.
function toLocale(date, locales, options, needed, defaults) {
  const time = Number(date);
  return Number.isNaN(time) ? "Invalid Date" : new DateTimeFormat(locales, options, needed, defaults).format(time);
}

module.exports = { DateTimeFormat, toLocale };
