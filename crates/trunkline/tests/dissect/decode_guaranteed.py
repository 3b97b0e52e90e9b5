#!/usr/bin/env python3
"""Reads the frames of the guaranteed transport from a capture, written from docs/wire.md alone.

    decode_guaranteed.py CAPTURE…             what was found in each, a line of JSON
    decode_guaranteed.py --fields CAPTURE…    the fields of each packet, a line each, as `tshark -T fields` prints them
    decode_guaranteed.py --explain CAPTURE…   each frame, byte by byte; bytes that repeat are written 00*84
    decode_guaranteed.py --read TEXT…         what --explain printed, read again and counted as a capture is

A frame that does not decode or breaks a rule of docs/wire.md is listed under `wrong`; what is left of messages at the
end, under `unfinished`. Frames whose check does not hold are counted as `bad`. Of encrypted frames, which nobody checks
here, the headers are read. Standard library only.
"""

import hashlib
import json
import re
import struct
import sys

M64 = (1 << 64) - 1
CONTROL = 65535
START, END, ACK, ACK_REQUEST, NACK = 1, 2, 4, 8, 16
DUPLICATE, REBUILT, PACK = 8, 1, 4
KINDS = {1: "piece", 2: "pack", 3: "multi", 4: "ack", 5: "repair", 6: "part"}
SPECIAL = {1: "open", 2: "cookie", 3: "opened", 4: "refused", 5: "unknown", 6: "reset", 7: "probe", 8: "probe_reply"}
MODES = {0: "selective", 1: "go-back-N", 2: "stop-and-wait"}
CHECKS = {0: "none", 1: "CRC-32C", 2: "CRC-64", 3: "folded", 4: "AEAD"}
AEAD, PROOF, COUNT = 4, 32, 3
REASONS = {1: "full", 2: "terms", 3: "version", 4: "closed", 5: "key"}
SIZES = {"open": 52, "cookie": 30, "opened": 44, "refused": 15, "unknown": 21}
BAD, GOOD, UNVERIFIED = 0, 1, 2

# The fields of --fields, in this order; `guaranteed.NAME` in the dissector.
FIELDS = """kind flags number offset acknowledged channel chunk form length message_length content control control_channel limit delay
    duplicates ranges missing arrived version client server mode check_code window longest ack_delay ack_every credit
    channel_credit fec_frames fec_repairs takes_parts cookie proof reason echo token probe_length filling rebuilt block sum
    sealed count check status""".split()
# Those of them that are written in hexadecimal, and with how many digits.
HEX = {"flags": 2, "form": 2, "client": 16, "server": 16}


class Wrong(Exception):
    """A frame that is not laid out as docs/wire.md says, or that no peer may send."""


# --- checks


def reflected_table(polynomial):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (polynomial if byte & 1 else 0)
        table.append(byte)
    return table


CRC32C, CRC64 = reflected_table(0x82F63B78), reflected_table(0x9A6C9329AC4BC9B5)


def crc(data, table, ones):
    value = ones
    for byte in data:
        value = value >> 8 ^ table[(value ^ byte) & 255]
    return value ^ ones


def folded(data):
    data = bytes(data) + bytes(-len(data) % 8)
    total = sum(struct.unpack(">%dQ" % (len(data) // 8), data)) & M64
    return ((total >> 32) + total) & 0xFFFFFFFF


class Check:
    """One of the five: how many bytes it has, and its sum without a secret. An AEAD's never holds, for want of a key."""

    def __init__(self, code):
        if code not in CHECKS:
            raise Wrong("check %d" % code)
        self.code = code
        self.size = {2: 8, AEAD: COUNT + 16}.get(code, 4)
        self.mask = (1 << 8 * self.size) - 1

    def sum(self, data):
        if self.code == 1:
            return crc(data, CRC32C, 0xFFFFFFFF)
        if self.code == 2:
            return crc(data, CRC64, M64)
        return folded(data) if self.code == 3 else 0

    def holds(self, data, word):
        if len(data) < self.size or self.code == AEAD:
            return False
        stands = int.from_bytes(data[-self.size :], "big")
        return stands == (self.sum(data[: -self.size]) ^ word) & self.mask

    def first_end(self, data, word):
        """Where the first frame of several ends: the shortest beginning whose check holds; None if there is none."""
        if self.code == AEAD:
            return None
        if self.code == 0:
            at = data.find((word & self.mask).to_bytes(4, "big"), 1)
            return at + 4 if at > 0 else None
        if self.code == 3:
            return next((end for end in range(5, len(data) + 1) if self.holds(data[:end], word)), None)
        table, ones = (CRC32C, 0xFFFFFFFF) if self.code == 1 else (CRC64, M64)
        value, secret = ones, (word & self.mask)
        for at in range(len(data) - self.size):
            value = value >> 8 ^ table[(value ^ data[at]) & 255]
            end = at + 1 + self.size
            if int.from_bytes(data[at + 1 : end], "big") == value ^ ones ^ secret:
                return end
        return None


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M64
    return x ^ x >> 31


def key_of(client, server):
    server = mix(server)
    return mix(client) ^ (server << 32 & M64 | server >> 32)


def word(key, out, epoch):
    way = 0x5851F42D4C957F2D if out else 0x14057B7EF767814F
    return mix(key ^ way ^ epoch * 0xD1342543DE82EF95 & M64)


def expand(low, near, bits):
    ahead = (low - near) % (1 << bits)
    return (near + ahead - (0 if ahead < 1 << bits - 1 else 1 << bits)) & M64


# --- forward error correction


def times(a, b):
    """The product in GF(256), modulo x^8 + x^4 + x^3 + x^2 + 1."""
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a = a << 1 ^ (0x11D if a & 128 else 0)
        b >>= 1
    return product


def inverse(a):
    return next(b for b in range(256) if times(a, b) == 1)


def weight(row, index):
    return times(255 ^ index, inverse(255 - row ^ index))


def plus(a, factor, b):
    """The bytes `a`, and `factor` times the bytes `b`, which are no longer."""
    table = bytes(times(factor, byte) for byte in range(256))
    total = int.from_bytes(a, "big") ^ int.from_bytes(b.translate(table).ljust(len(a), b"\0"), "big")
    return total.to_bytes(len(a), "big")


def protected(first, chunks):
    """What is summed up of a frame."""
    return len(chunks).to_bytes(2, "big") + bytes([first & ~(ACK | ACK_REQUEST | NACK)]) + chunks


def solve(equations, unknown):
    """The frames at the places `unknown` of a block, by place: `equations` are rows and what their sums are of these."""
    left = [({place: weight(row, place) for place in unknown}, total) for row, total in equations]
    for place in unknown:
        pivot = next(one for one in left if one[0][place])
        left.remove(pivot)
        scale = inverse(pivot[0][place])
        own = {other: times(value, scale) for other, value in pivot[0].items()}, plus(bytes(len(pivot[1])), scale, pivot[1])

        def without(one):
            factor = one[0][place]
            weights = {other: value ^ times(factor, own[0][other]) for other, value in one[0].items()}
            return weights, plus(one[1], factor, own[1])

        left = [without(one) for one in left] + [own]
    return {next(place for place, value in one[0].items() if value): one[1] for one in left}


# --- bytes to fields


class Reader:
    """Takes fields from the front of some bytes and remembers each: its name, its bytes, its value, what it means."""

    def __init__(self, data):
        self.data, self.at, self.fields = data, 0, []

    def bytes(self, name, size, meaning=""):
        taken = self.data[self.at : self.at + size]
        if len(taken) < size:
            raise Wrong("it ends within %s" % name)
        self.at += size
        self.fields.append((name, taken, taken, meaning))
        return taken

    def number(self, name, size, meaning=None):
        value = int.from_bytes(self.bytes(name, size), "big")
        meaning = meaning(value) if meaning else ""
        self.fields[-1] = (name, self.fields[-1][1], value, meaning)
        return value

    def left(self):
        return len(self.data) - self.at

    def end(self):
        if self.left():
            raise Wrong("%d bytes too many" % self.left())


def names(flags, table):
    return " ".join(name for bit, name in table if flags & bit)


DATA_FLAGS = [(START, "START"), (END, "END"), (ACK, "ACK"), (ACK_REQUEST, "ACK_REQUEST"), (NACK, "NACK")]
ACK_FLAGS = [(NACK, "NACK"), (DUPLICATE, "DUPLICATE"), (REBUILT, "REBUILT")]
PART_FLAGS = [(END, "END")]
FORMS = [(START, "START"), (END, "END"), (PACK, "pack")]


def kind_of(first):
    if first >> 5:
        return KINDS.get(first >> 5)
    return SPECIAL.get(first)


def read_first(reader):
    """The first byte holds two fields."""
    first = reader.data[0]
    kind, flags = kind_of(first), first & 31
    known = DATA_FLAGS if kind in ("piece", "pack", "multi") else {"ack": ACK_FLAGS, "part": PART_FLAGS}.get(kind, [])
    reader.at = 1
    reader.fields.append(("kind", reader.data[:1], first >> 5, " ".join(filter(None, [kind, names(flags, known)]))))
    reader.fields.append(("flags", b"", flags, ""))
    return kind, flags


def read_terms(reader):
    terms = {
        "mode": reader.number("mode", 1, lambda n: MODES.get(n, "?")),
        "check": reader.number("check_code", 1, lambda n: CHECKS.get(n, "?")),
        "window": reader.number("window", 2, "{} frames".format),
        "longest": reader.number("longest", 2, "{} bytes".format),
        "ack_delay": reader.number("ack_delay", 4, "{} us".format),
        "ack_every": reader.number("ack_every", 2, "{} frames".format),
        "credit": reader.number("credit", 4, "{} bytes".format),
        "channel_credit": reader.number("channel_credit", 4, "{} bytes".format),
    }
    frames = reader.number("fec_frames", 1, "{} frames".format)
    last = reader.number("fec_repairs", 1)
    terms["fec"], terms["parts"] = (frames, last >> 1), last & 1
    # The last byte holds two fields.
    name, raw, _, _ = reader.fields.pop()
    reader.fields.append((name, raw, last >> 1, "takes parts" if last & 1 else ""))
    reader.fields.append(("takes_parts", b"", last & 1, ""))
    if terms["mode"] not in MODES:
        raise Wrong("mode %d" % terms["mode"])
    Check(terms["check"])
    return terms


def read_plain(data):
    """A frame outside of connections: its kind, what it says, its fields."""
    reader = Reader(data[:-4])
    kind, _ = read_first(reader)
    said = {}
    if kind == "unknown":
        said["echo"] = reader.bytes("echo", 16, "first 12 and last 4 bytes of a frame")
    else:
        said["version"] = reader.number("version", 1)
        said["client"] = reader.number("client", 8)
        if kind == "opened":
            said["server"] = reader.number("server", 8)
        if kind in ("open", "opened"):
            said["terms"] = read_terms(reader)
        if kind in ("open", "cookie"):
            said["cookie"] = reader.bytes("cookie", 16)
        if "terms" in said and said["terms"]["check"] == AEAD:
            reader.bytes("proof", PROOF)
        if kind == "refused":
            said["reason"] = reader.number("reason", 1, lambda n: REASONS.get(n, "?"))
    reader.end()
    return kind, said, reader.fields


def read_pack(content):
    """The messages of a pack, and its fields."""
    reader, messages = Reader(content), []
    while reader.left():
        size = 2 if content[reader.at] & 128 else 1
        length = reader.number("message_length", size) & (0x7FFF if size == 2 else 127)
        name, raw, _, _ = reader.fields.pop()
        reader.fields.append((name, raw, length, ""))
        messages.append(reader.bytes("content", length, "%d bytes" % length))
    if not messages:
        raise Wrong("a pack without a message")
    return messages, reader.fields


def read_control(content):
    reader = Reader(content)
    control = reader.number("control", 1, lambda n: {1: "credit", 2: "channel credit", 3: "finish"}.get(n, "?"))
    channel = reader.number("control_channel", 2) if control == 2 else None
    limit = reader.number("limit", 8) if control in (1, 2) else None
    if control not in (1, 2, 3):
        raise Wrong("%d on the control channel" % control)
    reader.end()
    return (control, channel, limit), reader.fields


def read_content(reader, size, channel, form):
    """Returns what a chunk carries: a control message, the messages of a pack, or a piece's bytes; and how many bytes that is."""
    content = reader.data[reader.at : reader.at + size]
    if channel == CONTROL:
        said, fields = read_control(content)
    elif form == PACK:
        said, fields = read_pack(content)
    else:
        said, fields = content, [("content", content, content, "%d bytes" % size)]
    reader.at += size
    reader.fields += fields
    return {"said": said, "size": size}


def read_data(body):
    """A data frame without its check."""
    reader = Reader(body)
    kind, flags = read_first(reader)
    said = {"flags": flags, "number": reader.number("number", 3), "chunks": []}
    if flags & ACK:
        said["acknowledged"] = reader.number("acknowledged", 3)
    elif flags & NACK:
        raise Wrong("NACK without ACK")
    while True:
        channel = reader.number("channel", 2, lambda n: "control" if n == CONTROL else "")
        number = reader.number("chunk", 2)
        if kind == "multi":
            form = reader.number("form", 1, lambda n: names(n, FORMS))
            if form not in (0, START, END, START | END, PACK):
                raise Wrong("a chunk of form %d" % form)
            size = reader.number("length", 2)
        else:
            form = PACK if kind == "pack" else flags & (START | END)
            size = reader.left()
        if size > reader.left():
            raise Wrong("a chunk longer than its frame")
        content = read_content(reader, size, channel, form)
        said["chunks"].append(dict(content, channel=channel, chunk=number, form=form))
        if not reader.left():
            return kind, said, reader.fields


def read_part(body):
    reader = Reader(body)
    kind, flags = read_first(reader)
    if flags & ~END:
        raise Wrong("flags of a part: %d" % flags)
    said = {"number": reader.number("number", 3), "offset": reader.number("offset", 2), "last": bool(flags & END)}
    if not reader.left():
        raise Wrong("a part of nothing")
    said["bytes"] = reader.bytes("content", reader.left(), "%d bytes" % reader.left())
    return kind, said, reader.fields


def read_ack(body):
    reader = Reader(body)
    _, flags = read_first(reader)
    if flags & ~(NACK | DUPLICATE | REBUILT):
        raise Wrong("flags of an acknowledgement: %d" % flags)
    said = {
        "flags": flags,
        "acknowledged": reader.number("acknowledged", 3),
        "delay": reader.number("delay", 2, "{} us".format),
        "duplicates": reader.number("duplicates", 1),
    }
    ranges = reader.number("ranges", 1)
    said["rebuilt"] = reader.number("rebuilt", 2, "{} frames".format) if flags & REBUILT else None
    said["ranges"] = [(reader.number("missing", 2), reader.number("arrived", 2)) for _ in range(ranges)]
    if any(0 in pair for pair in said["ranges"]):
        raise Wrong("a run of nothing")
    reader.end()
    return "ack", said, reader.fields


def read_repair(body):
    reader = Reader(body)
    _, row = read_first(reader)
    said = {"row": row, "first": reader.number("number", 3), "block": reader.number("block", 1, "{} frames".format)}
    said["sum"] = reader.bytes("sum", reader.left(), "%d bytes" % reader.left())
    if said["block"] == 0 or len(said["sum"]) < 4:
        raise Wrong("a repair frame of nothing")
    return "repair", said, reader.fields


def read_control_frame(body):
    reader = Reader(body)
    kind, _ = read_first(reader)
    said = {}
    if kind == "reset":
        said["reason"] = reader.number("reason", 1)
    elif kind in ("probe", "probe_reply"):
        said["token"] = reader.number("token", 4)
        if kind == "probe_reply":
            said["length"] = reader.number("probe_length", 2)
        elif reader.left():
            reader.bytes("filling", reader.left())
    else:
        raise Wrong("first byte %02x" % body[0])
    reader.end()
    return kind, said, reader.fields


def read_sealed(body):
    """What all may read of an encrypted frame without its count and tag."""
    kind = body[0] >> 5
    if kind == 4:
        return read_ack(body)
    if kind == 0:
        return read_control_frame(body)
    reader = Reader(body)
    kind, flags = read_first(reader)
    said = {"flags": flags, "number": reader.number("number", 3)}
    if kind == "repair":
        said["block"] = reader.number("block", 1, "{} frames".format)
    elif kind == "part":
        said["offset"] = reader.number("offset", 2)
    elif flags & ACK:
        said["acknowledged"] = reader.number("acknowledged", 3)
    reader.bytes("sealed", reader.left(), "%d bytes" % reader.left())
    return kind, said, reader.fields


def damaged(frame, size):
    """The fields of a frame whose check, of `size` bytes, does not hold: nothing else of it can be relied upon."""
    reader = Reader(frame)
    read_first(reader)
    return reader.fields[:1] + [("check", frame[-size:], frame[-size:], ""), ("status", b"", BAD, "")]


# --- connections


class Channel:
    """What one end sent on a channel: chunks in the order of their numbers, put together to messages."""

    def __init__(self, limit):
        self.next, self.early, self.part = 0, {}, None
        self.used, self.limit = 0, limit
        self.messages, self.bytes, self.pieces, self.packs = 0, 0, 0, 0
        self.sizes, self.digest = {}, hashlib.sha256()
        self.tests = 0

    def take(self, chunk):
        number = expand(chunk["chunk"], self.next, 16)
        if number < self.next or number in self.early:
            raise Wrong("chunk %d comes again in another frame" % number)
        self.early[number] = chunk
        while self.next in self.early:
            chunk = self.early.pop(self.next)
            self.next += 1
            self.put(chunk["form"], chunk["said"])

    def put(self, form, content):
        if form == PACK:
            if self.part is not None:
                raise Wrong("a pack within a message")
            self.packs += 1
            for message in content:
                self.message(message)
            return
        self.pieces += 1
        if bool(form & START) != (self.part is None):
            raise Wrong("a piece out of place")
        self.part = [content] if form & START else self.part + [content]
        if form & END:
            message, self.part = b"".join(self.part), None
            self.message(message)

    def message(self, message):
        self.messages += 1
        self.bytes += len(message)
        self.sizes[len(message)] = self.sizes.get(len(message), 0) + 1
        self.digest.update(len(message).to_bytes(4, "big") + message)
        self.tests += is_test_message(message, self.messages - 1)

    def found(self):
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "pieces": self.pieces,
            "packs": self.packs,
            "sizes": {str(size): count for size, count in sorted(self.sizes.items())},
            "test_messages": self.tests,
            "sha256": self.digest.hexdigest(),
        }


def is_test_message(message, sequence):
    """Whether it is measurement message number `sequence`, as the first part of docs/wire.md has it."""
    if len(message) < 32:
        return False
    length, check, flags = (int.from_bytes(message[a:b], "big") for a, b in ((4, 8), (12, 16), (16, 18)))
    covered = message if flags == 1 else message[:32]
    right = check == crc(covered[:12] + bytes(4) + covered[16:], CRC32C, 0xFFFFFFFF)
    return right and length == len(message) and sequence == int.from_bytes(message[18:24], "big")


class Way:
    """What went one way, and what is known of it."""

    def __init__(self, terms):
        # Of the end that receives it.
        self.terms = terms
        self.next, self.early, self.end = 0, set(), 0
        self.frames, self.acknowledged, self.used, self.limit = {}, 0, 0, terms["credit"]
        self.channels, self.finish, self.probes = {}, None, {}
        # Reassembled frames in parts, by their number.
        self.parts = {}
        # What repair frames are made of, and those that wait for more: by block their sums, by row.
        self.protected, self.repairs = {}, {}
        names = "frames resent parts bytes acks acks_on_data nacks ranges bad control_frames repairs rebuilt"
        self.counts = dict.fromkeys(names.split(), 0)

    def channel(self, number):
        return self.channels.setdefault(number, Channel(self.terms["channel_credit"]))

    def note(self, number):
        self.early.add(number)
        self.end = max(self.end, number + 1)
        while self.next in self.early:
            self.early.remove(self.next)
            self.next += 1

    def found(self):
        named = {str(number): channel.found() for number, channel in sorted(self.channels.items())}
        return dict(self.counts, numbers=self.end, finished=self.finish is not None, channels=named)


class Connection:
    def __init__(self, client, server, theirs, ours, ends):
        self.client, self.server, self.ends = client, server, ends
        self.key = key_of(client, server)
        self.check = Check(ours["check"])
        self.mode = ours["mode"]
        self.window = max(1, min(theirs["window"], ours["window"]))
        self.longest = max(128, min(theirs["longest"], ours["longest"]))
        self.parts = theirs["parts"] and ours["parts"]
        # Not with an end that takes parts.
        self.fec = (0, 0) if theirs["parts"] or ours["parts"] else tuple(map(min, theirs["fec"], ours["fec"]))
        # What goes out is taken on the server's terms.
        self.out, self.back = Way(ours), Way(theirs)

    def ways(self, source):
        return (self.out, self.back) if source == self.ends[0] else (self.back, self.out)

    def word(self, frame, source):
        """The secret of a frame, if it is of this connection."""
        way, other = self.ways(source)
        epoch = 0
        if frame[0] >> 5 and len(frame) >= 4:
            near = other.acknowledged if frame[0] >> 5 == 4 else way.next
            epoch = expand(int.from_bytes(frame[1:4], "big"), near, 24) >> 24
        return word(self.key, way is self.out, epoch)

    def take(self, source, frame):
        """A frame whose check holds: its kind and fields."""
        way, other = self.ways(source)
        body = frame[: -self.check.size]
        way.counts["bytes"] += len(frame)
        kind = frame[0] >> 5
        if kind == 0:
            return self.take_control_frame(way, other, frame, body)
        if kind == 4:
            return self.take_ack(way, other, body)
        if kind == 5:
            return self.take_repair(way, other, frame, body)
        if kind == 6:
            return self.take_part(way, other, body)
        if kind > 6:
            raise Wrong("kind %d" % kind)
        kind, said, fields = read_data(body)
        if len(frame) > self.longest:
            raise Wrong("a frame of %d bytes, %d were agreed upon" % (len(frame), self.longest))
        self.take_data(way, other, said, body)
        return kind, fields

    def take_sealed(self, source, frame):
        """An encrypted frame, or what looks like one: its kind and fields."""
        counts = self.ways(source)[0].counts
        body, count, tag = frame[:-19], frame[-19:-16], frame[-16:]
        if len(body) < 1:
            raise Wrong("it ends within its tag")
        kind, _, fields = read_sealed(body)
        counts["bytes"] += len(frame)
        name = {"ack": "acks", "repair": "repairs", "part": "parts"}.get(kind, "frames")
        counts["control_frames" if body[0] >> 5 == 0 else name] += 1
        count = ("count", count, int.from_bytes(count, "big"), "")
        return kind, fields + [count, ("check", tag, tag, "tag"), ("status", b"", UNVERIFIED, "")]

    def take_part(self, way, other, body):
        kind, said, fields = read_part(body)
        way.counts["parts"] += 1
        if not self.parts:
            raise Wrong("a part, which was not agreed upon")
        number, offset = expand(said["number"], way.next, 24), said["offset"]
        if offset + len(said["bytes"]) + self.check.size > self.longest:
            raise Wrong("parts of a frame that is too long")
        # By its place, each byte that came.
        came = way.parts.setdefault(number, {})
        came.update(enumerate(said["bytes"], offset))
        if said["last"]:
            came["end"] = offset + len(said["bytes"])
        if "end" in came and all(at in came for at in range(came["end"])):
            whole = bytes(came[at] for at in range(came["end"]))
            del way.parts[number]
            _, said, _ = read_data(whole)
            self.take_data(way, other, said, whole)
        return kind, fields

    def take_control_frame(self, way, other, frame, body):
        kind, said, fields = read_control_frame(body)
        way.counts["control_frames"] += 1
        if kind == "probe":
            way.probes[said["token"]] = len(frame)
        if kind == "probe_reply" and other.probes.get(said["token"]) != said["length"]:
            raise Wrong("an answer to no probe")
        return kind, fields

    def take_ack(self, way, other, body):
        _, said, fields = read_ack(body)
        way.counts["acks"] += 1
        way.counts["nacks"] += bool(said["flags"] & NACK)
        way.counts["ranges"] += len(said["ranges"])
        at = self.acknowledge(other, said["acknowledged"])
        if said["rebuilt"] is not None and 0 in self.fec:
            raise Wrong("frames were rebuilt that could not be")
        for missing, arrived in said["ranges"]:
            at += missing + arrived
        if at > other.end:
            raise Wrong("an acknowledgement of what was never sent")
        return "ack", fields

    def acknowledge(self, other, low):
        number = expand(low, other.acknowledged, 24)
        if number > other.end:
            raise Wrong("an acknowledgement of what was never sent")
        other.acknowledged = max(other.acknowledged, number)
        return number

    def take_data(self, way, other, said, body):
        number = expand(said["number"], way.next, 24)
        way.counts["frames"] += 1
        if "acknowledged" in said:
            way.counts["acks_on_data"] += 1
            way.counts["nacks"] += bool(said["flags"] & NACK)
            self.acknowledge(other, said["acknowledged"])
        # The chunks' bytes: all that must be the same when it is sent again.
        first, rest = body[0] & ~(ACK | ACK_REQUEST | NACK), body[7 if said["flags"] & ACK else 4 :]
        chunks = hashlib.sha256(bytes([first]) + rest).digest()
        if number in way.frames:
            way.counts["resent"] += 1
            if way.frames[number] != chunks:
                raise Wrong("frame %d is another when sent again" % number)
            return
        if number >= way.acknowledged + self.window:
            raise Wrong("frame %d lies outside of the window from %d" % (number, way.acknowledged))
        way.protected[number] = protected(body[0], rest)
        self.arrive(way, other, number, said, chunks)
        self.rebuild(way, other)

    def take_repair(self, way, other, frame, body):
        _, said, fields = read_repair(body)
        way.counts["repairs"] += 1
        if said["block"] > self.fec[0] or said["row"] >= self.fec[1]:
            raise Wrong("a repair frame that was not agreed upon")
        if len(frame) > self.longest:
            raise Wrong("a repair frame of %d bytes, %d were agreed upon" % (len(frame), self.longest))
        first = expand(said["first"], way.next, 24)
        way.repairs.setdefault((first, said["block"]), {})[said["row"]] = said["sum"]
        self.rebuild(way, other)
        return "repair", fields

    def rebuild(self, way, other):
        """Rebuilds what can be; of a block that is whole every sum must be right."""
        for (first, block), sums in list(way.repairs.items()):
            unknown = [place for place in range(block) if first + place not in way.protected]
            if len(unknown) > len(sums):
                continue
            del way.repairs[first, block]
            for place in set(range(block)) - set(unknown):
                for row in sums:
                    sums[row] = plus(sums[row], weight(row, place), way.protected[first + place])
            solved = solve(list(sums.items())[: len(unknown)], unknown)
            for place, total in solved.items():
                length, number = int.from_bytes(total[:2], "big"), first + place
                way.protected[number] = total[: 3 + length]
                if any(total[3 + length :]) or protected(total[2], total[3 : 3 + length]) != way.protected[number]:
                    raise Wrong("frame %d cannot be rebuilt" % number)
                for row in sums:
                    sums[row] = plus(sums[row], weight(row, place), way.protected[number])
                kept, chunks = total[2:3], total[3 : 3 + length]
                _, said, _ = read_data(kept + (number & 0xFFFFFF).to_bytes(3, "big") + chunks)
                way.counts["rebuilt"] += 1
                self.arrive(way, other, number, said, hashlib.sha256(kept + chunks).digest())
            if any(any(total) for total in sums.values()):
                raise Wrong("a repair frame of %d frames from %d on is not their sum" % (block, first))

    def arrive(self, way, other, number, said, chunks):
        """What a frame carries that had not come before."""
        way.frames[number] = chunks
        way.note(number)
        for chunk in said["chunks"]:
            if chunk["channel"] == CONTROL:
                control, channel, limit = chunk["said"]
                if control == 1:
                    other.limit = max(other.limit, limit)
                elif control == 2:
                    other.channel(channel).limit = max(other.channel(channel).limit, limit)
                else:
                    way.finish = number
                continue
            cost, channel = chunk["size"] + 8, way.channel(chunk["channel"])
            way.used, channel.used = way.used + cost, channel.used + cost
            if way.used > way.limit or channel.used > channel.limit:
                raise Wrong("more than the credit")
            if way.finish is not None and number > way.finish:
                raise Wrong("a message after the end")
            channel.take(chunk)


class Decoder:
    """All that a capture holds."""

    def __init__(self):
        # By the pair of ends, newest first; what clients asked for, by their number.
        self.connections, self.asked, self.all = {}, {}, []
        self.wrong, self.counts, self.datagrams = [], {}, 0

    def take(self, packet, source, target, datagram):
        """The frames of a datagram, each as its bytes, its name and its fields."""
        self.datagrams += 1
        frames, segment = [], None
        while datagram:
            length, connection = self.cut(source, target, datagram, segment)
            segment = segment or length
            frame, datagram = datagram[:length], datagram[length:]
            try:
                kind, fields = self.frame(source, target, frame, connection)
            except Wrong as wrong:
                self.wrong.append("packet %d: %s" % (packet, wrong))
                kind, fields = "wrong", []
            self.counts[kind] = self.counts.get(kind, 0) + 1
            frames.append((frame, kind, fields))
        return frames

    def cut(self, source, target, data, segment):
        """How long the first frame of a datagram is, and the connection whose check it has, if any."""
        if data[0] in (1, 2, 3, 4, 5):
            return len(data), None
        if segment:
            data = data[:segment]
        known = self.connections.get(frozenset((source, target)), [])
        # Most datagrams are one frame. None, the check, would hold for several as well.
        for connection in known:
            if connection.check.code != 0 and connection.check.holds(data, connection.word(data, source)):
                return len(data), connection
        for connection in known:
            end = connection.check.first_end(data, connection.word(data, source))
            if end:
                return end, connection
        sealed = (connection for connection in known if connection.check.code == AEAD)
        return len(data), next(sealed, None)

    def frame(self, source, target, frame, connection):
        if frame[0] in (1, 2, 3, 4, 5):
            return self.plain(source, target, frame)
        if connection is None:
            known = self.connections.get(frozenset((source, target)), [])
            if not known:
                raise Wrong("a frame without a connection")
            counts = known[0].ways(source)[0].counts
            counts["bad"], counts["bytes"] = counts["bad"] + 1, counts["bytes"] + len(frame)
            return "damaged", damaged(frame, known[0].check.size)
        if connection.check.code == AEAD:
            return connection.take_sealed(source, frame)
        kind, fields = connection.take(source, frame)
        check = frame[-connection.check.size :]
        return kind, fields + [("check", check, check, ""), ("status", b"", GOOD, "")]

    def plain(self, source, target, frame):
        if not Check(1).holds(frame, 0):
            return "damaged " + kind_of(frame[0]), damaged(frame, 4)
        kind, said, fields = read_plain(frame)
        proof = PROOF if said.get("terms", {}).get("check") == AEAD else 0
        if len(frame) != SIZES[kind] + proof:
            raise Wrong("%s of %d bytes" % (kind, len(frame)))
        if said.get("version", 1) != 1:
            raise Wrong("version %d" % said["version"])
        if kind == "open":
            self.asked[said["client"]] = said["terms"]
        if kind == "opened":
            self.opened(source, target, said)
        return kind, fields + [("check", frame[-4:], frame[-4:], ""), ("status", b"", GOOD, "")]

    def opened(self, server, client, said):
        known = self.connections.setdefault(frozenset((server, client)), [])
        if any((c.client, c.server) == (said["client"], said["server"]) for c in known):
            return
        asked = self.asked.get(said["client"])
        if asked is None:
            raise Wrong("opened without a request")
        if (asked["mode"], asked["check"]) != (said["terms"]["mode"], said["terms"]["check"]):
            raise Wrong("opened on other terms")
        connection = Connection(said["client"], said["server"], asked, said["terms"], (client, server))
        known.insert(0, connection)
        self.all.append(connection)

    def found(self):
        unfinished, connections = [], []
        for connection in self.all:
            for name, way in (("out", connection.out), ("back", connection.back)):
                if way.early:
                    unfinished.append("%s: frames before %d are missing" % (name, min(way.early)))
                for number, channel in sorted(way.channels.items()):
                    if channel.early or channel.part is not None:
                        unfinished.append("%s, channel %d: a message has no end" % (name, number))
            connections.append(
                {
                    "client": "%016x" % connection.client,
                    "server": "%016x" % connection.server,
                    "mode": MODES[connection.mode],
                    "check": connection.check.code,
                    "out": connection.out.found(),
                    "back": connection.back.found(),
                }
            )
        return {
            "datagrams": self.datagrams,
            "frames": self.counts,
            "connections": connections,
            "wrong": self.wrong,
            "unfinished": unfinished,
        }


# --- captures


def blocks(data):
    """The blocks of a pcapng file: type, body, byte order."""
    at, order = 0, "<"
    while at + 12 <= len(data):
        if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":
            order = "<" if data[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
        kind, length = struct.unpack_from(order + "II", data, at)
        yield kind, data[at + 8 : at + length - 4], order
        at += length


def packets(data):
    """Number, link type and bytes of each packet; what was cut short is an error."""
    links, count = [], 0
    for kind, body, order in blocks(data):
        if kind == 0x0A0D0D0A:
            links = []
        elif kind == 1:
            links.append(struct.unpack_from(order + "H", body)[0])
        elif kind == 6:
            count += 1
            interface, _, _, captured, length = struct.unpack_from(order + "IIIII", body)
            yield count, links[interface], body[20 : 20 + captured], captured == length


def network(link, data):
    """The IP packet of a captured one."""
    if link == 1:
        return data[14:] if data[12:14] in (b"\x08\x00", b"\x86\xdd") else None
    if link == 123:
        data = data[4:]
        return data[8:] if data[:3] == b"\xaa\xaa\x03" else data
    return data if link in (101, 228, 229) else None


def datagram(link, data):
    """Where a UDP datagram comes from, where it goes, and what it carries."""
    ip = network(link, data)
    if not ip:
        return None
    if ip[0] >> 4 == 4 and ip[9] == 17:
        if int.from_bytes(ip[6:8], "big") & 0x3FFF:
            return None
        at, ends = (ip[0] & 15) * 4, (ip[12:16], ip[16:20])
    elif ip[0] >> 4 == 6 and ip[6] == 17:
        at, ends = 40, (ip[8:24], ip[24:40])
    else:
        return None
    length = int.from_bytes(ip[at + 4 : at + 6], "big")
    # What a system cuts later may say that it is longer than 16 bits can.
    payload = ip[at + 8 : at + length] if length >= 8 else ip[at + 8 :]
    return (ends[0], ip[at : at + 2]), (ends[1], ip[at + 2 : at + 4]), payload


def short(data):
    """Bytes as hexadecimal digits, eight or more of the same as XX*COUNT."""
    runs = re.finditer(rb"(.)\1{7,}|(?:(?!(.)\2{7}).)+", data, re.S)
    return " ".join("%02x*%d" % (r[1][0], len(r[0])) if r[1] else r[0].hex() for r in runs)


def long(text):
    """The bytes that `short` wrote."""
    count = lambda word: bytes.fromhex(word.split("*")[0]) * int((word + "*1").split("*")[1])
    return b"".join(count(word) for word in text.split())


def explain(who, frames):
    for frame, kind, fields in frames:
        print("# %s: %s, %d bytes" % (who, kind, len(frame)))
        line = lambda raw, said: print(("%-44s # %s" % (raw, said)).rstrip())
        for name, raw, value, meaning in fields:
            if raw:
                value = "" if isinstance(value, bytes) or value >> 32 else " %d" % value
                # A meaning that is the value and its unit says both.
                value = "" if value and meaning.startswith(value[1:] + " ") else value
                line(short(raw), name + value + (": " + meaning if meaning else ""))


def print_fields(number, frames):
    values = dict((name, []) for name in FIELDS)
    for _, _, fields in frames:
        for name, _, value, _ in fields:
            if name in values and value != b"":
                digits = "0x%0{}x".format(HEX[name]) if name in HEX else "%d"
                values[name].append(value.hex() if isinstance(value, bytes) else digits % value)
    print("\t".join([str(number)] + [",".join(values[name]) for name in FIELDS]))


def explained(text):
    """What --explain wrote: who sends, and the bytes."""
    who, data = None, b""
    for line in text.splitlines():
        heading = re.match(r"# (.) → (.): ", line)
        if heading:
            if data:
                yield who, data
            who, data = heading.groups(), b""
        else:
            data += long(line.split("#")[0])
    if data:
        yield who, data


def read(path, mode):
    """All of a file, printed as `mode` asks."""
    decoder, letters = Decoder(), {}
    with open(path, "rb") as file:
        data = file.read()
    if mode == "--read":
        for count, ((source, target), frame) in enumerate(explained(data.decode())):
            decoder.take(count + 1, source, target, frame)
        return decoder
    for number, link, packet, whole in packets(data):
        found = datagram(link, packet)
        if not found:
            continue
        if not whole:
            decoder.wrong.append("packet %d is cut short" % number)
        source, target, payload = found
        frames = decoder.take(number, source, target, payload)
        if mode == "--explain":
            of = lambda end: letters.setdefault(end, chr(ord("a") + len(letters)))
            explain("%s → %s" % (of(source), of(target)), frames)
        if mode == "--fields":
            print_fields(number, frames)
    return decoder


def main(arguments):
    mode = arguments.pop(0) if arguments[0].startswith("--") else None
    for path in arguments:
        decoder = read(path, mode)
        if mode in (None, "--read"):
            print(json.dumps(decoder.found()))
        elif decoder.wrong:
            sys.exit("\n".join(decoder.wrong))


if __name__ == "__main__":
    main(sys.argv[1:])
