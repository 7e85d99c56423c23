// Capitals and small letters of languages that have rules of their own.
const { canonicalLocales } = require("deno/intl/options.js");

const DOTTED = "\u0307";
const turkish = {
  lower: (text) => text.replace(/I\u0307|İ/g, "i").replaceAll("I", "ı").toLowerCase(),
  upper: (text) => text.replaceAll("i", "İ").toUpperCase(),
};
const RULES = {
  tr: turkish,
  az: turkish,
  // A letter keeps its dot below other marks.
  lt: {
    lower: (text) => text.replace(/[ÌÍĨ]/g, (letter) => letter.normalize("NFD")).replace(/[IJĮ](?=[\u0300\u0301\u0303])/g, (letter) => letter.toLowerCase() + DOTTED).toLowerCase(),
    upper: (text) => text.replace(/([ijį])\u0307/g, "$1").toUpperCase(),
  },
  // Capitals have no accents, but a dieresis, also where an accent has kept two vowels apart.
  el: {
    lower: (text) => text.toLowerCase(),
    upper: (text) =>
      text.normalize("NFD").replace(/([αεοΑΕΟ])\u0301([ιυΙΥ])(?!\u0308)/g, "$1$2\u0308").replace(/[\u0300\u0301\u0342\u0345]/g, "").normalize("NFC").toUpperCase(),
  },
};

// A text in small letters (`lower`) or capitals (`upper`), as the first language that is asked for has them.
function inCase(text, locales, way) {
  const [tag] = canonicalLocales(locales);
  const own = RULES[tag?.split("-")[0]];
  return own !== undefined ? own[way](text) : way === "lower" ? text.toLowerCase() : text.toUpperCase();
}

module.exports = { inCase };
