// Intl.NumberFormat and Intl.PluralRules.
const { LOCALE, canonicalLocales, choice, count, isKnown, join, languageOf, notationsOf, optionsOf, supportedLocalesOf } = require("deno/intl/options.js");
const { rulesOf } = require("deno/intl/plurals.js");
const decimal = require("deno/intl/decimal.js");
const { CURRENCY_DIGITS, CURRENCY_NAMES, NARROW_SYMBOLS, SYMBOLS, unitParts, isUnit } = require("deno/intl/units.js");

const ROUNDING = ["ceil", "floor", "expand", "trunc", "halfCeil", "halfFloor", "halfExpand", "halfTrunc", "halfEven"];
// Short numbers in English, as libraries/notations.js has them in other languages.
const COMPACT = { short: [[3, 3, "#K"], [6, 6, "#M"], [9, 9, "#B"], [12, 12, "#T"]], long: [[3, 3, "# thousand"], [6, 6, "# million"], [9, 9, "# billion"], [12, 12, "# trillion"]] };
const NBSP = "\u00a0";

// What says how many digits there are: fraction digits, significant ones, or both with the one that yields.
function digitOptions(options, leastDefault, mostDefault, notation) {
  const settings = { minimumIntegerDigits: count(options, "minimumIntegerDigits", 1, 21, 1) };
  const names = ["minimumFractionDigits", "maximumFractionDigits", "minimumSignificantDigits", "maximumSignificantDigits"];
  const [, , leastSignificant, mostSignificant] = names.map((name) => options[name]);
  const priority = choice(options, "roundingPriority", ["auto", "morePrecision", "lessPrecision"], "auto");
  if (leastSignificant !== undefined || mostSignificant !== undefined) {
    settings.minimumSignificantDigits = count(options, names[2], 1, 21, 1);
    settings.maximumSignificantDigits = count(options, names[3], settings.minimumSignificantDigits, 21, 21);
  }
  const hasFraction = options.minimumFractionDigits !== undefined || options.maximumFractionDigits !== undefined;
  if (settings.minimumSignificantDigits === undefined || priority !== "auto") {
    if (hasFraction || notation !== "compact") {
      const least = count(options, names[0], 0, 100, undefined);
      const most = count(options, names[1], 0, 100, undefined);
      if (least !== undefined && most !== undefined && least > most) throw new RangeError("maximumFractionDigits value is out of range.");
      settings.minimumFractionDigits = least ?? Math.min(leastDefault, most ?? leastDefault);
      settings.maximumFractionDigits = most ?? Math.max(mostDefault, settings.minimumFractionDigits);
    } else {
      // Two digits, or all of the whole number.
      Object.assign(settings, { minimumFractionDigits: 0, maximumFractionDigits: 0, minimumSignificantDigits: 1, maximumSignificantDigits: 2 });
      settings.isCompact = true;
    }
  }
  const roundingMode = choice(options, "roundingMode", ROUNDING, "halfExpand");
  const trailingZeroDisplay = choice(options, "trailingZeroDisplay", ["auto", "stripIfInteger"], "auto");
  return { ...settings, roundingIncrement: 1, roundingMode, roundingPriority: settings.isCompact ? "morePrecision" : priority, trailingZeroDisplay };
}

// A number rounded, and the digits that stand behind the point at least.
function rounded(number, settings) {
  const { minimumFractionDigits: least, maximumFractionDigits: most, roundingMode: mode } = settings;
  const byFraction = () => ({ value: decimal.toFraction(number, most, mode), zeros: least });
  const bySignificant = () => {
    const value = decimal.toSignificant(number, settings.maximumSignificantDigits, mode);
    return { value, zeros: Math.max(0, settings.minimumSignificantDigits - (value.digits === "" ? 1 : value.point)) };
  };
  if (settings.maximumSignificantDigits === undefined) return byFraction();
  if (most === undefined) return bySignificant();
  const finerIsSignificant = settings.maximumSignificantDigits - number.point >= most;
  return finerIsSignificant === (settings.roundingPriority === "morePrecision") ? bySignificant() : byFraction();
}

// How American English writes numbers: the point, what groups digits, the size of all groups but the last, digits that stand
// before the first mark at least, the minus, and where the signs stand.
const AMERICAN = { number: [".", ",", 3, 1, "-", "#%", "¤#", "-¤#"] };

function grouped(whole, useGrouping, [, , size, least]) {
  const digits = useGrouping === "min2" || (useGrouping === "auto" && least === 2) ? 4 : 3;
  if (useGrouping === false || whole.length <= digits) return [whole];
  const [before, last] = [whole.slice(0, -3), whole.slice(-3)];
  const first = before.length % size || size;
  return [before.slice(0, first), ...(before.slice(first).match(new RegExp(`\\d{${size}}`, "g")) ?? []), last];
}

function digitParts(number, settings, useGrouping, forms = AMERICAN.number) {
  const { value, zeros } = rounded(number, settings);
  const [whole, fraction] = decimal.sides(value, settings.minimumIntegerDigits, zeros);
  const groups = grouped(whole, useGrouping, forms);
  const parts = groups.flatMap((text, i) => (i === 0 ? [] : [{ type: "group", value: forms[1] }]).concat({ type: "integer", value: text }));
  const isStripped = settings.trailingZeroDisplay === "stripIfInteger" && /^0*$/.test(fraction);
  if (fraction !== "" && !isStripped) parts.push({ type: "decimal", value: forms[0] }, { type: "fraction", value: fraction });
  return { parts, value };
}

class NumberFormat {
  #settings;
  #format;
  #language = AMERICAN;

  constructor(locales, given) {
    supportedLocalesOf(locales);
    const options = optionsOf(given, "NumberFormat");
    const style = choice(options, "style", ["decimal", "percent", "currency", "unit"], "decimal");
    const settings = { locale: LOCALE, numberingSystem: "latn", style };
    if (options.currency !== undefined && !/^[a-z]{3}$/i.test(options.currency)) throw new RangeError(`Invalid currency code : ${options.currency}`);
    if (style === "currency") {
      if (options.currency === undefined) throw new TypeError("Currency code is required with currency style.");
      settings.currency = String(options.currency).toUpperCase();
      settings.currencyDisplay = choice(options, "currencyDisplay", ["symbol", "narrowSymbol", "code", "name"], "symbol");
      settings.currencySign = choice(options, "currencySign", ["standard", "accounting"], "standard");
    }
    if (style === "unit") {
      if (options.unit === undefined) throw new TypeError("Invalid unit argument for Intl.NumberFormat() ''");
      if (!isUnit(String(options.unit))) throw new RangeError(`Invalid unit argument for Intl.NumberFormat() '${options.unit}'`);
      settings.unit = String(options.unit);
      settings.unitDisplay = choice(options, "unitDisplay", ["short", "narrow", "long"], "short");
    }
    const notation = choice(options, "notation", ["standard", "scientific", "engineering", "compact"], "standard");
    const places = style === "currency" && notation === "standard" ? CURRENCY_DIGITS[settings.currency] ?? 2 : 0;
    const isPlain = style === "decimal" || style === "unit";
    const digits = digitOptions(options, places, isPlain ? 3 : places, notation);
    const compactDisplay = choice(options, "compactDisplay", ["short", "long"], "short");
    const { isCompact, minimumIntegerDigits, minimumFractionDigits, maximumFractionDigits, minimumSignificantDigits, maximumSignificantDigits, ...rounding } = digits;
    Object.assign(settings, Object.fromEntries(Object.entries({ minimumIntegerDigits, minimumFractionDigits, maximumFractionDigits, minimumSignificantDigits, maximumSignificantDigits }).filter(([, value]) => value !== undefined)));
    settings.useGrouping = groupingOf(options.useGrouping, notation);
    settings.notation = notation;
    if (notation === "compact") settings.compactDisplay = compactDisplay;
    settings.signDisplay = choice(options, "signDisplay", ["auto", "never", "always", "exceptZero", "negative"], "auto");
    Object.assign(settings, rounding);
    // Words for units and currencies are English, and so is all beside them.
    const hasWords = style === "unit" || settings.currencyDisplay === "name" || settings.currencySign === "accounting";
    const language = hasWords ? undefined : languageOf(locales);
    if (language !== undefined) {
      this.#language = language;
      settings.locale = language.tag;
    }
    this.#settings = settings;
  }

  get format() {
    return (this.#format ??= Object.defineProperty((value) => join(this.#partsOf(value)), "name", { value: "" }));
  }
  formatToParts(value) {
    return this.#partsOf(value);
  }
  formatRange(from, to) {
    const [start, end] = [this.format(from), this.format(to)];
    return start === end ? `~${start}` : this.#settings.style === "decimal" ? `${start}–${end}` : `${start} – ${end}`;
  }
  resolvedOptions() {
    return { ...this.#settings };
  }

  #partsOf(value) {
    const settings = this.#settings;
    let number = decimal.read(value);
    if (settings.style === "percent" && number.word === undefined) number = decimal.scaled(number, 2);
    const { sign, parts } = number.word === undefined ? this.#magnitude(number) : { sign: number.word === "NaN" ? 0 : number.sign, parts: [{ type: number.word === "NaN" ? "nan" : "infinity", value: number.word }] };
    const shown = this.#signOf(sign, number.sign);
    if (this.#language !== AMERICAN) return this.#arranged(parts, shown);
    const isAccounted = settings.currencySign === "accounting" && shown === "-";
    const whole = this.#dressed(parts, number);
    if (isAccounted) return [{ type: "literal", value: "(" }, ...whole, { type: "literal", value: ")" }];
    return shown === "" ? whole : [{ type: shown === "-" ? "minusSign" : "plusSign", value: shown }, ...whole];
  }

  // The sign that stands in front; `sign` is zero for zero.
  #signOf(sign, original) {
    switch (this.#settings.signDisplay) {
      case "never": return "";
      case "always": return original < 0 ? "-" : "+";
      case "exceptZero": return sign === 0 ? "" : sign < 0 ? "-" : "+";
      case "negative": return sign < 0 ? "-" : "";
      default: return original < 0 ? "-" : "";
    }
  }

  #magnitude(number) {
    const { notation, compactDisplay, useGrouping } = this.#settings;
    if (notation === "standard") {
      const { parts, value } = digitParts(number, this.#settings, useGrouping, this.#forms());
      return { sign: value.digits === "" ? 0 : number.sign, parts };
    }
    const isCompact = notation === "compact";
    const step = notation === "scientific" ? 1 : 3;
    const rows = isCompact ? (notationsOf(this.#language.tag) ?? COMPACT)[compactDisplay] : [];
    const rowOf = (one) => (one.digits === "" ? undefined : rows.findLast(([least]) => least < one.point));
    const powerOf = (one) => (one.digits === "" ? 0 : isCompact ? rowOf(one)?.[1] ?? 0 : Math.floor((one.point - 1) / step) * step);
    let power = powerOf(number);
    const shown = decimal.scaled(number, -power);
    // Rounding may lead to the next power.
    const up = decimal.scaled(rounded(shown, this.#settings).value, power);
    if (powerOf(up) > power) power = powerOf(up);
    const { parts, value } = digitParts(decimal.scaled(number, -power), this.#settings, useGrouping, this.#forms());
    const sign = value.digits === "" ? 0 : number.sign;
    if (isCompact) return { sign, parts: this.#worded(parts, rows.findLast((row) => row[1] === power)?.[2] ?? "#") };
    parts.push({ type: "exponentSeparator", value: "E" });
    if (power < 0) parts.push({ type: "exponentMinusSign", value: "-" });
    parts.push({ type: "exponentInteger", value: String(Math.abs(power)) });
    return { sign, parts };
  }

  // A short number with the word for what was left out, in the form that goes with it.
  #worded(parts, pattern) {
    const forms = pattern.split("|");
    const text = join(parts.filter(({ type }) => type !== "group").map((part) => (part.type === "decimal" ? { value: "." } : part)));
    const rules = rulesOf(this.#language.tag);
    let form = forms.length === 1 ? pattern : forms[rules.forms.indexOf(rules.select(text))];
    // One that stands for the number itself is for one alone.
    if (!form.includes("#") && text !== "1") form = forms.at(-1);
    return form.split(/(#|[ \u00a0\u202f])/).filter((piece) => piece !== "").flatMap((piece) =>
      piece === "#" ? parts : [{ type: /^\s$/.test(piece) ? "literal" : "compact", value: piece }]);
  }

  // How the language writes numbers; those of money may have marks of their own.
  #forms() {
    const { number, money } = this.#language;
    return money !== undefined && this.#settings.style === "currency" ? [...money, ...number.slice(2)] : number;
  }

  // A number with its signs where another language has them.
  #arranged(parts, shown) {
    const [, , , , minus, percent, money, negativeMoney] = this.#language.number;
    const { style } = this.#settings;
    const symbol = style === "currency" ? this.#symbol() : "";
    const sign = shown === "" ? [] : [{ type: shown === "-" ? "minusSign" : "plusSign", value: shown === "-" ? minus : shown }];
    const plain = style === "percent" ? percent : style === "currency" ? money : "#";
    const pattern = sign.length === 0 ? plain : style === "currency" ? negativeMoney : `-${plain}`;
    const pieces = { "#": parts, "-": sign, "¤": [{ type: "currency", value: symbol }], "%": [{ type: "percentSign", value: "%" }] };
    return [...pattern].flatMap((letter, i, all) => {
      const gap = letter === "¤" && all[i + 1] === "#" && /[a-z]$/i.test(symbol) ? [{ type: "literal", value: NBSP }] : [];
      return [...(pieces[letter] ?? [{ type: "literal", value: letter }]), ...gap];
    });
  }

  #symbol() {
    const { currency, currencyDisplay } = this.#settings;
    if (currencyDisplay === "code") return currency;
    const narrow = currencyDisplay === "narrowSymbol" ? NARROW_SYMBOLS[currency] : undefined;
    return narrow ?? this.#language.symbols?.[currency] ?? SYMBOLS[currency] ?? currency;
  }

  // With what the number is of: a currency, a unit, hundredths.
  #dressed(parts, number) {
    const { style, currency, currencyDisplay, unit, unitDisplay } = this.#settings;
    if (style === "percent") return [...parts, { type: "percentSign", value: "%" }];
    const isOne = join(parts) === "1";
    if (style === "unit") return unitParts(parts, unit, unitDisplay, isOne);
    if (style !== "currency") return parts;
    if (currencyDisplay === "name") {
      const [one, many] = CURRENCY_NAMES[currency] ?? [currency, currency];
      return [...parts, { type: "literal", value: " " }, { type: "currency", value: isOne ? one : many }];
    }
    const symbol = this.#symbol();
    const gap = /[a-z]$/i.test(symbol) ? [{ type: "literal", value: NBSP }] : [];
    return [{ type: "currency", value: symbol }, ...gap, ...parts];
  }

  static supportedLocalesOf = supportedLocalesOf;
  get [Symbol.toStringTag]() {
    return "Intl.NumberFormat";
  }
}

function groupingOf(value, notation) {
  if (value === undefined || value === "true" || value === "false") return notation === "compact" ? "min2" : "auto";
  if (value === true) return "always";
  if (value === false || value === null || value === "") return false;
  return choice(optionsOf({ useGrouping: value }, "NumberFormat"), "useGrouping", ["min2", "auto", "always"]);
}

class PluralRules {
  #settings;
  #rules;
  #digits;
  constructor(locales, given) {
    supportedLocalesOf(locales);
    const options = optionsOf(given, "PluralRules");
    const type = choice(options, "type", ["cardinal", "ordinal"], "cardinal");
    this.#digits = digitOptions(options, 0, 3, "standard");
    const { minimumIntegerDigits, minimumFractionDigits, maximumFractionDigits } = this.#digits;
    const [asked] = canonicalLocales(locales);
    const isOther = type === "cardinal" && asked !== undefined && isKnown(asked);
    this.#rules = rulesOf(isOther ? asked : LOCALE);
    const pluralCategories = type === "cardinal" ? [...this.#rules.forms] : ["few", "one", "two", "other"];
    this.#settings = { locale: isOther ? asked : LOCALE, type, minimumIntegerDigits, minimumFractionDigits, maximumFractionDigits, pluralCategories };
  }
  select(value) {
    const number = decimal.read(value);
    if (number.word !== undefined) return "other";
    const text = join(digitParts(number, this.#digits, false).parts);
    if (this.#settings.type === "cardinal") return this.#rules.select(text.replace("-", ""));
    const [, tens, ones] = /(\d?)(\d)$/.exec(text) ?? [];
    if (text.includes(".") || tens === "1") return "other";
    return { 1: "one", 2: "two", 3: "few" }[ones] ?? "other";
  }
  resolvedOptions() {
    return { ...this.#settings };
  }
  static supportedLocalesOf = supportedLocalesOf;
  get [Symbol.toStringTag]() {
    return "Intl.PluralRules";
  }
}

// The formatters that `toLocaleString` without options uses.
const plain = new NumberFormat();
const others = new Map();
function toLocale(value, locales, options) {
  if (options !== undefined) return new NumberFormat(locales, options).format(value);
  const tag = languageOf(locales)?.tag; // throws when it is none
  if (tag === undefined) return plain.format(value);
  if (!others.has(tag)) others.set(tag, new NumberFormat(tag));
  return others.get(tag).format(value);
}

module.exports = { NumberFormat, PluralRules, toLocale };
