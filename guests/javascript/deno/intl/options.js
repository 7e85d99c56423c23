// What all services of Intl share: locales and how options are read.
//
// Words are American English. Numbers, dates, lists and spans of time are written as some other languages have them, whose forms are a library that
// is loaded when one of them is asked for. Whatever else is asked for is American English, and `resolvedOptions().locale`
// says so.
const LOCALE = "en-US";
const LANGUAGES = ["cs", "da", "de", "es", "fi", "fr", "hi", "hu", "id", "it", "ja", "ko", "nb", "nl", "no", "pl", "pt", "ro", "ru", "sv", "tr", "uk", "vi", "zh"];
let languages;

const isKnown = (tag) => tag === "en-IN" || (LANGUAGES.includes(tag.split("-")[0]) && !/^zh-(?:Hant|TW|HK|MO)/.test(tag));

// The forms of the first language that is asked for, with its tag; none for English, and what is not known.
function languageOf(locales) {
  const [tag] = canonicalLocales(locales);
  if (tag === undefined || !isKnown(tag)) return undefined;
  languages ??= kit.library("languages");
  const [base, ...rest] = tag.split("-");
  const region = rest.find((part) => part.length === 2);
  const forms = languages[`${base}-${region}`] ?? languages[base === "no" ? "nb" : base];
  return { ...forms, tag };
}

// What a library has of the language of a tag, such as phrases.
const ofLanguage = (library, tag) => (tag === undefined ? undefined : kit.library(library)[tag.startsWith("no") ? "nb" : tag.split("-")[0]]);

// Its short numbers and clocks of 12 hours.
function notationsOf(tag) {
  if (tag === undefined) return undefined;
  const notations = kit.library("notations");
  return notations[tag] ?? notations[tag.startsWith("no") ? "nb" : tag.split("-")[0]];
}

// Tags as they should be written: `EN-us` is `en-US`.
function canonicalLocales(locales) {
  if (locales === undefined) return [];
  const list = typeof locales === "string" || typeof locales[Symbol.iterator] !== "function" ? [String(locales)] : Array.from(locales, String);
  return list.map((tag) => {
    if (!/^[a-z]{2,8}(?:-[a-z\d]{1,8})*$/i.test(tag)) throw new RangeError(`Incorrect locale information provided`);
    return tag.split("-").map((part, i, all) => {
      const isPlain = i > 0 && !all.slice(1, i).some((one) => one.length === 1);
      if (isPlain && /^[a-z]{4}$/i.test(part)) return part[0].toUpperCase() + part.slice(1).toLowerCase();
      return isPlain && part.length === 2 ? part.toUpperCase() : part.toLowerCase();
    }).join("-");
  });
}

const supportedLocalesOf = (locales) => canonicalLocales(locales).filter((tag) => tag === "en" || tag.startsWith("en-") || isKnown(tag));

// An option that is one of a few words. `options` comes from `optionsOf`, and knows whose it is.
function choice(options, name, words, otherwise) {
  const value = options[name];
  if (value === undefined) return otherwise;
  const text = String(value);
  if (!words.includes(text)) throw new RangeError(`Value ${text} out of range for ${services.get(options)} options property ${name}`);
  return text;
}

// An option that is a whole number.
function count(options, name, least, most, otherwise) {
  const value = options[name];
  if (value === undefined) return otherwise;
  const number = Math.floor(Number(value));
  if (!(number >= least && number <= most)) throw new RangeError(`${name} value is out of range.`);
  return number;
}

// The service that options are given to, for messages.
const services = new WeakMap();

function optionsOf(given, service) {
  if (given === null) throw new TypeError("Cannot convert undefined or null to object");
  const options = given === undefined ? {} : Object(given);
  services.set(options, `Intl.${service}`);
  return options;
}

const join = (parts) => parts.map((part) => part.value).join("");

module.exports = { LOCALE, canonicalLocales, choice, count, join, isKnown, languageOf, notationsOf, ofLanguage, optionsOf, supportedLocalesOf };
