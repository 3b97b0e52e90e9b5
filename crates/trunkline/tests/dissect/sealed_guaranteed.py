#!/usr/bin/env python3
"""Encryption of the guaranteed transport, written from docs/wire.md alone.

    sealed_guaranteed.py DOCUMENT     checks the frames printed there under "Encryption"; what is wrong, if anything

Slow, and not for secrets: tables are looked up by secret bytes. Standard library only.
"""

import hashlib
import hmac
import re
import sys

TAG, COUNT = 16, 3
ACK = 4

# --- AES-256 (FIPS 197)


def times_x(byte):
    return (byte << 1 ^ (0x11B if byte & 128 else 0)) & 255


def product(a, b):
    result = 0
    while b:
        result ^= a if b & 1 else 0
        a, b = times_x(a), b >> 1
    return result


def s_box():
    inverse = [0] * 256
    for a in range(1, 256):
        inverse[a] = next(b for b in range(1, 256) if product(a, b) == 1)
    rotated = lambda b, n: (b << n | b >> 8 - n) & 255
    return [b ^ rotated(b, 1) ^ rotated(b, 2) ^ rotated(b, 3) ^ rotated(b, 4) ^ 0x63 for b in inverse]


S = s_box()


def round_keys(key):
    words, constant = [list(key[at : at + 4]) for at in range(0, 32, 4)], 1
    for at in range(8, 60):
        word = words[at - 1]
        if at % 8 == 0:
            word = [S[b] for b in word[1:] + word[:1]]
            word[0], constant = word[0] ^ constant, times_x(constant)
        elif at % 8 == 4:
            word = [S[b] for b in word]
        words.append([a ^ b for a, b in zip(words[at - 8], word)])
    return [sum(words[at : at + 4], []) for at in range(0, 60, 4)]


def encrypt_block(keys, block):
    state = [a ^ b for a, b in zip(block, keys[0])]
    for round_, key in enumerate(keys[1:], 1):
        state = [S[state[(at + 4 * (at % 4)) % 16]] for at in range(16)]
        if round_ < 14:
            columns = [state[at : at + 4] for at in range(0, 16, 4)]
            mixed = lambda c, n: times_x(c[n]) ^ times_x(c[(n + 1) % 4]) ^ c[(n + 1) % 4] ^ c[(n + 2) % 4] ^ c[(n + 3) % 4]
            state = [mixed(column, n) for column in columns for n in range(4)]
        state = [a ^ b for a, b in zip(state, key)]
    return bytes(state)


# --- GCM (NIST SP 800-38D)


def gcm(key, nonce, clear, data, encrypts):
    """The other form of `data`, and the tag."""
    keys = round_keys(key)
    h = int.from_bytes(encrypt_block(keys, bytes(16)), "big")
    stream = b"".join(encrypt_block(keys, nonce + (at + 2).to_bytes(4, "big")) for at in range((len(data) + 15) // 16))
    other = bytes(a ^ b for a, b in zip(data, stream))
    hidden = other if encrypts else data
    padded = lambda text: text + bytes(-len(text) % 16)
    lengths = (8 * len(clear)).to_bytes(8, "big") + (8 * len(hidden)).to_bytes(8, "big")
    text, y = padded(clear) + padded(hidden) + lengths, 0
    for at in range(0, len(text), 16):
        x, v, y = y ^ int.from_bytes(text[at : at + 16], "big"), h, 0
        for bit in range(127, -1, -1):
            y ^= v if x >> bit & 1 else 0
            v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
    mask = encrypt_block(keys, nonce + b"\0\0\0\1")
    return other, bytes(a ^ b for a, b in zip(y.to_bytes(16, "big"), mask))


# --- keys and frames (docs/wire.md)


def sign(key, text):
    return hmac.new(key, text, hashlib.sha256).digest()


def expand(root, info):
    return sign(root, info + b"\1")


class Secret:
    def __init__(self, secret):
        self.root = sign(b"trunkline guaranteed 1", secret)

    def prove(self, frame):
        """The proof of a frame that opens, of which `frame` is what stands before the proof."""
        return sign(expand(self.root, b"opening"), frame)

    def key(self, client, server, out, generation):
        n = lambda value: value.to_bytes(8, "big")
        return expand(self.root, (b"out" if out else b"back") + n(client) + n(server) + n(generation))


def clear_bytes(body):
    """How much of a frame without count and tag all may read."""
    kind = body[0] >> 5
    return {5: 5, 6: 6}.get(kind, (7 if body[0] & ACK else 4) if 1 <= kind <= 3 else len(body))


def nonce(count, epoch):
    return (epoch & 0xFFFFFFFF).to_bytes(4, "big") + count.to_bytes(8, "big")


def seal(secret, ids, out, count, epoch, body):
    """The frame with this body; `epoch` is that of the number that it acknowledges, else 0."""
    clear = body[: clear_bytes(body)]
    hidden, tag = gcm(secret.key(*ids, out, count >> 24), nonce(count, epoch), clear, body[len(clear) :], True)
    return clear + hidden + (count & 0xFFFFFF).to_bytes(3, "big") + tag


def open_(secret, ids, out, count, epoch, frame):
    """The body of the frame with this count; None if its tag is wrong."""
    body, low, tag = frame[: -TAG - COUNT], frame[-TAG - COUNT : -TAG], frame[-TAG:]
    clear = body[: clear_bytes(body)]
    hidden, right = gcm(secret.key(*ids, out, count >> 24), nonce(count, epoch), clear, body[len(clear) :], False)
    return clear + hidden if tag == right and int.from_bytes(low, "big") == count & 0xFFFFFF else None


def check(text):
    """What is wrong with the frames that a document prints."""
    block = text.split("```sealed\n")[1].split("```")[0]
    lines = (line.split("#")[0].split("=") for line in block.splitlines())
    said = {name.strip(): bytes.fromhex(value) for name, value in (line for line in lines if len(line) == 2)}
    secret = Secret(said["secret"])
    ids = tuple(int.from_bytes(said[name], "big") for name in ("client", "server"))
    for name in ("open", "opened"):
        if said[name][-36:-4] != secret.prove(said[name][:-36]):
            yield "the proof of %s" % name
    for name, out, count, epoch, number in (
        ("piece", True, 0, 0, b"\x23\0\0\0\0\7\0\0a test text"),
        ("ack", False, 0, 0, b"\x80\0\0\1\0\x09\0\0"),
        ("later", True, (1 << 24) + 5, 3, b"\x27\0\0\4\0\0\2\0\7\0\1"),
    ):
        if open_(secret, ids, out, count, epoch, said[name]) != number:
            yield name
        if seal(secret, ids, out, count, epoch, number) != said[name]:
            yield "%s, sealed anew" % name


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        wrong = list(check(file.read()))
    print("\n".join(wrong))
    sys.exit(bool(wrong))
