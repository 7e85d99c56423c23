// Values as text, by the code of Node's util.inspect. What it asks of Node's engine is in prelude/inspect.js.
import util from "node-inspect-extracted";

export const { inspect, format, formatWithOptions, stripVTControlCharacters } = util;
