// The characters of East Asian encodings, in the form that `deno/runtime/wide_text.js` reads.
module.exports = {
  big5: [require("iconv-lite/encodings/tables/cp950.json"), require("iconv-lite/encodings/tables/big5-added.json")],
  "euc-jp": [require("iconv-lite/encodings/tables/eucjp.json")],
  "euc-kr": [require("iconv-lite/encodings/tables/cp949.json")],
  gb18030: [require("iconv-lite/encodings/tables/cp936.json"), require("iconv-lite/encodings/tables/gbk-added.json")],
  shift_jis: [require("iconv-lite/encodings/tables/shiftjis.json")],
  ranges: require("iconv-lite/encodings/tables/gb18030-ranges.json"),
};
