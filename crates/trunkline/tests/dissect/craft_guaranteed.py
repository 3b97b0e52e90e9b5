#!/usr/bin/env python3
"""Writes captures of frames that no experiment sends, by the rules of docs/wire.md.

    craft_guaranteed.py rare FILE      two channels in a frame, long and empty messages in a pack, refusals, resets, …
    craft_guaranteed.py parts FILE     a frame in parts
    craft_guaranteed.py epochs FILE    numbers that run over their 24 bits
    craft_guaranteed.py sealed FILE    an encrypted connection
    craft_guaranteed.py noise FILE     the frames of `rare` and `parts` with bytes changed, cut off and added
"""

import random
import struct
import sys

from decode_guaranteed import ACK, ACK_REQUEST, AEAD, END, NACK, PACK, REBUILT, START, Check, key_of, plus, protected, weight, word
from sealed_guaranteed import Secret, seal

CLIENT, SERVER = 0x0123456789ABCDEF, 0xFEDCBA9876543210
OUT, BACK = True, False


def block(kind, body):
    body += bytes(-len(body) % 4)
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


def capture(packets):
    """A pcapng file of UDP datagrams over IPv4, each from the client or to it."""
    data = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)) + block(1, struct.pack("<HHI", 101, 0, 0))
    for at, (out, payload) in enumerate(packets):
        ends = [(b"\x0a\x00\x00\x01", 49152), (b"\x0a\x00\x00\x02", 5001)]
        (source, source_port), (target, target_port) = ends if out else ends[::-1]
        udp = struct.pack(">HHHH", source_port, target_port, 8 + len(payload), 0) + payload
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + source + target + udp
        data += block(6, struct.pack("<IIIII", 0, 0, at, len(ip), len(ip)) + ip)
    return data


def sealed(body, out, epoch, check=Check(2)):
    sum_ = (check.sum(body) ^ word(key_of(CLIENT, SERVER), out, epoch)) & check.mask
    return out, body + sum_.to_bytes(check.size, "big")


def plain(out, body):
    return out, body + Check(1).sum(body).to_bytes(4, "big")


def n(value, size):
    return (value & (1 << 8 * size) - 1).to_bytes(size, "big")


def opening(check=2, fec=b"\0\0", prove=lambda frame: b""):
    terms = bytes([0, check]) + n(100, 2) + n(1472, 2) + n(200, 4) + n(3, 2) + n(1 << 20, 4) + n(1 << 16, 4) + fec
    proven = lambda out, body: plain(out, body + prove(body))
    yield proven(OUT, b"\x01\x01" + n(CLIENT, 8) + terms + bytes(16))
    yield plain(BACK, b"\x02\x01" + n(CLIENT, 8) + bytes(range(16)))
    yield proven(OUT, b"\x01\x01" + n(CLIENT, 8) + terms + bytes(range(16)))
    yield proven(BACK, b"\x03\x01" + n(CLIENT, 8) + n(SERVER, 8) + terms)


def among(channel, chunk, form, content):
    return n(channel, 2) + n(chunk, 2) + bytes([form]) + n(len(content), 2) + content


def rare():
    # Blocks of four frames, with two repair frames.
    yield from opening(fec=b"\x04\x04")
    pack = bytes([0, 3]) + b"abc" + n(0x8000 | 200, 2) + bytes(200) + bytes([127]) + bytes(127)
    chunks = among(0, 1, END, b"end of the first") + among(65534, 0, PACK, pack) + among(7, 0, START | END, b"")
    yield sealed(b"\x60" + n(1, 3) + chunks, OUT, 0)
    yield sealed(b"\x80" + n(0, 3) + n(65535, 2) + b"\x01\x01" + n(1, 2) + n(1, 2), BACK, 0)
    yield sealed(bytes([0x20 | START | ACK_REQUEST]) + n(0, 3) + n(0, 2) + n(0, 2) + b"the first and ", OUT, 0)
    yield sealed(bytes([0x90 | 8]) + n(2, 3) + n(9, 2) + b"\x02\x00", BACK, 0)
    control = among(65535, 0, START | END, b"\x01" + n(1 << 40, 8)) + among(65535, 1, 3, b"\x02" + n(7, 2) + n(1 << 33, 8))
    yield sealed(bytes([0x60 | ACK | NACK]) + n(0, 3) + n(2, 3) + control, BACK, 0)
    yield sealed(bytes([0x40 | ACK]) + n(2, 3) + n(1, 3) + n(7, 2) + n(1, 2) + b"\x01x", OUT, 0)
    # Frames 3 and 4 are lost, of a block of four.
    lost = [b"\x41" + n(number, 3) + n(7, 2) + n(number - 1, 2) + bytes([number]) + bytes(number) for number in (3, 4)]
    came = [bytes([0x20 | START | END]) + n(number, 3) + n(9, 2) + n(number - 5, 2) + bytes(100 * (number - 5)) for number in (5, 6)]
    for frame in came:
        yield sealed(frame, OUT, 0)
    for row in (1, 0):
        total = bytes(3 + 4 + 100)
        for place, frame in enumerate(lost + came):
            total = plus(total, weight(row, place), protected(frame[0], frame[4:]))
        yield sealed(bytes([0xA0 | row]) + n(3, 3) + b"\x04" + total, OUT, 0)
    yield sealed(bytes([0x80 | REBUILT]) + n(7, 3) + n(9, 2) + b"\x02\x00" + n(2, 2), BACK, 0)
    probe = sealed(b"\x07" + n(77, 4) + bytes(8), OUT, 0)
    yield probe
    yield sealed(b"\x08" + n(77, 4) + n(len(probe[1]), 2), BACK, 0)
    yield sealed(b"\x06\x00", OUT, 0)
    yield plain(BACK, b"\x05" + probe[1][:12] + probe[1][-4:])
    for reason in (1, 2, 3, 4):
        yield plain(BACK, b"\x04\x01" + n(CLIENT + 1, 8) + bytes([reason]))


def parts():
    # Both ends take parts, so that the blocks they offer as well are not agreed upon.
    yield from opening(fec=b"\x04\x05")
    whole = bytes([0x20 | START | END]) + n(0, 3) + n(7, 2) + n(0, 2) + bytes(range(40))
    for begin, end in ((30, 48), (0, 10), (5, 30)):
        head = bytes([0xC0 | (END if end == 48 else 0)]) + n(0, 3) + n(begin, 2)
        yield sealed(head + whole[begin:end], OUT, 0)


def epochs():
    yield from opening()
    for number in (0, 8_000_000, 16_000_000, (1 << 24) - 1, 1 << 24, (1 << 24) + 8_000_000, (1 << 24) + 16_000_000, 2 << 24):
        yield sealed(bytes([0x20 | START | END]) + n(number, 3) + n(0, 2) + n(0, 2) + b"x", OUT, number >> 24)
        yield sealed(b"\x80" + n(number + 1, 3) + bytes(4), BACK, number + 1 >> 24)


def encrypted():
    secret, counts = Secret(bytes(32)), {OUT: 0, BACK: 0}
    yield from opening(AEAD, prove=secret.prove)
    chunk = n(0, 2) + n(0, 2) + b"something"
    for out, body in (
        (OUT, bytes([0x20 | START | END]) + n(0, 3) + chunk),
        (OUT, bytes([0x20 | START | END | ACK_REQUEST]) + n(0, 3) + chunk),
        (BACK, bytes([0x40 | ACK | NACK]) + n(0, 3) + n(1, 3) + n(7, 2) + n(0, 2) + b"\x01x"),
        (BACK, b"\x90" + n(1, 3) + n(65535, 2) + b"\x01\x01" + n(1, 2) + n(2, 2)),
        (OUT, b"\x60" + n(1, 3) + among(3, 0, START | END, b"") + among(65535, 0, START | END, b"\x03")),
        (OUT, b"\xa1" + n(0, 3) + b"\x02" + bytes(20)),
        (OUT, b"\xc2" + n(2, 3) + n(30, 2) + bytes(10)),
        (OUT, b"\x07" + n(77, 4)),
        (BACK, b"\x08" + n(77, 4) + n(24, 2)),
        (BACK, b"\x06\x00"),
    ):
        yield out, seal(secret, (CLIENT, SERVER), out, counts[out], 0, body)
        counts[out] += 1
    yield plain(BACK, b"\x04\x01" + n(CLIENT + 1, 8) + b"\x05")


def noise():
    draw = random.Random(1998)
    # Without the opening frames the checks are unknown, and each frame is decoded completely.
    frames = [frame for frame in [*rare(), *parts()] if frame[1][0] not in (1, 3)]
    for _ in range(1500):
        out, frame = draw.choice(frames)
        frame = bytearray(frame)
        for _ in range(draw.randrange(4)):
            frame[draw.randrange(len(frame))] = draw.randrange(256)
        del frame[draw.randrange(1, 2 * len(frame)) :]
        yield out, bytes(frame) + draw.randbytes(draw.choice((0, 0, 3)))


if __name__ == "__main__":
    with open(sys.argv[2], "wb") as file:
        file.write(capture({"rare": rare, "parts": parts, "epochs": epochs, "sealed": encrypted, "noise": noise}[sys.argv[1]]()))
