// Intl, and `toLocaleString` and its kin, in American English: see intl/options.js.
const { canonicalLocales } = require("deno/intl/options.js");
const numbers = require("deno/intl/numbers.js");
const dates = require("deno/intl/dates.js");
const { Collator, ListFormat, RelativeTimeFormat, Segmenter, localeCompare } = require("deno/intl/words.js");
const { DisplayNames, Locale } = require("deno/intl/names.js");
const { names } = require("deno/intl/zones.js");
const { inCase } = require("deno/intl/cases.js");

// Those of the first edition can be called without `new`.
const callable = (Class, length) => {
  const made = function (locales, options) {
    return Reflect.construct(Class, [locales, options], new.target ?? Class);
  };
  Object.defineProperties(made, { name: { value: Class.name }, length: { value: length }, prototype: { value: Class.prototype }, supportedLocalesOf: { value: Class.supportedLocalesOf, writable: true, configurable: true } });
  Object.defineProperty(Class.prototype, "constructor", { value: made, writable: true, configurable: true });
  return made;
};

const Intl = {
  Collator: callable(Collator, 0), DateTimeFormat: callable(dates.DateTimeFormat, 0), ListFormat, NumberFormat: callable(numbers.NumberFormat, 0),
  DisplayNames, Locale, PluralRules: numbers.PluralRules, RelativeTimeFormat, Segmenter,
  getCanonicalLocales: (locales) => [...new Set(canonicalLocales(locales))],
  supportedValuesOf(key) {
    if (key === "timeZone") return names();
    if (key === "currency") return Object.keys(kit.library("names").currency).sort();
    if (key === "calendar") return ["gregory"];
    if (key === "numberingSystem") return ["latn"];
    if (key === "collation" || key === "unit") return [];
    throw new RangeError(`Invalid key : ${key}`);
  },
};
Intl.DurationFormat = function () {
  throw kit.unsupported("Intl.DurationFormat", "Intl.RelativeTimeFormat writes spans of time, and Intl.NumberFormat units");
};
for (const name of Object.keys(Intl)) Object.defineProperty(Intl, name, { enumerable: false });
Object.defineProperty(Intl, Symbol.toStringTag, { value: "Intl", configurable: true });

module.exports = { Intl, inCase, localeCompare, numberToLocale: numbers.toLocale, dateToLocale: dates.toLocale };
