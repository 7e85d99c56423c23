"""AES for pypdf, which has it of packages in native code that are not here. Decryption takes all blocks at once, with NumPy."""

import secrets


def _tables():
    """The substitution of bytes and its inverse, and the products of bytes with the factors that mixing columns needs."""
    double = [(value << 1) ^ (0x11B if value & 0x80 else 0) for value in range(256)]
    power, inverse, value = [0] * 256, [0] * 256, 1
    for exponent in range(255):
        power[exponent] = value
        value ^= double[value]
    logarithm = {value: exponent for exponent, value in enumerate(power[:255])}
    for value in range(1, 256):
        inverse[value] = power[(255 - logarithm[value]) % 255]
    forward = []
    for value in inverse:
        turned = value * 0x101
        mixed = value ^ (turned >> 7) ^ (turned >> 6) ^ (turned >> 5) ^ (turned >> 4)
        forward.append((mixed & 0xFF) ^ 0x63)
    backward = [0] * 256
    for value, other in enumerate(forward):
        backward[other] = value
    product = lambda a, b: power[(logarithm[a] + logarithm[b]) % 255] if a and b else 0  # noqa: E731
    return forward, backward, {factor: [product(factor, value) for value in range(256)] for factor in (2, 3, 9, 11, 13, 14)}


_FORWARD, _BACKWARD, _TIMES = _tables()
# What a byte becomes in a column, by its row.
_COLUMNS = [
    [
        int.from_bytes(bytes((column * 2)[4 - row : 8 - row]), "big")
        for column in ([_TIMES[2][byte], byte, byte, _TIMES[3][byte]] for byte in _FORWARD)
    ]
    for row in range(4)
]
# Where each byte comes from when rows are shifted back.
_SHIFTED_BACK = [(index - 4 * (index % 4)) % 16 for index in range(16)]


def _expanded(key):
    """The keys of all rounds, as words."""
    if len(key) not in (16, 24, 32):
        raise ValueError(f"a key of AES has 16, 24 or 32 bytes, and not {len(key)}")
    size, words, constant = len(key) // 4, [int.from_bytes(key[at : at + 4], "big") for at in range(0, len(key), 4)], 1
    substituted = lambda word: int.from_bytes(bytes(_FORWARD[byte] for byte in word.to_bytes(4, "big")), "big")  # noqa: E731
    while len(words) < 4 * (size + 7):
        word = words[-1]
        if len(words) % size == 0:
            word = substituted((word << 8 | word >> 24) & 0xFFFFFFFF) ^ constant << 24
            constant = _TIMES[2][constant]
        elif size > 6 and len(words) % size == 4:
            word = substituted(word)
        words.append(words[-size] ^ word)
    return words


def _encrypted(words, block):
    """One block, as a number of 128 bits."""
    t0, t1, t2, t3 = _COLUMNS
    a, b, c, d = block >> 96 ^ words[0], block >> 64 & 0xFFFFFFFF ^ words[1], block >> 32 & 0xFFFFFFFF ^ words[2], block & 0xFFFFFFFF ^ words[3]
    at, last = 4, len(words) - 4
    while at < last:
        a, b, c, d = (
            t0[a >> 24] ^ t1[b >> 16 & 255] ^ t2[c >> 8 & 255] ^ t3[d & 255] ^ words[at],
            t0[b >> 24] ^ t1[c >> 16 & 255] ^ t2[d >> 8 & 255] ^ t3[a & 255] ^ words[at + 1],
            t0[c >> 24] ^ t1[d >> 16 & 255] ^ t2[a >> 8 & 255] ^ t3[b & 255] ^ words[at + 2],
            t0[d >> 24] ^ t1[a >> 16 & 255] ^ t2[b >> 8 & 255] ^ t3[c & 255] ^ words[at + 3],
        )
        at += 4
    box, done = _FORWARD, 0
    for w, x, y, z in ((a, b, c, d), (b, c, d, a), (c, d, a, b), (d, a, b, c)):
        word = box[w >> 24] << 24 | box[x >> 16 & 255] << 16 | box[y >> 8 & 255] << 8 | box[z & 255]
        done = done << 32 | word ^ words[at]
        at += 1
    return done


def _whole(data):
    if len(data) % 16:
        raise ValueError("what AES takes is a multiple of 16 bytes")


def aes_ecb_encrypt(key, data):
    """Encrypts each block by itself."""
    _whole(data)
    words = _expanded(key)
    blocks = (int.from_bytes(data[at : at + 16], "big") for at in range(0, len(data), 16))
    return b"".join(_encrypted(words, block).to_bytes(16, "big") for block in blocks)


def aes_ecb_decrypt(key, data):
    """Decrypts each block by itself."""
    import numpy as np

    _whole(data)
    expanded = b"".join(word.to_bytes(4, "big") for word in _expanded(key))
    first, *keys, last = np.frombuffer(expanded, np.uint8).reshape(-1, 16)
    back = np.array(_BACKWARD, np.uint8)
    by_turn = [np.array(_TIMES[factor], np.uint8) for factor in (14, 11, 13, 9)]
    state = np.frombuffer(data, np.uint8).reshape(-1, 16) ^ last
    for key_of_round in reversed(keys):
        columns = (back[state[:, _SHIFTED_BACK]] ^ key_of_round).reshape(-1, 4, 4)
        mixed = [times[columns[:, :, [(row + turn) % 4 for row in range(4)]]] for turn, times in enumerate(by_turn)]
        state = (mixed[0] ^ mixed[1] ^ mixed[2] ^ mixed[3]).reshape(-1, 16)
    return (back[state[:, _SHIFTED_BACK]] ^ first).tobytes()


def aes_cbc_encrypt(key, iv, data):
    """Encrypts blocks, each with the one before."""
    _whole(data)
    words, before, done = _expanded(key), int.from_bytes(iv, "big"), []
    for at in range(0, len(data), 16):
        before = _encrypted(words, int.from_bytes(data[at : at + 16], "big") ^ before)
        done.append(before.to_bytes(16, "big"))
    return b"".join(done)


def aes_cbc_decrypt(key, iv, data):
    """Decrypts blocks, each with the one before."""
    plain = int.from_bytes(aes_ecb_decrypt(key, data), "big")
    return (plain ^ int.from_bytes((iv + data)[: len(data)], "big")).to_bytes(len(data), "big")


def begin():
    """Gives it to pypdf, whose own says that a package is missing."""
    from pypdf import _crypt_providers, _encryption
    from pypdf._crypt_providers import _fallback
    from pypdf._crypt_providers._base import CryptBase
    from pypdf.errors import PdfStreamError

    class CryptAES(CryptBase):
        """The cipher of strings and streams: CBC, padded to whole blocks."""

        def __init__(self, key):
            self.key = key

        def encrypt(self, data):
            iv, missing = secrets.token_bytes(16), 16 - len(data) % 16
            return iv + aes_cbc_encrypt(self.key, iv, data + bytes([missing]) * missing)

        def decrypt(self, data, *, strict=True):
            iv, data = data[:16], data[16:]
            if not data:
                return data
            if len(data) % 16:
                if strict:
                    raise PdfStreamError("what is encrypted has no whole number of blocks")
                missing = 16 - len(data) % 16
                data += bytes([missing]) * missing
            plain = aes_cbc_decrypt(self.key, iv, data)
            count = plain[-1]
            if strict and (not 1 <= count <= 16 or plain[-count:] != bytes([count]) * count):
                raise PdfStreamError("what is encrypted is not padded")
            return plain[:-count]

    given = (CryptAES, aes_ecb_encrypt, aes_ecb_decrypt, aes_cbc_encrypt, aes_cbc_decrypt)
    for module in (_fallback, _crypt_providers, _encryption):
        for each in given:
            if hasattr(module, each.__name__):
                setattr(module, each.__name__, each)
