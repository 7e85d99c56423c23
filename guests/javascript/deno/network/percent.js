// Bytes of text with %xx in it.
function decode(text) {
  const bytes = host.encodeText(text);
  let length = 0;
  for (let i = 0; i < bytes.length; i++, length++) {
    const digits = bytes[i] === 0x25 ? host.decodeLatin1(bytes.subarray(i + 1, i + 3), 0xff) : "";
    const escaped = /^[\da-f]{2}$/i.test(digits);
    bytes[length] = escaped ? Number.parseInt(digits, 16) : bytes[i];
    if (escaped) i += 2;
  }
  return bytes.subarray(0, length);
}

module.exports = { decode };
