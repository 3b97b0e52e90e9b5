"""Frames of IEEE 802.2 made by hand, sent to a station on an interface; its answers are held against the standard.

    frames_llc.py INTERFACE STATION

The station is `trunkline llc serve` at the other end of a pair of virtual interfaces: SAP 0x64 sends datagrams back, and
is in group 0x65; 0x74 takes acknowledged messages. Nothing here knows of the project but those numbers, how stations are
addressed, and docs/wire.md's status octet. Prints "ok" and what was tried, or ends with an assertion.
"""

import select
import socket
import struct
import sys
import time

INTERFACE, STATION = sys.argv[1], int(sys.argv[2])
ME, IT, ALL = bytes([2, 0, 0, 0, 0, 9]), bytes([2, 0, 0, 0, 0, STATION]), b"\xff" * 6
UI, XID, XID_P, TEST, TEST_P, AC0, AC0_P, AC1, AC1_P = 0x03, 0xAF, 0xBF, 0xE3, 0xF3, 0x67, 0x77, 0xE7, 0xF7
NULL, ECHO, CHECKED, GROUP, COUNT, CLOSED, EVERY, MINE = 0x00, 0x64, 0x68, 0x65, 0x74, 0x5C, 0xFF, 0x40
IDENTITY = bytes([0x81, 0x05, 0x00])

wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind((INTERFACE, 0))
wire.setsockopt(263, 8, 1)  # SOL_PACKET, PACKET_AUXDATA: tells the tag
wire.setsockopt(263, 1, struct.pack("iHH8s", socket.if_nametoindex(INTERFACE), 1, 0, b""))  # promiscuous


def frame(pdu, to=IT, priority=None, pad=True, length=None):
    tag = b"" if priority is None else struct.pack(">HH", 0x8100, priority << 13)
    body = pdu + bytes(max(0, 46 - len(pdu))) if pad else pdu
    return to + ME + tag + struct.pack(">H", len(pdu) if length is None else length) + body


def heard(limit):
    """Frames from the station within `limit` seconds: destination, priority, PDU."""
    end = time.monotonic() + limit
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([wire], [], [], left)[0]:
            return
        data, control, _, address = wire.recvmsg(4096, 256)
        if address[2] == 4 or data[6:12] != IT:  # PACKET_OUTGOING
            continue
        priority = 0
        for level, kind, aux in control:
            if (level, kind) == (263, 8):
                status, tag = struct.unpack_from("I", aux)[0], struct.unpack_from("H", aux, 16)[0]
                priority = tag >> 13 if status & 0x10 else 0  # TP_STATUS_VLAN_VALID
        (length,) = struct.unpack_from(">H", data, 12)
        assert length <= 1500, data.hex()
        yield data[:6], priority, data[14:14 + length]


def ask(pdu, priority=None, **more):
    """The first answer."""
    for _ in range(5):
        wire.send(frame(pdu, priority=priority, **more))
        for to, level, answer in heard(1):
            assert to == ME, to.hex()
            assert level == (priority or 0), (level, priority)
            return answer
    raise AssertionError(f"no answer to {pdu.hex()}")


def all_answers(pdu, limit=0.5, **more):
    wire.send(frame(pdu, **more))
    return [answer for _, _, answer in heard(limit)]


tried = []


def trial(name):
    def run(body):
        body()
        tried.append(name)
    return run


@trial("XID of the station, and of a SAP")
def _():
    for sap in (NULL, ECHO):
        assert ask(bytes([sap, MINE, XID_P]) + IDENTITY) == bytes([MINE, sap | 1, XID_P]) + IDENTITY
        # F as P was.
        assert ask(bytes([sap, MINE, XID]) + IDENTITY) == bytes([MINE, sap | 1, XID]) + IDENTITY


@trial("TEST, with information and without, long and short")
def _():
    for sap in (NULL, ECHO):
        for data in (b"", b"x", bytes(range(43)), bytes(range(44)), b"y" * 1497):
            assert ask(bytes([sap, MINE, TEST_P]) + data) == bytes([MINE, sap | 1, TEST_P]) + data
    assert ask(bytes([NULL, MINE, TEST]) + b"P is 0") == bytes([MINE, NULL | 1, TEST]) + b"P is 0"


@trial("TEST from the null SAP")
def _():
    assert ask(bytes([ECHO, NULL, TEST_P]) + b"null") == bytes([NULL, ECHO | 1, TEST_P]) + b"null"


@trial("an answer has the priority of its question")
def _():
    for priority in range(8):
        assert ask(bytes([NULL, MINE, TEST_P]) + b"p", priority=priority) == bytes([MINE, 1, TEST_P]) + b"p"


@trial("a group is answered by its members, everybody's SAP by all that are open")
def _():
    assert all_answers(bytes([GROUP, MINE, TEST_P]) + b"g") == [bytes([MINE, ECHO | 1, TEST_P]) + b"g"]
    every = all_answers(bytes([EVERY, MINE, XID_P]) + IDENTITY, to=ALL)
    assert bytes([MINE, ECHO | 1, XID_P]) + IDENTITY in every and len(every) > 3, every
    assert len({answer[1] for answer in every}) == len(every)


@trial("no reply to a closed SAP, to a response, or to an invalid PDU")
def _():
    silent = [
        bytes([CLOSED, MINE, TEST_P]), bytes([CLOSED, MINE, XID_P]) + IDENTITY,
        bytes([NULL, MINE | 1, TEST_P]) + b"response", bytes([NULL, MINE | 1, XID_P]) + IDENTITY,
        bytes([NULL, MINE, 0x00]), bytes([NULL, MINE, 0x7F]), bytes([ECHO, MINE, 0x13]) + b"UI with P", bytes([NULL]),
        bytes([GROUP, MINE, AC0]) + b"no acknowledgement for a group", bytes([ECHO, MINE | 1, UI]) + b"a response",
    ]
    for pdu in silent:
        assert all_answers(pdu, limit=0.1) == [], pdu.hex()
    # The length is what counts, not what the frame has besides; and one that says more than there is says nothing.
    assert all_answers(bytes([NULL, MINE, TEST_P]), limit=0.1, length=200) == []


@trial("UI is delivered, to a SAP, a group and all")
def _():
    for data in (b"", b"datagram", bytes(1497)):
        assert ask(bytes([ECHO, MINE, UI]) + data) == bytes([MINE, ECHO, UI]) + data
    assert ask(bytes([GROUP, MINE, UI]) + b"group", to=ALL) == bytes([MINE, ECHO, UI]) + b"group"
    assert ask(bytes([ECHO, MINE, UI]) + b"5", priority=5) == bytes([MINE, ECHO, UI]) + b"5"


@trial("UI with a checksum comes back with one; with a wrong one not at all")
def _():
    check = struct.pack(">I", 0xCBF43926)
    whole = bytes([CHECKED, MINE, UI]) + b"123456789" + check
    assert ask(whole) == bytes([MINE, CHECKED, UI]) + b"123456789" + check
    assert all_answers(whole[:-1] + b"\x27", limit=0.2) == []
    assert all_answers(bytes([CHECKED, MINE, UI]) + b"123", limit=0.2) == []


def status(pdu):
    """Number of the response, F, the status's halves."""
    assert pdu[:2] == bytes([MINE, COUNT | 1]) and pdu[2] & 0x6F == 0x67 and len(pdu) == 4, pdu.hex()
    return pdu[2] >> 7, pdu[2] >> 4 & 1, pdu[3] & 15, pdu[3] >> 4


@trial("AC0 is answered by AC1 and AC1 by AC0, with a status")
def _():
    def said(control, data, sap=COUNT, priority=4):
        for answer in (a for a in [ask(bytes([sap, MINE, control]) + data, priority=priority)]):
            return answer

    # Agreement on a number: P, and no information; F, and status "never submitted".
    assert status(said(AC0_P, b"")) == (1, 1, 0, 3)
    # Messages of two octets are taken and not answered by the user of this SAP.
    assert status(said(AC1, b"ab")) == (0, 0, 0, 4)
    assert status(said(AC0, b"cd")) == (1, 0, 0, 4)
    # A double is answered like the first.
    assert status(said(AC0, b"cd")) == (1, 0, 0, 4)
    assert status(said(AC1_P, b"ef")) == (0, 1, 0, 3)
    # Who has not agreed on a number is served: another priority is another sequence.
    assert status(said(AC1, b"gh", priority=2)) == (0, 0, 0, 4)
    closed = said(AC0, b"closed", sap=CLOSED)
    assert closed == bytes([MINE, CLOSED | 1, AC1, 0x41]), closed.hex()


@trial("frames without padding, and with an empty tag")
def _():
    assert ask(bytes([NULL, MINE, TEST_P]), pad=False) == bytes([MINE, 1, TEST_P])
    assert ask(bytes([NULL, MINE, TEST_P]), priority=0) == bytes([MINE, 1, TEST_P])


for name in tried:
    print("ok", name)
