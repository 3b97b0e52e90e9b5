#!/usr/bin/env python3
"""The classic format of bundles by raw UDP, without a library of Trunkline's: hosts, level 1 and the wide area.

Each function whose name begins with `check_` is a check; it starts the daemons that it needs, on addresses of its own
from 127.0.0.0/8, and ends them.

    classic.py TRUNKLINE [CHECK…]
"""

import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

TRUNKLINE = sys.argv[1]
GROUPS_BASE = "234.5.1.1"
LONGEST = 65507
# As long as a daemon may take to say what it is bound to, and a bundle to come, on a busy machine.
LONG = 30.0
# How messages begin that only ask whether a way is open yet.
PROBE = b"are you there?"


def bit(host):
    return 1 << (host - 1)


def bundle(messages, mask=None):
    """Messages are (address, body)."""
    data = b"" if mask is None else struct.pack(">H", mask)
    ends = []
    for address, body in messages:
        data += struct.pack(">H", address) + body
        ends.append(len(data))
    return data + b"".join(struct.pack(">H", end) for end in ends) + bytes([len(messages)])


def messages(data, first=0):
    """The messages of a bundle, which must be a right one."""
    count = data[-1]
    assert count >= 1, data
    ends = struct.unpack(f">{count}H", data[-1 - 2 * count : -1])
    found, begin = [], first
    for end in ends:
        assert begin + 2 <= end, data
        found.append((struct.unpack(">H", data[begin : begin + 2])[0], data[begin + 2 : end]))
        begin = end
    assert begin == len(data) - 1 - 2 * count, data
    return found


def control(address, action):
    return address, bytes([action]) + bytes(19)


def join(address):
    return control(address, 1)


def drop(address):
    return control(address, 2)


def group(address, base=GROUPS_BASE):
    number = struct.unpack(">I", socket.inet_aton(base))[0] + address // 32
    return socket.inet_ntoa(struct.pack(">I", number))


def udp(ip, port=0):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    made.bind((ip, port))
    return made


class Daemon:
    """A daemon, once it has said what it is bound to."""

    def __init__(self, kind, *flags, before=()):
        words = [*before, TRUNKLINE, "converter", kind, *map(str, flags)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline()
        assert self.said, self.process.stderr.read()
        # What its lines on standard error are to have in them.
        self.tells = []

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=LONG)
        assert self.process.returncode == 0, (self.process.returncode, err)
        lines = err.splitlines()
        told = len(lines) == len(self.tells) and all(any(one in line for line in lines) for one in self.tells)
        assert out == "" and told, (out, err, self.tells)


class Place:
    """A loopback address for one check, a central converter and its clients."""

    def __init__(self):
        self.ip = "127.{}.{}.{}".format(*(random.randrange(1, 255) for _ in range(3)))
        self.daemons = []
        self.kept = []
        self.status = self.free()
        self.port = self.free()

    def free(self):
        with socket.socket() as tcp:
            tcp.bind((self.ip, 0))
            return tcp.getsockname()[1]

    def daemon(self, kind, *flags):
        self.daemons.append(Daemon(kind, *flags))
        return self.daemons[-1]

    def central(self, *flags, level1=(1,), hosts=1):
        """Level 1 hears at ports 5000 + number, hosts at 6000 + theirs."""
        where = [f"--level1={number}={self.ip}:{5000 + number}" for number in level1]
        hear = ",".join(f"{self.ip}:{6000 + host}" for host in range(1, hosts + 1))
        return self.daemon(
            "central", *where, "--hosts", hear, "--listen-level1", f"{self.ip}:3450",
            "--listen-hosts", f"{self.ip}:3458", "--status", f"{self.ip}:{self.status}", *flags)

    def level1(self, number=1, *flags):
        return self.daemon(
            "level1", "--number", number, "--central", f"{self.ip}:3450", "--listen", f"{self.ip}:{5000 + number}",
            "--interface", "127.0.0.1", "--port", self.port, *flags)

    def metrics(self, at=None):
        with urllib.request.urlopen(f"http://{self.ip}:{at or self.status}/metrics", timeout=LONG) as page:
            lines = page.read().decode().splitlines()
        return {name: int(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    def until(self, what, so):
        end = time.monotonic() + LONG
        while not so():
            assert time.monotonic() < end, f"waited for {what}"
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *trouble):
        for daemon in self.daemons:
            if trouble[0] is None:
                daemon.end()
            else:
                daemon.process.kill()


class Host:
    """A host of 1997: it hears at 6000 + its number, and sends from there."""

    def __init__(self, place, number):
        self.place, self.number = place, number
        self.socket = udp(place.ip, 6000 + number)
        self.control = []
        self.groups = []

    def send(self, *said, mask=None):
        data = bundle(said, bit(self.number) if mask is None else mask)
        self.raw(data)

    def raw(self, data):
        self.socket.sendto(data, (self.place.ip, 3458))

    def join(self, *addresses):
        """Joins, and waits until the central converter has heard of it."""
        name = f'trunkline_converter_wanted{{host="{self.number}"}}'
        before = self.place.metrics()[name]
        self.send(*map(join, addresses))
        self.place.until("a join", lambda: self.place.metrics()[name] > before)

    def take(self, within=LONG, probes=False):
        """All bodies of the next bundle with one that is for this host; probes only if they are asked for."""
        end = time.monotonic() + within
        while True:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                return []
            mine = []
            for mask, body in messages(self.socket.recv(1 << 16)):
                if len(body) == 22:
                    self.control.append(body[0])
                    assert mask == 0xFFFF
                elif mask & bit(self.number) and (probes or not body.startswith(PROBE)):
                    self.groups.append(mask)
                    mine.append(body)
            if mine:
                return mine

    def expect(self, bodies):
        got = []
        while len(got) < len(bodies):
            more = self.take()
            assert more, f"host {self.number} got {len(got)} of {len(bodies)}"
            got += more
        short = lambda all: [(len(one), one[:20]) for one in all][:9]
        assert got == list(bodies), (self.number, short(got), short(bodies))

    def expect_nothing(self, for_=0.25):
        assert self.take(for_) == []


class Level1:
    """Converter of level 1: it hears at 5000 + its number."""

    def __init__(self, place, number=1):
        self.place, self.number = place, number
        self.socket = udp(place.ip, 5000 + number)
        self.control = []

    def send(self, *said):
        self.raw(bundle(said, 0xC000 | self.number))

    def raw(self, data):
        self.socket.sendto(data, (self.place.ip, 3450))

    def take(self, within=LONG):
        """The next messages of data; control is kept."""
        end = time.monotonic() + within
        while True:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                return []
            got = messages(self.socket.recv(1 << 16))
            self.control += [(address, body[0]) for address, body in got if len(body) == 20]
            data = [(address, body) for address, body in got if len(body) != 20]
            if data:
                return data

    def told(self, expected):
        """Waits until all this control came."""
        end = time.monotonic() + LONG
        while not set(expected) <= set(self.control):
            assert time.monotonic() < end, (expected, self.control)
            self.take(0.02)


# --- the central converter


def check_masks_groups_and_no_reflection():
    with Place() as place:
        place.central(hosts=16)
        hosts = [Host(place, number) for number in range(1, 17)]
        level1 = Level1(place)
        hosts[0].join(100)
        hosts[4].join(100)
        hosts[15].join(100, 131)
        # The address of a packet address, once: the first interest in it.
        level1.told([(96, 1), (128, 1)])
        level1.send((100, b"from afar"), (131, b"for the sixteenth"), (102, b"nobody's"))
        for host in (hosts[0], hosts[4]):
            host.expect([b"from afar"])
        hosts[15].expect([b"from afar", b"for the sixteenth"])
        assert hosts[15].groups == [bit(1) | bit(5) | bit(16), bit(16)]
        # From a host: to the others and to the wide area, never back.
        hosts[15].send((100, b"from the sixteenth"))
        hosts[0].expect([b"from the sixteenth"])
        hosts[4].expect([b"from the sixteenth"])
        assert hosts[0].groups[-1] == bit(1) | bit(5)
        assert level1.take() == [(100, b"from the sixteenth")]
        # And from one that does not want it itself.
        hosts[7].send((131, b"from the eighth"))
        hosts[15].expect([b"from the eighth"])
        assert level1.take() == [(131, b"from the eighth")]
        hosts[0].send(drop(100))
        hosts[4].send(drop(100))
        hosts[15].send(drop(100), drop(131))
        level1.told([(96, 2), (128, 2)])
        level1.send((100, b"wanted no more"))
        for host in hosts:
            host.expect_nothing(0.02)
        assert level1.control.count((96, 1)) == 1 and level1.control.count((96, 2)) == 1, level1.control


def check_n255_messages_and_the_longest_bundle():
    with Place() as place:
        place.central(hosts=2)
        one, two = Host(place, 1), Host(place, 2)
        level1 = Level1(place)
        one.join(7)
        two.join(7)
        level1.take(0.1)
        many = [b"%d" % number for number in range(255)]
        level1.send(*((7, body) for body in many))
        one.expect(many)
        two.expect(many)
        one.send(*((7, body) for body in many))
        two.expect(many)
        got = []
        while len(got) < 255:
            got += level1.take()
        assert got == [(7, body) for body in many]
        # As long as a datagram: two octets of mask less of body than what comes out.
        body = random.randbytes(LONGEST - 2 - 2 - 2 - 1)
        assert len(bundle([(7, body)], 1)) == LONGEST
        level1.send((7, body))
        one.expect([body])
        two.expect([body])
        two.send((7, body))
        one.expect([body])
        assert level1.take() == [(7, body)]
        two.expect_nothing(0.1)
        pieces = [random.randbytes(250) for _ in range(255)]
        two.send(*((7, piece) for piece in pieces))
        one.expect(pieces)


def check_control_against_data():
    with Place() as place:
        place.central(hosts=2)
        one, two = Host(place, 1), Host(place, 2)
        level1 = Level1(place)
        one.join(5)
        level1.told([(0, 1)])
        # 22 octets in all are control to the central converter; from level 1 they are dropped, and so are 24, which a host
        # would take for control.
        level1.send((5, b"!" * 20), (5, b"?" * 22), (5, bytes([2]) + bytes(19)), (5, b"plain"))
        one.expect([b"plain"])
        drops = lambda: place.metrics()[
            'trunkline_converter_dropped_total{way="to_hosts",why="control",priority="ordinary"}']
        assert drops() == 3
        # From a host 22 octets with an action are control, and others nothing; 24 are refused.
        two.send((5, bytes([9]) + bytes(19)), (5, b"?" * 22), (5, b"still plain"))
        one.expect([b"still plain"])
        assert drops() == 4
        assert place.metrics()['trunkline_converter_malformed_total{way="in"}'] == 1
        one.send(drop(5))
        level1.told([(0, 2)])
        assert one.control == []


def check_malformed_bundles_are_counted_and_dropped():
    whole = bundle([(5, b"one"), (5, b"two")], 2)
    wrong = [
        b"", b"\0", b"\0\2", b"\0\2\0",
        bundle([], 2),
        whole[:-1] + b"\3", whole[:-1] + b"\1", whole[:-1] + b"\xff",
        whole[:-3] + b"\0\x08" + whole[-1:],  # the last end is not where messages end
        bundle([(5, b"x")], 2)[:-3] + b"\0\3\1",  # a message without an address
        bundle([(5, b"x")], 2)[:-3] + b"\xff\xff\1",
        whole[:-5] + whole[-3:-1] + whole[-5:-3] + whole[-1:],  # ends that fall
        whole + b"\0", whole[1:], whole[:-2],
        bundle([(5, b"x")], 0), bundle([(5, b"x")], 3), bundle([(5, b"x")], 0xC000), bundle([(5, b"x")], 0x4001),
        random.randbytes(LONGEST - 1) + b"\0",
    ]
    with Place() as place:
        place.central(hosts=2)
        one, two = Host(place, 1), Host(place, 2)
        level1 = Level1(place)
        one.join(5)
        malformed = lambda: place.metrics()['trunkline_converter_malformed_total{way="in"}']
        for number, data in enumerate(wrong, 1):
            two.raw(data)
            place.until(f"{data[:40]!r} to be counted", lambda: malformed() == number)
        # A converter that does not exist, and each at the other's place.
        for port, data in [(3450, bundle([(5, b"x")], 0xC009)), (3450, bundle([(5, b"x")], 1)),
                           (3458, bundle([(5, b"x")], 0xC001))]:
            before = malformed()
            two.socket.sendto(data, (place.ip, port))
            place.until("it to be counted", lambda: malformed() == before + 1)
        two.send((5, b"after all"))
        one.expect([b"after all"])
        one.expect_nothing(0.05)


def check_a_host_that_refuses_is_removed_and_silence_removes_nobody():
    with Place() as place:
        place.central(hosts=3)
        one, two, three = (Host(place, number) for number in (1, 2, 3))
        level1 = Level1(place)
        for host in (one, two, three):
            host.join(40)
        wanted = lambda host: place.metrics()[f'trunkline_converter_wanted{{host="{host}"}}']
        time.sleep(0.5)
        assert [wanted(host) for host in (1, 2, 3)] == [1, 1, 1], "silence removes no host"
        two.socket.close()
        level1.send((40, b"first"))
        place.until("a refusal to be heard", lambda: wanted(2) == 0)
        one.expect([b"first"])
        level1.send((40, b"second"))
        three.expect([b"first", b"second"])
        one.expect([b"second"])
        assert three.groups == [bit(1) | bit(2) | bit(3), bit(1) | bit(3)]
        assert wanted(1) == 1 and wanted(3) == 1
        # It comes back and says again what it wants.
        two = Host(place, 2)
        two.join(40)
        level1.send((40, b"third"))
        two.expect([b"third"])


def check_pairs_and_priority_at_twice_the_load():
    # 4,000 octets in 5 ms: 8 messages of 500 octets every 2.5 ms are twice what it carries.
    with Place() as place:
        place.central("--pairs", "--capacity", "4000", "--wide-capacity", "100000000", hosts=2)
        one = Host(place, 1)
        Host(place, 2)
        level1 = Level1(place)
        one.send(join(64))
        level1.told([(64, 1)])
        sent = {64: [], 65: []}
        body = lambda number: b"%06d" % number + bytes(494)
        dropped = lambda: place.metrics()[
            'trunkline_converter_dropped_total{way="to_hosts",why="congestion",priority="ordinary"}']
        got = []

        def offer():
            """As much again: a machine that has no time offers less, so until something was too much."""
            first = sum(map(len, sent.values()))
            for number in range(first, first + 400, 8):
                some = [(65 if n % 10 == 0 else 64, body(n)) for n in range(number, number + 8)]
                for address, one_body in some:
                    sent[address].append(one_body)
                level1.send(*some)
                time.sleep(0.0024)
                while more := one.take(0.0001):
                    got.extend(more)
            return dropped() > 0

        def is_over():
            got.extend(one.take(0.05))
            urgent, told = set(sent[65]), max(one.control, default=3) > 3 and one.control[-1] == 3
            ordinary = sum(body not in urgent for body in got)
            return told and len(got) - ordinary == len(urgent) and ordinary + dropped() == len(sent[64])

        place.until("drops", offer)
        place.until("all that was not dropped", is_over)
        assert [one for one in got if one in set(sent[65])] == sent[65], "each priority message, in order"
        assert set(got) <= set(sent[64] + sent[65]) and len(set(got)) == len(got)
        assert max(one.control) > 3 and one.control[-1] == 3, "hosts receive the level, and its end"
        # Each reports a change of one level, unless this machine slept for several intervals.
        assert all(before != after for before, after in zip([3, *one.control], one.control)), one.control
        assert set(one.control) <= {3, 4, 5, 6}, one.control


# --- level 1, with real groups


class Wide:
    """A client in the wide area."""

    def __init__(self, place, *addresses):
        self.port = place.port
        self.says = udp("127.0.0.1")
        self.says.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        self.hears = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.hears.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.hears.bind(("0.0.0.0", self.port))
        for address in addresses:
            both = socket.inet_aton(group(address)) + socket.inet_aton("127.0.0.1")
            self.hears.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, both)

    def send(self, address, body, to=None):
        data = struct.pack(">H", address) + body
        self.says.sendto(data, (group(address if to is None else to), self.port))

    def take(self, within=LONG):
        if not select.select([self.hears], [], [], within)[0]:
            return None
        data = self.hears.recv(1 << 16)
        return struct.unpack(">H", data[:2])[0], data[2:]


def heard(place, wide, host, address):
    """Waits until what is sent to an address reaches a host: the join takes a moment on its way."""
    place.until(f"{address} to be heard", lambda: (wide.send(address, PROBE), host.take(0.05, probes=True))[1])
    # Behind it no other is under way.
    last = PROBE + random.randbytes(16)
    wide.send(address, last)
    place.until(f"the last to {address}", lambda: last in host.take(probes=True))


def check_two_level_1_bring_what_is_wanted_and_nothing_else():
    with Place() as place:
        place.central(level1=(1, 2), hosts=2)
        statuses = [place.free(), place.free()]
        for number, status in zip((1, 2), statuses):
            place.level1(number, "--status", f"{place.ip}:{status}")
        wide = Wide(place, 320, 352, 3200, 6400)
        one, two = Host(place, 1), Host(place, 2)
        one.send(join(321), join(352))
        two.send(join(321), join(3200))
        for host, address in [(one, 321), (one, 352), (two, 3200)]:
            heard(place, wide, host, address)
        # A real group is shared by 32 addresses; level 1 gets it, and the central converter sorts it.
        bodies = [b"message %d" % number for number in range(200)]
        taken = lambda: sum(
            place.metrics(status)['trunkline_converter_messages_total{way="from_wide"}'] for status in statuses)
        before = taken()
        for body in bodies:
            wide.send(321, body)
            wide.send(322, b"without subscriber, but in the same group")
            wide.send(9_999, b"of a group without members")
            wide.send(321, b"of another group", to=352)
            wide.send(6400, b"of a group that only the wide area joined")
            while wide.take(0):
                pass
        one.expect(bodies)
        two.expect(bodies)
        place.until("what was sent to the groups that were asked for", lambda: taken() - before >= 400)
        assert taken() - before == 400, "by one converter each, and no others"
        # Nothing comes back to who sent it, whichever converter has its group.
        for address in (321, 352, 3200, 5_000):
            two.send((address, b"to %d" % address))
        one.expect([b"to 321", b"to 352"])
        two.expect_nothing(0.3)
        out = {(321, b"to 321"), (352, b"to 352"), (3200, b"to 3200")}
        while out:
            got = wide.take()
            assert got, out
            out.discard(got)
        counted = lambda name: sum(place.metrics(status)["trunkline_converter_" + name] for status in statuses)
        place.until("the groups", lambda: counted("groups") == 3)
        # Each was heard again by who sent it, and ignored.
        place.until("its own", lambda: counted('ignored_total{why="own"}') >= 3)
        place.until("the others", lambda: counted('ignored_total{why="other_address"}') == 200)
        # As many again as a socket may join, all within one packet address of each other.
        one.send(*(join(10_000 + 32 * number) for number in range(100)))
        for number in (0, 50, 99):
            heard(place, wide, one, 10_000 + 32 * number)
        held = lambda: [place.metrics(status)["trunkline_converter_groups"] for status in statuses]
        place.until("the groups to be held", lambda: sum(held()) == 103)
        one.send(*(drop(10_000 + 32 * number) for number in range(100)))
        place.until("the groups to be left", lambda: sum(held()) == 3)


def check_level_1_takes_longest_messages_and_counts_what_is_none():
    with Place() as place:
        place.central(hosts=1)
        status = place.free()
        place.level1(1, "--status", f"{place.ip}:{status}")
        wide, one = Wide(place, 0), Host(place, 1)
        one.send(join(3))
        heard(place, wide, one, 3)
        body = random.randbytes(LONGEST - 2 - 2 - 2 - 1)
        wide.send(3, body)
        one.expect([body])
        # One octet more fits into a datagram with its address alone, but into no bundle.
        wide.send(3, body + b"!!!")
        wide.send(3, b"c" * 20)
        wide.says.sendto(b"\0", (group(0), place.port))
        names = ['{way="from_wide",why="unfit",priority="ordinary"}', '{way="from_wide",why="control",priority="ordinary"}']
        dropped = lambda: [place.metrics(status)["trunkline_converter_dropped_total" + name] for name in names]
        place.until("them to be counted", lambda: dropped() == [2, 1])
        for data in (b"", b"\0", b"\5", bundle([])):
            one.socket.sendto(data, (place.ip, 5001))
        malformed = 'trunkline_converter_malformed_total{way="from_central"}'
        place.until("bundles to be counted", lambda: place.metrics(status)[malformed] == 4)
        one.send((3, body))
        seen = []
        while not seen or seen[-1] != (3, body):
            seen.append(wide.take())
        wide.send(3, b"after all")
        one.expect([b"after all"])


def check_any_order_and_restarts():
    with Place() as place:
        # Hosts first, then level 1, then the central converter.
        one = Host(place, 1)
        one.socket.setblocking(True)
        one.send(join(3))
        level1 = place.level1()
        central = place.central(hosts=1)
        one.send(join(3), join(700))
        wide = Wide(place)
        heard(place, wide, one, 3)
        # Level 1 knows nothing any more, and asks.
        level1.end()
        place.daemons.remove(level1)
        level1 = place.level1()
        heard(place, wide, one, 3)
        heard(place, wide, one, 700)
        # The central converter has lost its database; this host says again what it wants, but not all of it. Level 1 still
        # has the other group, and must leave it when it forwards a message of it.
        central.end()
        place.daemons.remove(central)
        central = place.central(hosts=1)
        one.send(join(3))
        heard(place, wide, one, 3)
        place.until("the stray group to be left", lambda: (
            wide.send(700, b"stray"),
            place.metrics()["trunkline_converter_strays_total"] > 0,
        )[1])
        one.expect_nothing(0.1)


def check_a_daemon_says_one_line_and_pages_when_asked():
    with Place() as place:
        central = place.central()
        assert central.said.count("\n") == 1 and f"{place.ip}:3450" in central.said, central.said
        with urllib.request.urlopen(f"http://{place.ip}:{place.status}/", timeout=LONG) as page:
            assert f"{place.ip}:3458" in page.read().decode()
        for wrong in (b"GET /nothing HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"\0" * 9000, b"GET / HT"):
            with socket.create_connection((place.ip, place.status)) as tcp:
                try:
                    tcp.sendall(wrong)
                    tcp.shutdown(socket.SHUT_WR)
                    answer = tcp.recv(99)
                except OSError:
                    continue  # it was gone before all was said
                assert b" 40" in answer, (wrong[:20], answer)
        assert place.metrics()['trunkline_converter_bundles_total{way="in"}'] == 0
        central.process.send_signal(signal.SIGUSR1)
        assert central.process.stdout.readline().startswith("central on ")
        # Up to the empty line of the last figure, which is not 0: both levels.
        said = [central.process.stdout.readline() for _ in range(3)]
        assert said[0].startswith("Congestion level"), said


def check_deadlines_are_those_of_the_flags_and_of_the_file():
    """250 messages in a quarter of a second are one bundle where they may wait a second, and many where they may wait 5 ms. On a
    machine that has no time they may be two: so until they were seen together."""
    wrong = [TRUNKLINE, "converter", "central", "--deadline", "1ms"]
    ended = subprocess.run(wrong, capture_output=True, text=True, timeout=LONG)
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    assert "--timers" in ended.stderr and ended.stderr.count("\n") == 1, ended
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "central.toml")
        with open(file, "w") as toml:
            toml.write('timers = "processor"\npriority-deadline = "1s"\npairs = true\n')
        for flags, address in ((("--timers", "processor", "--deadline", "1s"), 0), (("--config", file), 1)):
            with Place() as place:
                place.central(*flags)
                host, level1 = Host(place, 1), Level1(place)
                host.join(address)

                def together():
                    for n in range(250):
                        level1.send((address, b"message %d" % n))
                        time.sleep(0.001)
                    got = [len(host.take())]
                    while sum(got) < 250 and got[-1] > 0:
                        got.append(len(host.take()))
                    return got == [250]

                place.until("all of them in one bundle", together)


# --- plain DIS at hosts


def pdu(length=144, exercise=1, kind=2, family=1, entity=(1, 1, 1), location=(0.0, 0.0, 0.0), said=None):
    """A PDU that has the form of an Entity State, and otherwise noise."""
    data = bytearray(random.randbytes(max(length, 12)))
    data[:4] = bytes([7, exercise, kind, family])
    data[8:10] = struct.pack(">H", length if said is None else said)
    if length >= 18:
        data[12:18] = struct.pack(">HHH", *entity)
    if length >= 72:
        data[48:72] = struct.pack(">ddd", *location)
    return bytes(data[:length])


def recorded():
    """PDUs of a recording, if it lies beside the project; otherwise some like them."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../../shared/data/dis/ground-vehicles.pcap")
    try:
        with open(beside, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        lengths = [144] * 20 + [1280] * 5 + [1104] * 2 + [200] * 2 + [104, 72, 36]
        return [pdu(random.choice(lengths)) for _ in range(1222)]
    found, at = [], 24
    while at < len(data):
        length = struct.unpack("<I", data[at + 8 : at + 12])[0]
        found.append(data[at + 16 + 14 + 20 + 8 : at + 16 + length])
        at += 16 + length
    return found


class Program:
    """A program that speaks DIS."""

    def __init__(self, place, number, at=None):
        self.socket = udp(place.ip, 7000 + number)
        self.at = (place.ip, 8000 + number)

    def send(self, *pdus):
        self.socket.sendto(b"".join(pdus), self.at)

    def take(self, within=LONG):
        if not select.select([self.socket], [], [], within)[0]:
            return None
        return self.socket.recv(1 << 16)

    def expect(self, pdus):
        for number, one in enumerate(pdus):
            got = self.take()
            assert got == one, (number, len(pdus), got and got[:20], one[:20])


def dis_host(place, number, *flags, dis=None, rules=None):
    """A host's interface that speaks DIS at 8000 + its number, and prints the address of its metrics."""
    status = place.free()
    if rules is not None:
        file = tempfile.NamedTemporaryFile("w", suffix=".toml")
        file.write(rules)
        file.flush()
        place.kept.append(file)
        flags += ("--rules", file.name)
    daemon = place.daemon(
        "host", "--number", number, "--central", f"{place.ip}:3458", "--listen", f"{place.ip}:{6000 + number}",
        "--dis", dis or f"{place.ip}:{8000 + number}", "--status", f"{place.ip}:{status}", *flags)
    return daemon, status


def wants(place, host, count):
    name = f'trunkline_converter_wanted{{host="{host}"}}'
    place.until(f"host {host} to want {count}", lambda: place.metrics()[name] == count)


EVERYTHING_TO_7 = "[default]\naddress = 7\n[subscribe]\naddresses = 7\n"


def check_recorded_dis_arrives_byte_for_byte():
    pdus = recorded()
    with Place() as place:
        place.central(hosts=3)
        place.level1()
        statuses = [
            dis_host(place, number, "--dis-to", f"{place.ip}:{7000 + number}", rules=rules)[1]
            for number, rules in [(1, EVERYTHING_TO_7), (2, EVERYTHING_TO_7), (3, "subscribe.addresses = 8")]
        ]
        one, two, three = (Program(place, number) for number in (1, 2, 3))
        for host in (1, 2, 3):
            wants(place, host, 1)
        wide = Wide(place, 7)
        # Through level 1, from the wide area.
        place.until("the group to be heard", lambda: (wide.send(7, pdus[0]), one.take(0.05))[1] is not None)
        # Behind it nothing else is under way.
        last = pdu()
        wide.send(7, last)
        for program, expected in ((one, last), (two, last), (wide, (7, last))):
            place.until("the last", lambda: program.take() == expected)
        for at in range(0, len(pdus), 20):
            for each in pdus[at : at + 20]:
                wide.send(7, each)
            one.expect(pdus[at : at + 20])
            two.expect(pdus[at : at + 20])
            while wide.take(0):
                pass
        # From a program, alone and several whole ones to a datagram, to the other host and to the wide area, and never back.
        left, sent = list(pdus), 0
        while left:
            some = [left.pop(0)]
            while left and random.random() < 0.7 and sum(map(len, some)) + len(left[0]) <= 8192:
                some.append(left.pop(0))
            one.send(*some)
            two.expect(some)
            for each in some:
                got = wide.take()
                assert got == (7, each)
        assert one.take(0.2) is None and three.take(0) is None
        counted = place.metrics(statuses[0])
        assert counted['trunkline_converter_pdus_total{way="from_programs"}'] == len(pdus)
        assert counted['trunkline_converter_pdus_total{way="to_programs"}'] >= len(pdus)
        assert sum(value for name, value in counted.items() if "malformed" in name or "dropped" in name) == 0


def check_pdus_that_lie_hurt_no_neighbour():
    with Place() as place:
        place.central(hosts=2)
        level1 = Level1(place)
        _, status = dis_host(place, 1, "--dis-to", f"{place.ip}:7001", rules=EVERYTHING_TO_7)
        other = Host(place, 2)
        wants(place, 1, 1)
        other.join(7)
        program = Program(place, 1)
        good = [pdu(length) for length in (12, 144, 1000, 8192)]
        lies = {
            "length": [pdu(160, said=0), pdu(160, said=11), pdu(160, said=161), pdu(160, said=8193)],
            "short": [b"", b"x", bytes(11)],
            "long": [pdu(8193)],
        }
        counts = lambda way: [place.metrics(status)[
            f'trunkline_converter_pdus_malformed_total{{way="{way}",why="{why}"}}'] for why in lies]
        for why, bad in lies.items():
            for one in bad:
                # What is before it is sent; what is behind it cannot be found. An empty datagram is none.
                program.send(good[1], one)
                other.expect([good[1]])
        place.until("them to be counted", lambda: counts("from_programs") == [4, 2, 1])
        for each in good:
            program.send(each)
        other.expect(good)
        # From the converter: each message is looked at alone.
        said = [good[0], *lies["length"], good[1], *lies["short"][1:], good[2], *lies["long"], good[3]]
        level1.send(*((7, body) for body in said))
        program.expect(good)
        other.expect(said)
        place.until("them to be counted", lambda: counts("to_programs") == [4, 2, 1])
        # One whose length field is 48 of 160: the rest is parsed as separate PDUs, and is none.
        mixed = pdu(48) + bytes(112)
        program.send(mixed)
        other.expect([mixed[:48]])
        place.until("its rest to be counted", lambda: counts("from_programs") == [5, 2, 1])
        # As long as control with their address: refused, and counted.
        program.send(pdu(20), pdu(22), good[0])
        other.expect([good[0]])
        refused = 'trunkline_converter_dropped_total{way="host",why="control",priority="ordinary"}'
        assert place.metrics(status)[refused] == 2


def check_rules_sort_pdus_and_follow_an_entity():
    rules = """
        [[rule]]
        exercise = 9
        drop = true
        [[rule]]
        type = 1
        grid = { address = 1000, origin = [0, 0, 0], size = 100, cells = [10, 10] }
        [[rule]]
        type = [2, 3]
        site = "5-6"
        address = 21
        [default]
        address = 20
        [subscribe]
        addresses = [30]
        around = [{ entity = [7, 8, 9], cells = 1 }]
    """
    with Place() as place:
        place.central(hosts=2)
        level1 = Level1(place)
        daemon, _ = dis_host(place, 1, rules=rules)
        program, other = Program(place, 1), Host(place, 2)
        wants(place, 1, 1)
        sent = [
            (20, pdu()), (21, pdu(kind=2, entity=(5, 1, 1))), (21, pdu(kind=3, entity=(6, 1, 1))),
            (20, pdu(kind=3, entity=(7, 1, 1))), (20, pdu(kind=1, location=(-1.0, 0, 0))),
            (1000, pdu(kind=1, location=(0.5, 99.0, 1e9))), (1099, pdu(kind=1, location=(999.9, 999.9, -5))),
        ]
        program.send(pdu(exercise=9), *(one for _, one in sent))
        got = []
        while len(got) < len(sent):
            got += level1.take()
        assert got == sent, [address for address, _ in got]
        # Its own entity moves: from the corner to the middle, and out of the grid.
        state = lambda x, y: pdu(kind=1, entity=(7, 8, 9), location=(x, y, 0))
        program.send(state(5, 5))
        wants(place, 1, 5)
        program.send(state(950, 450), state(550, 450))
        wants(place, 1, 10)
        level1.take(0.1)
        cell = lambda x, y: 1000 + y * 10 + x
        near, far = pdu(kind=1, location=(450, 350, 0)), pdu(kind=1, location=(350, 350, 0))
        level1.send((cell(4, 3), near), (cell(3, 3), far), (30, near))
        program.expect([near, near])
        # It is seen as well when it comes from elsewhere.
        away = state(-1, 0)
        level1.send((30, away))
        program.expect([away])
        wants(place, 1, 1)
        # Who goes wants nothing any more.
        daemon.end()
        place.daemons.remove(daemon)
        wants(place, 1, 0)


def check_dis_by_broadcast_and_multicast():
    for ip in ("127.255.255.255", "239.%d.%d.%d" % tuple(random.randrange(1, 255) for _ in range(3))):
        with Place() as place:
            port = place.free()
            place.central(hosts=2)
            level1 = Level1(place)
            _, status = dis_host(place, 1, dis=f"{ip}:{port}", rules=EVERYTHING_TO_7)
            programs = []
            for number in range(2):
                hears = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                hears.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                hears.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                hears.bind((ip, port))
                if ip.startswith("239"):
                    both = socket.inet_aton(ip) + socket.inet_aton("127.0.0.1")
                    hears.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, both)
                    hears.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
                programs.append(hears)
            wants(place, 1, 1)
            mine, theirs = pdu(), pdu()
            programs[0].sendto(mine, (ip, port))
            assert level1.take() == [(7, mine)]
            level1.send((7, theirs))
            for program in programs:
                got = [program.recv(1 << 16) for _ in range(2)]
                assert got == [mine, theirs]
            # What the interface handed over it heard too, and did not send again.
            assert level1.take(0.2) == []
            assert place.metrics(status)["trunkline_converter_pdus_own_total"] == 1


class Starved(Exception):
    """A check failed, and daemons count what only a machine counts that had no time for them."""


def main(found):
    checks = {name[6:]: one for name, one in found.items() if name.startswith("check_")}
    wanted = sys.argv[2:] or list(checks)
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    for name in wanted:
        random.seed(seed)
        try:
            checks[name]()
        except Starved as starved:
            print(f"failed: {name}, SEED={seed}, on a machine that stood still: {starved}", file=sys.stderr, flush=True)
            sys.exit(os.EX_TEMPFAIL)
        except BaseException:
            print(f"failed: {name}, SEED={seed}", file=sys.stderr, flush=True)
            raise
        print(f"ok {name}", flush=True)


if __name__ == "__main__":
    main(globals())
