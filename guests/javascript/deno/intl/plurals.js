// Which form of a word goes with a number, in the languages that are known: as Unicode's CLDR has it for the digits that are
// written.
const isWhole = (text) => !text.includes(".");
const lasts = (text) => [Number(text.slice(-1)), Number(text.slice(-2))];
const isFew = ([one, two]) => one >= 2 && one <= 4 && !(two >= 12 && two <= 14);

const ONE = { forms: ["one", "other"], select: (text) => (text === "1" ? "one" : "other") };
const UP_TO_ONE = { forms: ["one", "other"], select: (text) => (/^[01](?:\.|$)/.test(text) ? "one" : "other") };
const NONE = { forms: ["other"], select: () => "other" };
const EASTERN = {
  forms: ["one", "few", "many", "other"],
  select(text) {
    if (!isWhole(text)) return "other";
    const [one, two] = lasts(text);
    return one === 1 && two !== 11 ? "one" : isFew([one, two]) ? "few" : "many";
  },
};
const RULES = {
  de: ONE, en: ONE, es: ONE, it: ONE, nl: ONE, sv: ONE, nb: ONE, no: ONE, fi: ONE, hu: ONE, tr: ONE, fr: UP_TO_ONE, pt: UP_TO_ONE,
  ja: NONE, zh: NONE, ko: NONE, vi: NONE, id: NONE, ru: EASTERN, uk: EASTERN,
  da: { forms: ["one", "other"], select: (text) => (text === "1" || /^0\.\d*[1-9]/.test(text) || /^1\./.test(text) ? "one" : "other") },
  hi: { forms: ["one", "other"], select: (text) => (/^0(?:\.|$)/.test(text) || text === "1" ? "one" : "other") },
  pl: { forms: ["one", "few", "many", "other"], select: (text) => (!isWhole(text) ? "other" : text === "1" ? "one" : isFew(lasts(text)) ? "few" : "many") },
  cs: { forms: ["one", "few", "many", "other"], select: (text) => (!isWhole(text) ? "many" : text === "1" ? "one" : /^[2-4]$/.test(text) ? "few" : "other") },
  ro: {
    forms: ["one", "few", "other"],
    select(text) {
      if (text === "1") return "one";
      const [, two] = lasts(text);
      return !isWhole(text) || text === "0" || (two >= 1 && two <= 19) ? "few" : "other";
    },
  },
};

// The rules of a language, by its tag; English ones where it is not known.
const rulesOf = (tag) => RULES[tag?.split("-")[0]] ?? ONE;

module.exports = { rulesOf };
