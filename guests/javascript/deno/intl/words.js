// Intl.ListFormat, Intl.RelativeTimeFormat, Intl.Collator and Intl.Segmenter.
const { LOCALE, canonicalLocales, choice, isKnown, join, ofLanguage, optionsOf, supportedLocalesOf } = require("deno/intl/options.js");
const { rulesOf } = require("deno/intl/plurals.js");
const { NumberFormat, PluralRules } = require("deno/intl/numbers.js");
const { alphabetOf, read } = require("deno/intl/alphabets.js");

const tagged = (Class, name) => {
  Object.defineProperty(Class.prototype, Symbol.toStringTag, { value: `Intl.${name}`, configurable: true });
  Class.supportedLocalesOf = supportedLocalesOf;
};

// The language that is asked for, when its phrases are known.
function phrasesOf(locales) {
  const [tag] = canonicalLocales(locales);
  const phrases = tag !== undefined && isKnown(tag) ? ofLanguage("phrases", tag) : undefined;
  return phrases === undefined ? undefined : { ...phrases, tag };
}

class ListFormat {
  #settings;
  #phrases;
  #isAmerican; // which has a comma before the last of several
  constructor(locales, given) {
    const options = optionsOf(given, "ListFormat");
    const [tag = LOCALE] = canonicalLocales(locales);
    this.#isAmerican = !/^en-(?!US\b)/.test(tag);
    const isLong = (options.style ?? "long") === "long" && options.type !== "unit";
    this.#phrases = isLong ? phrasesOf(locales) : undefined;
    this.#settings = { locale: this.#phrases?.tag ?? LOCALE, type: choice(options, "type", ["conjunction", "disjunction", "unit"], "conjunction"), style: choice(options, "style", ["long", "short", "narrow"], "long") };
  }
  formatToParts(list) {
    const items = Array.from(list, (item) => {
      if (typeof item !== "string") throw new TypeError(`Iterable yielded ${String(item)} which is not a string`);
      return item;
    });
    const { type, style } = this.#settings;
    if (this.#phrases !== undefined) {
      const [two, between, before] = this.#phrases.lists[type === "conjunction" ? 0 : 1];
      const mark = (i) => (items.length === 2 ? two : i === items.length - 1 ? before : between);
      return items.flatMap((value, i) => [...(i === 0 ? [] : [{ type: "literal", value: mark(i) }]), { type: "element", value }]);
    }
    const comma = type === "unit" && style === "narrow" ? " " : ", ";
    const word = { conjunction: { long: "and ", short: "& ", narrow: "" }[style], disjunction: "or ", unit: "" }[type];
    const isBare = items.length === 2 || !this.#isAmerican;
    const last = isBare ? (word === "" ? comma : ` ${word}`) : `${comma}${word}`;
    return items.flatMap((value, i) => [...(i === 0 ? [] : [{ type: "literal", value: i === items.length - 1 ? last : comma }]), { type: "element", value }]);
  }
  format(list) {
    return join(this.formatToParts(list));
  }
  resolvedOptions() {
    return { ...this.#settings };
  }
}
tagged(ListFormat, "ListFormat");

const UNITS = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"];
const SHORT = { second: ["sec.", "sec."], minute: ["min.", "min."], hour: ["hr.", "hr."], day: ["day", "days"], week: ["wk.", "wk."], month: ["mo.", "mo."], quarter: ["qtr.", "qtrs."], year: ["yr.", "yr."] };
const NARROW = { second: "s", minute: "m", hour: "h", day: "d", week: "w", month: "mo", quarter: "q", year: "y" };
const SPECIAL = { day: { "-1": "yesterday", 0: "today", 1: "tomorrow" }, second: { 0: "now" } };

class RelativeTimeFormat {
  #settings;
  #phrases;
  #numbers;
  #plurals = new PluralRules();
  constructor(locales, given) {
    const options = optionsOf(given, "RelativeTimeFormat");
    this.#phrases = (options.style ?? "long") === "long" ? phrasesOf(locales) : undefined;
    this.#numbers = new NumberFormat(this.#phrases?.tag);
    this.#settings = { locale: this.#phrases?.tag ?? LOCALE, style: choice(options, "style", ["long", "short", "narrow"], "long"), numeric: choice(options, "numeric", ["always", "auto"], "always"), numberingSystem: "latn" };
  }
  formatToParts(value, given) {
    const unit = String(given).replace(/s$/, "");
    if (!UNITS.includes(unit)) throw new RangeError(`Invalid unit argument for Intl.RelativeTimeFormat.prototype.format() '${given}'`);
    const number = Number(value);
    if (!Number.isFinite(number)) throw new RangeError("Invalid time value");
    const { style, numeric } = this.#settings;
    if (this.#phrases !== undefined) return this.#inLanguage(unit, number, numeric);
    const special = numeric === "auto" ? specialOf(unit, number, style) : undefined;
    if (special !== undefined) return [{ type: "literal", value: special }];
    const amount = Math.abs(number);
    const index = this.#plurals.select(amount) === "one" ? 0 : 1;
    const word = style === "long" ? ` ${unit}${index === 0 ? "" : "s"}` : style === "short" ? ` ${SHORT[unit][index]}` : NARROW[unit];
    const parts = this.#numbers.formatToParts(amount).map((part) => ({ ...part, unit }));
    const isPast = number < 0 || Object.is(number, -0);
    return isPast ? [...parts, { type: "literal", value: `${word} ago` }] : [{ type: "literal", value: "in " }, ...parts, { type: "literal", value: word }];
  }
  #inLanguage(unit, number, numeric) {
    const { relative, tag } = this.#phrases;
    const [future, past, special] = relative[unit];
    const known = numeric === "auto" ? special?.[Object.is(number, -0) ? 0 : number] : undefined;
    if (known !== undefined) return [{ type: "literal", value: known }];
    const amount = Math.abs(number);
    const { forms, select } = rulesOf(tag);
    const all = (number < 0 || Object.is(number, -0) ? past : future).split("|");
    const [before, after] = (all[forms.indexOf(select(String(amount)))] ?? all.at(-1)).split("#");
    const literal = (text) => (text ? [{ type: "literal", value: text }] : []);
    return [...literal(before), ...this.#numbers.formatToParts(amount).map((part) => ({ ...part, unit })), ...literal(after)];
  }
  format(value, unit) {
    return join(this.formatToParts(value, unit));
  }
  resolvedOptions() {
    return { ...this.#settings };
  }
}
tagged(RelativeTimeFormat, "RelativeTimeFormat");

function specialOf(unit, number, style) {
  const own = SPECIAL[unit]?.[Object.is(number, -0) ? 0 : number];
  if (own !== undefined || unit === "day" || unit === "second") return own;
  const word = style === "long" ? unit : SHORT[unit][0];
  if (number === 0) return `this ${unit === "minute" || unit === "hour" ? unit : word}`;
  if (unit === "minute" || unit === "hour") return undefined;
  return number === 1 ? `next ${word}` : number === -1 ? `last ${word}` : undefined;
}

// ---- The order of texts: letters before their case and their marks, as dictionaries have it

// What a character weighs: blanks, punctuation, symbols, digits, letters.
const CLASSES = [/^\s/u, /^[_-]/u, /^\p{P}/u, /^\p{S}/u, /^\p{N}/u];
const PUNCTUATION = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";
const weights = new Map();

function weightOf(letter) {
  let weight = weights.get(letter);
  if (weight === undefined) {
    const known = PUNCTUATION.indexOf(letter);
    const at = CLASSES.findIndex((one) => one.test(letter));
    weight = known >= 0 ? 0x1000 + known : (at < 0 ? CLASSES.length : at) * 0x200000 + letter.codePointAt(0);
    if (weights.size < 5000) weights.set(letter, weight);
  }
  return weight;
}

const differ = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const isDigit = (letter) => letter >= "0" && letter <= "9" && letter.length === 1;

// The digits from here on as one number without zeros in front, and where they end.
function numberAt(letters, from) {
  let to = from;
  while (to < letters.length && isDigit(letters[to])) to++;
  return [letters.slice(from, to).join("").replace(/^0+(?=\d)/, ""), to];
}

function comparePrimary(a, b, isNumeric, alphabet) {
  const weigh = (letter) => alphabet?.order.get(letter) ?? weightOf(letter);
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (isNumeric && isDigit(a[i]) && isDigit(b[j])) {
      const [left, iEnd] = numberAt(a, i);
      const [right, jEnd] = numberAt(b, j);
      if (left.length !== right.length) return left.length - right.length;
      if (left !== right) return differ(left, right);
      [i, j] = [iEnd, jEnd];
      continue;
    }
    if (a[i] !== b[j]) return weigh(a[i]) - weigh(b[j]);
    i++;
    j++;
  }
  return a.length - i - (b.length - j);
}

const compareLists = (a, b) => {
  for (let i = 0; i < Math.min(a.length, b.length); i++) if (a[i] !== b[i]) return differ(a[i], b[i]);
  return a.length - b.length;
};

// Of the first 128 characters, by their codes; filled when first needed.
const asciiWeights = new Float64Array(128);

// The order of two texts without marks and numbers, of the first 128 characters; undefined when there is another.
function compareAscii(left, right, upperFirst) {
  if (asciiWeights[97] === 0) for (let code = 0; code < 128; code++) asciiWeights[code] = weightOf(String.fromCharCode(code).toLowerCase());
  const length = Math.max(left.length, right.length);
  let order = 0;
  let cases = 0;
  for (let i = 0; i < length; i++) {
    const a = left.charCodeAt(i);
    const b = right.charCodeAt(i);
    if (a > 127 || b > 127) return undefined;
    if (a === b || order !== 0) continue;
    // Behind its end a text has no characters, and comes first.
    if (a !== a) order = -1;
    else if (b !== b) order = 1;
    else order = asciiWeights[a] - asciiWeights[b];
    if (order === 0 && cases === 0) cases = a > b ? -1 : 1;
  }
  return order !== 0 ? order : upperFirst ? -cases : cases;
}

function compareTexts(left, right, { sensitivity, numeric, caseFirst }, alphabet) {
  if (left === right) return 0;
  if (sensitivity === "variant" && !numeric && alphabet === undefined) {
    const order = compareAscii(left, right, caseFirst === "upper");
    if (order !== undefined) return Math.sign(order);
  }
  const [a, b] = [read(left, alphabet), read(right, alphabet)];
  let order = comparePrimary(a.letters, b.letters, numeric, alphabet);
  if (order === 0 && (sensitivity === "accent" || sensitivity === "variant")) order = compareLists(a.marks, b.marks);
  if (order === 0 && (sensitivity === "case" || sensitivity === "variant")) order = compareLists(a.cases, b.cases) * (caseFirst === "upper" ? -1 : 1);
  return Math.sign(order);
}

class Collator {
  #settings;
  #compare;
  #alphabet;
  constructor(locales, given) {
    const [tag] = canonicalLocales(locales);
    const options = optionsOf(given, "Collator");
    this.#alphabet = alphabetOf(tag, weightOf);
    this.#settings = {
      locale: tag !== undefined && (isKnown(tag) || /^en\b/.test(tag) || this.#alphabet !== undefined) ? tag : LOCALE, usage: choice(options, "usage", ["sort", "search"], "sort"), sensitivity: choice(options, "sensitivity", ["base", "accent", "case", "variant"], "variant"),
      ignorePunctuation: Boolean(options.ignorePunctuation), collation: "default", numeric: Boolean(options.numeric), caseFirst: choice(options, "caseFirst", ["upper", "lower", "false"], "false"),
    };
  }
  get compare() {
    const bare = (text) => (this.#settings.ignorePunctuation ? String(text).replace(/[\p{P}\s]/gu, "") : String(text));
    return (this.#compare ??= Object.defineProperty((a, b) => compareTexts(bare(a), bare(b), this.#settings, this.#alphabet), "name", { value: "" }));
  }
  resolvedOptions() {
    return { ...this.#settings };
  }
}
tagged(Collator, "Collator");

const usual = new Collator();
const localeCompare = (a, b, locales, options) => (options === undefined && locales === undefined ? usual : new Collator(locales, options)).compare(a, b);

// ---- Pieces of texts

const PIECES = {
  grapheme: /\r\n|\p{RI}\p{RI}|\p{L}\p{M}*|\p{Emoji}(?:\p{EMod}|\ufe0f\u20e3?|[\u{e0020}-\u{e007f}])*(?:\u200d\p{Emoji}(?:\p{EMod}|\ufe0f)*)*\p{M}*|[^]\p{M}*/gu,
  word: /[\p{L}\p{N}_]+(?:['’.]\p{L}+|[.,]\p{N}+)*\p{M}*|\r\n|[^\S\r\n]+|[^]\p{M}*/gu,
  sentence: /[^.!?\n]*(?:[.!?]+["')\]]*\s*|\n|$)/gu,
};

class Segmenter {
  #settings;
  constructor(locales, given) {
    supportedLocalesOf(locales);
    this.#settings = { locale: LOCALE, granularity: choice(optionsOf(given, "Segmenter"), "granularity", ["grapheme", "word", "sentence"], "grapheme") };
  }
  segment(given) {
    const input = String(given);
    const { granularity } = this.#settings;
    const pieces = function* () {
      for (const { 0: segment, index } of input.matchAll(PIECES[granularity])) {
        if (segment !== "") yield { segment, index, input, ...(granularity === "word" && { isWordLike: /[\p{L}\p{N}]/u.test(segment) }) };
      }
    };
    return { [Symbol.iterator]: pieces, containing: (at = 0) => [...pieces()].find(({ index, segment }) => at >= index && at < index + segment.length) };
  }
  resolvedOptions() {
    return { ...this.#settings };
  }
}
tagged(Segmenter, "Segmenter");

module.exports = { Collator, ListFormat, RelativeTimeFormat, Segmenter, localeCompare };
