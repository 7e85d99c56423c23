// Addresses of networks, which need no network to be told apart.
const { coded } = require("deno/network/ports.js");

const V4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.|$)){4}$/;
const isIPv4 = (text) => V4.test(String(text)) && !String(text).endsWith(".");
// The eight groups of an address, as the parser of URLs writes it.
function groupsOf(text) {
  const [, address] = /^([\da-f:.]*:[\da-f:.]*)(?:%[\da-z.:-]+)?$/i.exec(String(text)) ?? [];
  if (address === undefined || host.parseUrl(`http://[${address}]/`, undefined, new Uint32Array(8)) === undefined) return undefined;
  const [head, tail] = new URL(`http://[${address}]/`).hostname.slice(1, -1).split("::");
  const parts = (piece) => (piece ? piece.split(":") : []);
  const [first, last] = [parts(head), parts(tail)];
  return [...first, ...Array(8 - first.length - last.length).fill("0"), ...last].map((group) => parseInt(group, 16));
}
const isIPv6 = (text) => groupsOf(text) !== undefined;
const isIP = (text) => (isIPv4(text) ? 4 : isIPv6(text) ? 6 : 0);

function numberOf(address, family) {
  const [parts, bits] = family === "ipv6" ? [groupsOf(address), 16n] : [String(address).split("."), 8n];
  return parts.reduce((sum, part) => (sum << bits) | BigInt(part), 0n);
}

function checked(address, family) {
  const is = family === "ipv6" ? isIPv6 : isIPv4;
  if (!is(address)) throw coded("ERR_INVALID_ADDRESS", "Invalid address");
  return numberOf(address, family);
}

class SocketAddress {
  constructor({ address, family = "ipv4", port = 0, flowlabel = 0 } = {}) {
    Object.assign(this, { address: address ?? (family === "ipv6" ? "::" : "127.0.0.1"), family, port, flowlabel });
    checked(this.address, family);
  }
  static isSocketAddress(value) {
    return value instanceof SocketAddress;
  }
}

const plain = (address, family) => (address instanceof SocketAddress ? [address.address, address.family] : [address, family]);

class BlockList {
  #ranges = [];
  #rules = [];
  static isBlockList(value) {
    return value instanceof BlockList;
  }
  get rules() {
    return [...this.#rules];
  }
  #add(family, first, last, rule) {
    this.#ranges.push({ family, first, last });
    this.#rules.unshift(rule);
  }
  addAddress(given, of = "ipv4") {
    const [address, family] = plain(given, of);
    const number = checked(address, family);
    this.#add(family, number, number, `Address: ${family === "ipv6" ? "IPv6" : "IPv4"} ${address}`);
  }
  addRange(from, to, of = "ipv4") {
    const [start, family] = plain(from, of);
    const [end] = plain(to, of);
    this.#add(family, checked(start, family), checked(end, family), `Range: ${family === "ipv6" ? "IPv6" : "IPv4"} ${start}-${end}`);
  }
  addSubnet(given, prefix, of = "ipv4") {
    const [net, family] = plain(given, of);
    const rest = BigInt((family === "ipv6" ? 128 : 32) - prefix);
    const first = (checked(net, family) >> rest) << rest;
    this.#add(family, first, first | ((1n << rest) - 1n), `Subnet: ${family === "ipv6" ? "IPv6" : "IPv4"} ${net}/${prefix}`);
  }
  check(given, of = "ipv4") {
    const [address, family] = plain(given, of);
    const number = checked(address, family);
    return this.#ranges.some((range) => range.family === family && range.first <= number && number <= range.last);
  }
}

module.exports = { BlockList, SocketAddress, isIP, isIPv4, isIPv6 };
