// Currencies and units in American English.
const NBSP = "\u00a0";

const SYMBOLS = {
  USD: "$", EUR: "€", GBP: "£", JPY: "¥", INR: "₹", CNY: "CN¥", KRW: "₩", BRL: "R$", CAD: "CA$", AUD: "A$", MXN: "MX$", NZD: "NZ$", HKD: "HK$",
  TWD: "NT$", ILS: "₪", VND: "₫", PHP: "₱", XAF: "FCFA", XOF: `F${NBSP}CFA`, XCD: "EC$", XPF: "CFPF",
};
const NARROW_SYMBOLS = {
  CNY: "¥", CAD: "$", AUD: "$", MXN: "$", NZD: "$", HKD: "$", TWD: "$", SGD: "$", ARS: "$", CLP: "$", COP: "$", XCD: "$", DKK: "kr", NOK: "kr", SEK: "kr",
  ISK: "kr", CZK: "Kč", PLN: "zł", HUF: "Ft", RUB: "₽", TRY: "₺", UAH: "₴", NGN: "₦", PKR: "Rs", EGP: "E£", ZAR: "R", KZT: "₸", RON: "lei",
};
const CURRENCY_DIGITS = {
  JPY: 0, KRW: 0, VND: 0, CLP: 0, ISK: 0, UGX: 0, XAF: 0, XOF: 0, XPF: 0, PYG: 0, RWF: 0, KMF: 0, DJF: 0, GNF: 0, VUV: 0, BIF: 0,
  BHD: 3, IQD: 0, JOD: 3, KWD: 3, LYD: 3, OMR: 3, TND: 3,
};
const CURRENCY_NAMES = {
  USD: ["US dollar", "US dollars"], EUR: ["euro", "euros"], GBP: ["British pound", "British pounds"], JPY: ["Japanese yen", "Japanese yen"],
  INR: ["Indian rupee", "Indian rupees"], CNY: ["Chinese yuan", "Chinese yuan"], KRW: ["South Korean won", "South Korean won"],
  BRL: ["Brazilian real", "Brazilian reals"], CAD: ["Canadian dollar", "Canadian dollars"], AUD: ["Australian dollar", "Australian dollars"],
  MXN: ["Mexican peso", "Mexican pesos"], NZD: ["New Zealand dollar", "New Zealand dollars"], CHF: ["Swiss franc", "Swiss francs"],
  SEK: ["Swedish krona", "Swedish kronor"], NOK: ["Norwegian krone", "Norwegian kroner"], DKK: ["Danish krone", "Danish kroner"],
  PLN: ["Polish zloty", "Polish zlotys"], CZK: ["Czech koruna", "Czech korunas"], HUF: ["Hungarian forint", "Hungarian forints"],
  HKD: ["Hong Kong dollar", "Hong Kong dollars"], SGD: ["Singapore dollar", "Singapore dollars"], TRY: ["Turkish lira", "Turkish Lira"],
  RUB: ["Russian ruble", "Russian rubles"], ZAR: ["South African rand", "South African rand"], ILS: ["Israeli new shekel", "Israeli new shekels"],
  THB: ["Thai baht", "Thai baht"], UAH: ["Ukrainian hryvnia", "Ukrainian hryvnias"],
};

// short, narrow, and the long word for one: `_` stands for the blank in front, and what has one word for all ends in `=`.
const UNITS = {
  acre: "_ac ac acre", bit: "_bit bit bit", byte: "_byte B byte", celsius: "°C °C degree_Celsius", centimeter: "_cm cm centimeter",
  day: "_day d day", degree: "_deg ° degree", fahrenheit: "°F ° degree_Fahrenheit", "fluid-ounce": "_fl_oz fl_oz fluid_ounce", foot: "_ft ′ foot",
  gallon: "_gal gal gallon", gigabit: "_Gb Gb gigabit", gigabyte: "_GB GB gigabyte", gram: "_g g gram", hectare: "_ha ha hectare", hour: "_hr h hour",
  inch: "_in ″ inch", kilobit: "_kb kb kilobit", kilobyte: "_kB kB kilobyte", kilogram: "_kg kg kilogram", kilometer: "_km km kilometer",
  liter: "_L L liter", megabit: "_Mb Mb megabit", megabyte: "_MB MB megabyte", meter: "_m m meter", microsecond: "_μs μs microsecond", mile: "_mi mi mile",
  "mile-scandinavian": "_smi smi mile-scandinavian", milliliter: "_mL mL milliliter", millimeter: "_mm mm millimeter", millisecond: "_ms ms millisecond",
  minute: "_min m minute", month: "_mth m month", nanosecond: "_ns ns nanosecond", ounce: "_oz oz ounce", percent: "% % percent=", petabyte: "_PB PB petabyte",
  pound: "_lb # pound", second: "_sec s second", stone: "_st st stone", terabit: "_Tb Tb terabit", terabyte: "_TB TB terabyte", week: "_wk w week",
  yard: "_yd yd yard", year: "_yr y year",
};
// Short ones that have a plural, and long ones whose plural is no `s`.
const SHORT_PLURALS = { day: "days", month: "mths", week: "wks", year: "yrs", byte: "byte", bit: "bit" };
const LONG_PLURALS = { foot: "feet", inch: "inches", stone: "stones", celsius: "degrees Celsius", fahrenheit: "degrees Fahrenheit" };
// Rates with a name of their own.
const RATES = { "mile-per-hour": ["_mph", "mph"], "mile-per-gallon": ["_mpg", "mpg"], "kilometer-per-hour": ["_km/h", "km/h"], "meter-per-second": ["_m/s", "m/s"] };
const PER = { hour: "h", second: "s", minute: "min", day: "d", liter: "L", kilometer: "km", meter: "m", gallon: "gal" };

const isUnit = (name) => name.split("-per-").every((one) => Object.hasOwn(UNITS, one)) && name.split("-per-").length <= 2;

// The word behind a number, with the blank in front.
function wordOf(unit, display, isOne) {
  const [base, per] = unit.split("-per-");
  const [short, narrow, long] = UNITS[base].split(" ");
  if (display === "long") {
    const one = long.replace(/=$/, "").replaceAll("_", " ");
    const word = isOne || long.endsWith("=") ? one : LONG_PLURALS[base] ?? `${one}s`;
    return ` ${word}${per === undefined ? "" : ` per ${UNITS[per].split(" ")[2].replaceAll("_", " ")}`}`;
  }
  if (Object.hasOwn(RATES, unit)) return RATES[unit][display === "short" ? 0 : 1].replaceAll("_", " ");
  const text = display === "narrow" ? narrow : !isOne && SHORT_PLURALS[base] !== undefined ? `_${SHORT_PLURALS[base]}` : short;
  return `${text.replaceAll("_", " ")}${per === undefined ? "" : `/${PER[per] ?? UNITS[per].split(" ")[1]}`}`;
}

function unitParts(parts, unit, display, isOne) {
  const word = wordOf(unit, display, isOne);
  const type = unit === "percent" && display !== "long" ? "percentSign" : "unit";
  return word.startsWith(" ") ? [...parts, { type: "literal", value: " " }, { type, value: word.slice(1) }] : [...parts, { type, value: word }];
}

module.exports = { CURRENCY_DIGITS, CURRENCY_NAMES, NARROW_SYMBOLS, SYMBOLS, isUnit, unitParts };
