// The order of letters in languages that have more of them than English, as Unicode's CLDR has it.

// Chains of letters, each behind the one before; letters that count for another one, with a mark; how capitals become small.
const ALPHABETS = {
  cs: ["c<č h<ch r<ř s<š z<ž"],
  da: ["z<æ<ø<å", { ä: "æ", ö: "ø", ő: "ø", aa: "å", ü: "y" }],
  es: ["n<ñ"],
  et: ["s<š<z̄<ž w<õ<ä<ö<ü", { z: "z̄" }],
  fi: ["z<å<ä<ö", { æ: "ä", ø: "ö", ü: "y", đ: "d" }],
  hr: ["c<č<ć d<dž<đ l<lj n<nj s<š z<ž"],
  hu: ["c<cs d<dz<dzs g<gy l<ly n<ny o<ö s<sz t<ty u<ü z<zs", { ő: "ö", ű: "ü" }],
  pl: ["a<ą c<ć e<ę l<ł n<ń o<ó s<ś z<ź<ż"],
  ro: ["a<ă<â i<î s<ș t<ț", { ş: "ș", ţ: "ț" }],
  sv: ["z<å<ä<ö", { æ: "ä", ę: "ä", ø: "ö", ő: "ö", œ: "ö", ü: "y", ű: "y" }],
  tr: ["c<ç g<ğ h<ı o<ö s<ş u<ü", {}, { I: "ı", İ: "i" }],
  vi: ["a<ă<â d<đ e<ê o<ô<ơ u<ư"],
};
const SAME = { nb: "da", nn: "da", no: "da", sk: "cs", bs: "hr", az: "tr" };

// What is written with two letters, or is one of ours with a mark.
const EXPANDED = { ß: "ss", æ: "ae", œ: "oe", ø: "o\u0338", ł: "l\u0335", đ: "d\u0335", ð: "d\u0335", þ: "th" };
const MARKS = /\p{M}/u;
const LONGEST = 3;

const made = new Map();

// The alphabet of a language with rules of its own; undefined for others.
function alphabetOf(tag, weightOf) {
  const language = tag?.split("-")[0];
  const name = SAME[language] ?? language;
  if (!Object.hasOwn(ALPHABETS, name)) return undefined;
  if (!made.has(name)) {
    const [chains, others = {}, small = {}] = ALPHABETS[name];
    const order = new Map();
    for (const chain of chains.split(" ")) {
      const [first, ...behind] = chain.split("<");
      behind.forEach((letter, i) => order.set(letter, weightOf(first) + (i + 1) / 64));
    }
    made.set(name, { order, others: new Map(Object.entries(others)), small, hasSeveral: [...order.keys(), ...Object.keys(others)].some((letter) => letter.length > 1) });
  }
  return made.get(name);
}

// The letters of a text, in small ones; and for each its marks, and whether it is a capital.
function read(text, alphabet) {
  const letters = [], marks = [], cases = [];
  const put = (letter, mark, isCapital) => {
    letters.push(letter);
    marks.push(mark);
    cases.push(isCapital);
  };
  const plain = (given, isCapital) => {
    for (const one of (EXPANDED[given] ?? given).normalize("NFD")) {
      if (!MARKS.test(one)) put(one, given in EXPANDED ? "\u0335" : "", isCapital);
      else if (marks.length > 0) marks[marks.length - 1] += one;
    }
  };
  const all = [...text.normalize("NFC")];
  const lower = (one) => alphabet?.small[one] ?? one.toLowerCase();
  for (let i = 0; i < all.length; ) {
    let length = alphabet?.hasSeveral ? LONGEST : 1;
    let letter;
    for (; length > 0; length--) {
      letter = all.slice(i, i + length).map(lower).join("");
      if (alphabet?.order.has(letter) || alphabet?.others.has(letter)) break;
    }
    const isCapital = letter !== "" && lower(all[i]) !== all[i] ? 1 : 0;
    if (length === 0) plain(lower(all[i]), isCapital);
    else if (alphabet.order.has(letter)) put(letter, "", isCapital);
    else put(alphabet.others.get(letter), "\u0335", isCapital);
    i += Math.max(1, length);
  }
  return { letters, marks, cases };
}

module.exports = { alphabetOf, read };
