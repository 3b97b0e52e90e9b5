#!/usr/bin/env python3
"""The wide format by raw UDP, from docs/reference/bundle-wire.md alone, against the daemons: a host, the wide area, and a walk over
datagrams that knows nothing but the header of DIS.

Each function whose name begins with `check_` is a check; it starts the daemons that it needs, on addresses of its own
from 127.0.0.0/8, and ends them.

    wide.py TRUNKLINE [CHECK…]
"""

import sys

sys.dont_write_bytecode = True

import random
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import classic
from classic import LONG, TRUNKLINE, Place, Program, group, pdu, recorded, udp

HOST, LEVEL1, CENTRAL = 1, 2, 3
OURS = 244


# --- the format


def walk(data):
    """The PDUs of a datagram, by their headers alone. Each must be legal, and nothing may be left."""
    found, at = [], 0
    while at < len(data):
        assert len(data) - at >= 12, f"{len(data) - at} octets are no header"
        length = struct.unpack(">H", data[at + 8 : at + 10])[0]
        assert 12 <= length <= 8192 and at + length <= len(data), (length, at, len(data))
        found.append(data[at : at + length])
        at += length
    return found


def is_pdu(body):
    return 12 <= len(body) <= 8192 and struct.unpack(">H", body[8:10])[0] == len(body) and body[2] != OURS


def ours(length):
    return struct.pack(">BBBBIHH", 7, 255, OURS, OURS, 0, length, 0)


def bundle(role, number, to=0, life=1, session=0, messages=(), control=b""):
    """Messages are (address, source, life, sequence, body), ordinary."""
    length = 32 + 24 * len(messages) + len(control)
    data = ours(length) + b"TL" + bytes([1 << 4 | role, len(messages)])
    data += struct.pack(">HHIII", number, to, life, session, 0)
    for address, source, born, sequence, body in messages:
        data += struct.pack(">IIIIHHBBH", address, source, born, sequence, len(body), 0xFFFF, is_pdu(body), 0, 0)
    data += control
    for *_, body in messages:
        if is_pdu(body):
            data += body
        else:
            whole = (12 + len(body) + 7) // 8 * 8
            data += ours(whole) + body + bytes(whole - 12 - len(body))
    return data


def read(data):
    """Role and session of a bundle, and its messages: (address, source, flags, body)."""
    index, *carried = walk(data)
    assert index[:4] == bytes([7, 255, OURS, OURS]) and index[12:14] == b"TL" and index[14] >> 4 == 1, index
    count = index[15]
    assert count == len(carried) and len(index) % 8 == 0, (count, len(carried))
    found = []
    for at, one in enumerate(carried):
        entry = index[32 + 24 * at :][:24]
        address, source, _, _, length, _, how, flags, _ = struct.unpack(">IIIIHHBBH", entry)
        assert (how == 1) == (one[2] != OURS), entry
        found.append((address, source, flags, one if how else one[12 : 12 + length]))
        assert len(found[-1][3]) == length
    return index[14] & 15, struct.unpack(">I", index[24:28])[0], found


class Host:
    """A host that wants a range of addresses and says so until it is in a session. It keeps all datagrams."""

    def __init__(self, place, number, first, last):
        self.place, self.number, self.socket = place, number, udp(place.ip)
        self.join = struct.pack(">BBHIII", 1, 1, 16, 0, first, last)
        self.datagrams, self.session, self.ends = [], 0, False
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        said = 0.0
        while not self.ends:
            if time.monotonic() - said > 0.1:
                said = time.monotonic()
                # The same first change, however often it is retransmitted.
                told = self.join if self.session else b""
                data = bundle(HOST, self.number, session=self.session, control=told)
                self.socket.sendto(data, (self.place.ip, 3458))
            if select.select([self.socket], [], [], 0.05)[0]:
                data = self.socket.recv(1 << 16)
                self.datagrams.append(data)
                role, session, _ = read(data)
                assert role == CENTRAL
                self.session = session or self.session

    def messages(self):
        return [one for data in list(self.datagrams) for one in read(data)[2]]


class Wide:
    """A host of site 2, straight on the wide area."""

    def __init__(self, place):
        self.port, self.sequence = place.port, {}
        self.life = random.randrange(1 << 32)
        self.says = udp("127.0.0.1")
        self.says.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))

    def send(self, address, body):
        packet = address % 65536 // 32
        number = self.sequence[packet] = self.sequence.get(packet, -1) + 1
        data = bundle(LEVEL1, 1, to=packet, messages=[(address, 2 << 16 | 1, self.life, number, body)])
        self.says.sendto(data, (group(32 * packet), self.port))


class Relay:
    """Between a host and the central converter: it drops some of what passes, both ways."""

    def __init__(self, place, loss):
        self.here, self.there = udp(place.ip), udp(place.ip)
        self.central, self.host = (place.ip, 3458), None
        self.at = "{}:{}".format(*self.here.getsockname())
        self.loss, self.dropped, self.dice = loss, 0, random.Random(random.random())
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            for one in select.select([self.here, self.there], [], [])[0]:
                data, peer = one.recvfrom(1 << 16)
                if one is self.here:
                    self.host = peer
                if self.dice.random() < self.loss:
                    self.dropped += 1
                elif one is self.here:
                    self.there.sendto(data, self.central)
                elif self.host:
                    self.here.sendto(data, self.host)


# --- daemons


def central(place, *flags):
    return place.daemon(
        "central", "--format", "wide", "--listen-level1", f"{place.ip}:3450", "--listen-hosts", f"{place.ip}:3458",
        "--status", f"{place.ip}:{place.status}", *flags)


def level1(place, number=1, *flags):
    return place.daemon(
        "level1", "--format", "wide", "--number", number, "--central", f"{place.ip}:3450", "--port", place.port, *flags)


class Workload:
    """A host that plays a workload. Without a time it runs until it is ended; its output is stored until then."""

    def __init__(self, place, number, *flags, at=None):
        words = [TRUNKLINE, "converter", "host", "--format", "wide", "--number", number, "--central", at or f"{place.ip}:3458"]
        self.process = subprocess.Popen([str(word) for word in (*words, *flags)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline()

    def end(self):
        self.process.terminate()
        return self.total()

    def total(self):
        """Sent, refused, received, lost."""
        out, _ = self.process.communicate(timeout=4 * LONG)
        assert self.process.returncode == 0, out
        found = re.search(r"^sent (\d+), refused (\d+), received (\d+), lost (\d+) in", out, re.M)
        assert found, out
        return tuple(map(int, found.groups()))


def dis_host(place, number, *flags, rules):
    """A host's interface that speaks DIS at 8000 + its number with a program at 7000 + its number."""
    import tempfile

    file = tempfile.NamedTemporaryFile("w", suffix=".toml")
    file.write(rules)
    file.flush()
    place.kept.append(file)
    return place.daemon(
        "host", "--format", "wide", "--number", number, "--central", f"{place.ip}:3458",
        "--dis", f"{place.ip}:{8000 + number}", "--dis-to", f"{place.ip}:{7000 + number}", "--rules", file.name, *flags)


def kill(place, daemon):
    daemon.process.kill()
    daemon.process.wait()
    daemon.process.stdout.close()
    place.daemons.remove(daemon)


def wants(place, host, count):
    name = f'trunkline_converter_wanted{{host="{host}"}}'
    place.until(f"host {host} to want {count}", lambda: place.metrics().get(name) == count)


def held(place):
    return {number: place.metrics().get(f'trunkline_converter_held{{level1="{number}"}}') for number in (1, 2)}


FAR = 4_000_000_000
TO_FAR = f"[default]\naddress = {FAR}\n[subscribe]\naddresses = '{FAR}-{FAR + 9}'\n"


# --- checks


def check_twenty_hosts_and_every_pdu_of_a_datagram_is_legal():
    pdus = [one for one in recorded() if len(one) < 1400][:120]
    with Place() as place:
        central(place, "--longest", 1472)
        level1(place)
        for number in range(1, 21):
            dis_host(place, number, rules=TO_FAR)
        programs = [Program(place, number) for number in range(1, 21)]
        raw = Host(place, 60_000, FAR, FAR)
        for number in range(1, 21):
            wants(place, number, 10)
        wants(place, 60_000, 1)
        assert place.metrics()["trunkline_converter_hosts"] == 21
        for at in range(0, len(pdus), 10):
            for one in pdus[at : at + 10]:
                programs[0].send(one)
            for program in programs[1:]:
                program.expect(pdus[at : at + 10])
        assert programs[0].take(0.2) is None, "what a host says it does not hear"
        place.until("the raw host to have all", lambda: len(raw.messages()) >= len(pdus))
        raw.ends = True
        assert raw.messages() == [(FAR, 1 << 16 | 1, 0, one) for one in pdus]
        # A reader of DIS that knows nothing of bundles finds what was sent, in its order.
        found = [one for data in raw.datagrams for one in walk(data) if one[2] != OURS]
        assert found == pdus
        assert max(map(len, raw.datagrams)) <= 1472 and any(len(walk(data)) > 3 for data in raw.datagrams)


def check_a_level_1_that_is_killed_is_replaced():
    with Place() as place:
        central(place)
        converters = {number: level1(place, number) for number in (1, 2)}
        raw, wide = Host(place, 1, 70_000, 70_000), Wide(place)
        flows = lambda: (wide.send(70_000, b"are you there?"), time.sleep(0.02), raw.messages())[2]
        place.until("a message from the wide area", flows)
        holders = [number for number, count in held(place).items() if count]
        assert len(holders) == 1
        dead, other = holders[0], 3 - holders[0]
        kill(place, converters[dead])
        place.until("the other to have the group", lambda: held(place) == {dead: None, other: 1})
        place.until("the group to be joined", lambda: (flows(), place.metrics()['trunkline_converter_gap_microseconds{of="longest"}'])[1])
        before = len(raw.messages())
        place.until("a message after the takeover", lambda: len(flows()) > before)
        counted = place.metrics()
        assert counted['trunkline_converter_silent_total{of="level1"}'] == 1
        assert counted["trunkline_converter_moved_total"] == 1
        # Each came once, though both were on one machine.
        assert counted['trunkline_converter_numbers_total{told="doubled"}'] == 0
        # It comes back, and is given what is wanted next.
        level1(place, dead)
        place.until("it to be back", lambda: held(place)[dead] == 0)
        raw.ends = True


def check_a_host_that_is_killed_or_ends_leaves_the_database():
    with Place() as place:
        central(place)
        level1(place)
        hosts = [dis_host(place, number, rules=f"subscribe.addresses = {64 * number}") for number in (1, 2)]
        place.until("two groups", lambda: held(place)[1] == 2)
        kill(place, hosts[0])
        place.until("one group", lambda: held(place)[1] == 1)
        assert place.metrics()["trunkline_converter_hosts"] == 1
        hosts[1].end()
        place.until("nobody", lambda: place.metrics()["trunkline_converter_hosts"] == 0)
        assert held(place)[1] == 0


def check_in_any_order_and_interest_comes_back_by_itself():
    with Place() as place:
        # The central converter is the last to start, and starts again.
        one, two = (dis_host(place, number, rules=TO_FAR) for number in (1, 2))
        level1(place)
        programs = [Program(place, number) for number in (1, 2)]
        for _ in range(3):
            middle = central(place)
            for number in (1, 2):
                wants(place, number, 10)
            place.until("the group", lambda: held(place)[1] == 1)
            some = [pdu(random.choice([12, 144, 1104])) for _ in range(20)]
            for sends, hears in (programs, programs[::-1]):
                for each in some:
                    sends.send(each)
                hears.expect(some)
            kill(place, middle)


def check_priority_arrives_through_a_path_that_loses():
    with Place() as place:
        central(place)
        level1(place)
        # Not much more: where three hellos in a row are lost, a session ends, and with it what was not yet acknowledged.
        relays = [Relay(place, 0.15) for _ in range(2)]
        status = place.free()
        listener = Workload(place, 2, "--join", "5,70000", "--status", f"{place.ip}:{status}", at=relays[1].at)
        wants(place, 2, 2)
        sender = Workload(place, 1, "--send", "5,70000", "--rate", 200, "--time", "2s", "--priority", at=relays[0].at)
        assert sender.total()[0] >= 300
        sent = sender_count(place, "from_hosts")
        place.until("all to arrive", lambda: received(place, status) == sent)
        assert place.metrics()["trunkline_converter_resent_total"] > 0
        assert listener.end()[2:] == (sent, 0)
        assert all(relay.dropped > 0 for relay in relays)


def sender_count(place, way):
    return place.metrics()[f'trunkline_converter_messages_total{{way="{way}"}}']


def received(place, at):
    return place.metrics(at)['trunkline_converter_messages_total{way="received"}']


def saturated(place, way, at=None):
    return place.metrics(at)[f'trunkline_converter_dropped_total{{way="{way}",why="saturated",priority="ordinary"}}']


def check_rules_give_priority():
    with Place() as place:
        central(place)
        level1(place)
        dis_host(place, 1, rules=f"[[rule]]\ntype = 2\naddress = {FAR}\npriority = true\n[default]\naddress = {FAR + 1}\n")
        raw = Host(place, 2, FAR, FAR + 1)
        wants(place, 2, 2)
        program, (urgent, other) = Program(place, 1), (pdu(144, kind=2), pdu(200, kind=3))
        program.send(urgent, other)
        both = {(FAR, 1 << 16 | 1, 3, urgent), (FAR + 1, 1 << 16 | 1, 0, other)}
        # Without acknowledgements, priority messages are retransmitted.
        place.until("both, and one again", lambda: len(raw.messages()) > 3)
        raw.ends = True
        assert set(raw.messages()) == both and raw.messages().count((FAR + 1, 1 << 16 | 1, 0, other)) == 1


def check_a_host_takes_no_more_than_it_says():
    with Place() as place:
        central(place)
        level1(place)
        status = place.free()
        few = Workload(place, 1, "--join", "0-9", "--saturate", 25, "--status", f"{place.ip}:{status}")
        every = place.free()
        all_ = Workload(place, 2, "--join", "0-9", "--status", f"{place.ip}:{every}")
        for number in (1, 2):
            wants(place, number, 10)
        sent = Workload(place, 3, "--send", "0-9", "--rate", 500, "--time", "2s").total()[0]
        # What was under way when it said so is dropped there, the rest where it would leave.
        place.until("all to be counted", lambda: sent <= sum(
            (saturated(place, "to_hosts"), saturated(place, "host", status),
             received(place, status))))
        place.until("all to be received", lambda: received(place, every) == sent)
        dropped = saturated(place, "to_hosts") + saturated(place, "host", status)
        got = few.end()[2]
        assert got + dropped == sent and 0 < got < sent // 2, (got, dropped, sent)
        assert saturated(place, "to_hosts") > sent // 2
        assert all_.end()[2:] == (sent, 0)


def check_one_bundle_to_all_by_broadcast_and_multicast():
    for to in ("127.255.255.255", "239.77.7.7"):
        with Place() as place:
            to = f"{to}:{random.randrange(20_000, 30_000)}"
            central(place, "--hosts", to)
            level1(place)
            at = [place.free() for _ in range(3)]
            hosts = [
                Workload(place, 1 + n, "--join", which, "--listen", to, "--status", f"{place.ip}:{at[n]}")
                for n, which in enumerate(("0-9", "10-19", "0-19"))
            ]
            for number, count in ((1, 10), (2, 10), (3, 20)):
                wants(place, number, count)
            sent = Workload(place, 4, "--send", "0-19", "--rate", 500, "--time", "2s", "--listen", to).total()[0]
            place.until("all to have all", lambda: [received(place, at[2]), received(place, at[0]) + received(place, at[1])] == [sent] * 2)
            one, two, both = (host.end()[2:] for host in hosts)
            assert (one[0] + two[0], both) == (sent, (sent, 0)) and one[1] + two[1] == 0 and min(one[0], two[0]) >= sent // 2 - 10
            # Each once for all that want it.
            assert sender_count(place, "to_hosts") == sent


def check_who_speaks_the_other_format_is_told_once():
    with Place() as place:
        wide, old = central(place), Place()
        old.ip = place.ip.rsplit(".", 1)[0] + ".255"
        with old:
            old.status = old.free()
            classics = old.central()
            says = udp(place.ip)
            # As often as one likes; and what is none at all says nothing.
            for _ in range(3):
                says.sendto(bundle(HOST, 7), (old.ip, 3458))
                says.sendto(classic.bundle([(1, b"a classic bundle")], classic.bit(1)), (place.ip, 3458))
                says.sendto(b"neither", (place.ip, 3458))
            at = "{}:{}".format(*says.getsockname())
            wide.tells = [f"received bundles of the classic format from {at}; this converter uses the wide format (--format)"]
            classics.tells = [f"received bundles of the wide format from {at}; this converter uses the classic format (--format)"]
            name = 'trunkline_converter_malformed_total{way="in"}'
            place.until("them to be counted", lambda: place.metrics()[name] == 6)
            old.until("them to be counted", lambda: old.metrics()[name] == 3)


def check_two_of_one_number_are_told():
    with Place() as place, Place() as other:
        middle, old = central(place), other.central()
        middle.tells = ["two hosts use number 7: ", "two level-1 converters use number 2: "]
        old.tells = ["two hosts use number 1: "]
        says, twice = [udp(place.ip) for _ in range(2)], time.monotonic() + 1.5
        ends = time.monotonic() + LONG
        stale = 'trunkline_converter_stale_total'
        # The later life is taken for it; the other one lives on.
        while time.monotonic() < twice or place.metrics()[stale] < 10:
            assert time.monotonic() < ends
            for life, one in zip((1, 2), says):
                one.sendto(bundle(HOST, 7, life=life), (place.ip, 3458))
                one.sendto(bundle(LEVEL1, 2, life=life), (place.ip, 3450))
            time.sleep(0.05)
        raw = [udp(other.ip) for _ in range(2)]
        for number in range(6):
            raw[number % 2].sendto(classic.bundle([(1, b"a message")], classic.bit(1)), (other.ip, 3458))
        name = 'trunkline_converter_messages_total{way="from_hosts"}'
        other.until("them to be heard", lambda: other.metrics()[name] == 6)


def check_what_is_no_bundle_is_counted():
    with Place() as place:
        central(place).tells = ["received bundles of the classic format from"]
        says = udp(place.ip)
        right = bundle(HOST, 7)
        wrong = [b"", b"x", bytes(32), right[:-1], right + bytes(12), right[:14] + b"\x21" + right[15:],
                 bundle(CENTRAL, 0), bundle(LEVEL1, 1), bundle(HOST, 7, control=bytes([99, 0, 0, 8]) + bytes(4)),
                 classic.bundle([(1, b"a classic bundle")], classic.bit(1))]
        name = 'trunkline_converter_malformed_total{way="in"}'
        for number, data in enumerate(wrong, 1):
            says.sendto(data, (place.ip, 3458))
            place.until(f"{data} to be counted", lambda: place.metrics()[name] == number)
        assert place.metrics()["trunkline_converter_hosts"] == 0
        says.sendto(right, (place.ip, 3458))
        place.until("the host to be met", lambda: place.metrics()["trunkline_converter_hosts"] == 1)


if __name__ == "__main__":
    classic.main(globals())
