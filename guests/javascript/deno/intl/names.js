// Intl.DisplayNames, which knows English names, and Intl.Locale, which takes tags apart.
const { LOCALE, canonicalLocales, choice, optionsOf, supportedLocalesOf } = require("deno/intl/options.js");

const TYPES = ["language", "region", "script", "currency", "calendar", "dateTimeField"];
const FIELDS = {
  era: "era", year: "year", quarter: "quarter", month: "month", weekOfYear: "week", weekday: "day of the week", day: "day", dayPeriod: "AM/PM", hour: "hour",
  minute: "minute", second: "second", timeZoneName: "time zone",
};
const CALENDARS = { gregory: "Gregorian Calendar", iso8601: "ISO-8601 Calendar", japanese: "Japanese Calendar", buddhist: "Buddhist Calendar", hebrew: "Hebrew Calendar", chinese: "Chinese Calendar" };

const table = () => kit.library("names");

class DisplayNames {
  #settings;
  constructor(locales, given) {
    supportedLocalesOf(locales);
    if (given === undefined) throw new TypeError("Cannot convert undefined or null to object");
    const options = optionsOf(given, "DisplayNames");
    const style = choice(options, "style", ["long", "short", "narrow"], "long");
    const type = choice(options, "type", TYPES);
    if (type === undefined) throw new TypeError("Required option \"type\" must not be undefined");
    const fallback = choice(options, "fallback", ["code", "none"], "code");
    const languageDisplay = choice(options, "languageDisplay", ["dialect", "standard"], "dialect");
    this.#settings = { locale: LOCALE, style, type, fallback, ...(type === "language" ? { languageDisplay } : {}) };
  }
  of(given) {
    const { type, fallback, languageDisplay } = this.#settings;
    const code = String(given);
    const bad = () => {
      throw new RangeError(`Invalid argument to Intl.DisplayNames.prototype.of`);
    };
    const otherwise = (text) => (fallback === "code" ? text : undefined);
    if (type === "region") return /^(?:[a-z]{2}|\d{3})$/i.test(code) ? table().region[code.toUpperCase()] ?? otherwise(code.toUpperCase()) : bad();
    if (type === "currency") return /^[a-z]{3}$/i.test(code) ? table().currency[code.toUpperCase()] ?? otherwise(code.toUpperCase()) : bad();
    if (type === "dateTimeField") return FIELDS[code] ?? bad();
    if (type === "calendar") return CALENDARS[code] ?? otherwise(code);
    if (type === "script") {
      if (!/^[a-z]{4}$/i.test(code)) bad();
      const tag = code[0].toUpperCase() + code.slice(1).toLowerCase();
      return table().script[tag] ?? otherwise(tag);
    }
    const [tag] = canonicalLocales(code);
    const { language, script, region } = table();
    if (languageDisplay === "dialect" && language[tag] !== undefined) return language[tag];
    const [base, ...rest] = tag.split("-");
    if (language[base] === undefined) return otherwise(tag);
    const more = rest.map((part) => script[part] ?? region[part] ?? part);
    return more.length === 0 ? language[base] : `${language[base]} (${more.join(", ")})`;
  }
  resolvedOptions() {
    return { ...this.#settings };
  }
  static supportedLocalesOf = supportedLocalesOf;
  get [Symbol.toStringTag]() {
    return "Intl.DisplayNames";
  }
}

// Where a language is mostly at home, and how it is written there.
const LIKELY = {
  ar: "Arab-EG", bg: "Cyrl-BG", cs: "Latn-CZ", da: "Latn-DK", de: "Latn-DE", el: "Grek-GR", en: "Latn-US", es: "Latn-ES", fa: "Arab-IR", fi: "Latn-FI", fr: "Latn-FR",
  he: "Hebr-IL", hi: "Deva-IN", hu: "Latn-HU", id: "Latn-ID", it: "Latn-IT", ja: "Jpan-JP", ko: "Kore-KR", nb: "Latn-NO", nl: "Latn-NL", no: "Latn-NO", pl: "Latn-PL",
  pt: "Latn-BR", ro: "Latn-RO", ru: "Cyrl-RU", sv: "Latn-SE", th: "Thai-TH", tr: "Latn-TR", uk: "Cyrl-UA", vi: "Latn-VN", zh: "Hans-CN",
};
const KEYS = { ca: "calendar", co: "collation", hc: "hourCycle", kf: "caseFirst", nu: "numberingSystem" };

class Locale {
  #base;
  #keys = {};
  constructor(tag, given) {
    if (typeof tag !== "string" && typeof tag !== "object") throw new TypeError("First argument to Intl.Locale constructor can't be empty or missing");
    const [found] = canonicalLocales(String(tag));
    const [plain, extension = ""] = found.split(/-u-/);
    const words = extension.split("-");
    for (let i = 0; i < words.length; i++) if (words[i].length === 2) this.#keys[words[i]] = words[i + 1]?.length > 2 ? words[++i] : "";
    const options = optionsOf(given, "Locale");
    const [language, ...rest] = plain.split("-");
    const own = { language, script: rest.find((part) => part.length === 4 && /^\D/.test(part)), region: rest.find((part) => /^(?:[A-Z]{2}|\d{3})$/.test(part)) };
    const others = rest.filter((part) => part !== own.script && part !== own.region);
    for (const name of Object.keys(own)) if (options[name] !== undefined) own[name] = String(options[name]);
    this.#base = canonicalLocales([own.language, own.script, own.region, ...others].filter(Boolean).join("-"))[0];
    for (const [key, name] of Object.entries(KEYS)) if (options[name] !== undefined) this.#keys[key] = String(options[name]);
    if (options.numeric !== undefined) this.#keys.kn = options.numeric ? "" : "false";
  }
  get baseName() {
    return this.#base;
  }
  get language() {
    return this.#base.split("-")[0];
  }
  get script() {
    return this.#base.split("-").find((part, i) => i > 0 && part.length === 4 && /^\D/.test(part));
  }
  get region() {
    return this.#base.split("-").find((part, i) => i > 0 && /^(?:[A-Z]{2}|\d{3})$/.test(part));
  }
  get numeric() {
    return this.#keys.kn !== undefined && this.#keys.kn !== "false";
  }
  get calendar() {
    return this.#keys.ca;
  }
  get collation() {
    return this.#keys.co;
  }
  get hourCycle() {
    return this.#keys.hc;
  }
  get caseFirst() {
    return this.#keys.kf;
  }
  get numberingSystem() {
    return this.#keys.nu;
  }
  maximize() {
    const [script, region] = LIKELY[this.language]?.split("-") ?? [];
    return new Locale(this.toString(), { script: this.script ?? script, region: this.region ?? region });
  }
  minimize() {
    const [script, region] = LIKELY[this.language]?.split("-") ?? [];
    const parts = [this.language, this.script === script ? undefined : this.script, this.region === region ? undefined : this.region];
    return new Locale(parts.filter(Boolean).join("-") + this.toString().slice(this.#base.length));
  }
  getTextInfo() {
    return { direction: ["ar", "fa", "he", "ur", "yi", "ps", "dv"].includes(this.language) ? "rtl" : "ltr" };
  }
  get textInfo() {
    return this.getTextInfo();
  }
  toString() {
    const keys = Object.keys(this.#keys).sort().map((key) => (this.#keys[key] === "" ? key : `${key}-${this.#keys[key]}`));
    return keys.length === 0 ? this.#base : `${this.#base}-u-${keys.join("-")}`;
  }
  get [Symbol.toStringTag]() {
    return "Intl.Locale";
  }
}

module.exports = { DisplayNames, Locale };
