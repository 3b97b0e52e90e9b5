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

    def __init__(self, kind, *flags):
        words = [TRUNKLINE, "converter", kind, *map(str, flags)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline()
        assert self.said, self.process.stderr.read()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=LONG)
        assert self.process.returncode == 0, (self.process.returncode, err)
        assert (out, err) == ("", ""), (out, err)


class Place:
    """An address of the loopback for one check, a central converter and whoever talks to it."""

    def __init__(self):
        self.ip = "127.{}.{}.{}".format(*(random.randrange(1, 255) for _ in range(3)))
        self.daemons = []
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

    def take(self, within=LONG):
        """All bodies of the next bundle with one that is for this host."""
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
                elif mask & bit(self.number):
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
        assert got == list(bodies), (self.number, got[:5], list(bodies)[:5])

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
        assert [wanted(host) for host in (1, 2, 3)] == [1, 1, 1], "silence removes nobody"
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
    # 100,000 octets a second: at 400 messages of 500 octets it is at twice what it carries.
    with Place() as place:
        place.central("--pairs", "--capacity", "500", "--wide-capacity", "100000000", hosts=2)
        one = Host(place, 1)
        Host(place, 2)
        level1 = Level1(place)
        one.send(join(64))
        level1.told([(64, 1)])
        sent = {64: [], 65: []}
        body = lambda number: b"%06d" % number + bytes(494)
        for number in range(400):
            address = 65 if number % 10 == 0 else 64
            sent[address].append(body(number))
            level1.send((address, body(number)))
            time.sleep(0.0025)
        got = []
        while more := one.take(1.0):
            got += more
        assert [one for one in got if one in set(sent[65])] == sent[65], "each priority message, in order"
        ordinary = [one for one in got if one in set(sent[64])]
        dropped = place.metrics()[
            'trunkline_converter_dropped_total{way="to_hosts",why="congestion",priority="ordinary"}']
        assert len(ordinary) + dropped == len(sent[64]), (len(ordinary), dropped)
        assert dropped > 0
        assert max(one.control) > 3 and one.control[-1] == 3, "hosts are told, and told that it is over"
        steps = zip([3, *one.control], one.control)
        assert all(abs(before - after) == 1 for before, after in steps), one.control


# --- level 1, with real groups


class Wide:
    """Somebody in the wide area."""

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
    end = time.monotonic() + LONG
    while True:
        assert time.monotonic() < end, f"{address} is not heard"
        wide.send(address, b"are you there?")
        if host.take(0.05):
            break
    while host.take(0.1):
        pass


def check_two_level_1_bring_what_is_wanted_and_nothing_else():
    with Place() as place:
        place.central(level1=(1, 2), hosts=2)
        statuses = [place.free(), place.free()]
        for number, status in zip((1, 2), statuses):
            place.level1(number, "--status", f"{place.ip}:{status}")
        wide = Wide(place, 320, 352, 3200)
        one, two = Host(place, 1), Host(place, 2)
        one.send(join(321), join(352))
        two.send(join(321), join(3200))
        for host, address in [(one, 321), (one, 352), (two, 3200)]:
            heard(place, wide, host, address)
        two.take(0.2)
        # A real group is shared by 32 addresses; level 1 gets it, and the central converter sorts it.
        bodies = [b"message %d" % number for number in range(200)]
        for body in bodies:
            wide.send(321, body)
            wide.send(322, b"nobody's, but of the same group")
            wide.send(9_999, b"of a group that nobody joined")
            wide.send(321, b"of another group", to=352)
            wide.send(321, b"of a group that only the wide area joined", to=3232)
            while wide.take(0):
                pass
        one.expect(bodies)
        two.expect(bodies)
        # Nothing comes back to who sent it, whichever converter has its group.
        for address in (321, 352, 3200, 5_000):
            two.send((address, b"to %d" % address))
        one.expect([b"to 321", b"to 352"])
        two.expect_nothing(0.3)
        out = set()
        while (got := wide.take(0.3)) is not None:
            out.add(got)
        assert {(321, b"to 321"), (352, b"to 352"), (3200, b"to 3200")} <= out
        metrics = [place.metrics(status) for status in statuses]
        assert sum(one["trunkline_converter_groups"] for one in metrics) == 3
        own = sum(one['trunkline_converter_ignored_total{why="own"}'] for one in metrics)
        assert own >= 3, "each was heard again by who sent it, and ignored"
        assert sum(one['trunkline_converter_ignored_total{why="other_address"}'] for one in metrics) == 200
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
        # has the other group, and is told to leave it when it brings something.
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
        assert said[0].startswith("Level of congestion"), said


def main():
    checks = {name[6:]: one for name, one in globals().items() if name.startswith("check_")}
    wanted = sys.argv[2:] or list(checks)
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    for name in wanted:
        random.seed(seed)
        try:
            checks[name]()
        except BaseException:
            print(f"failed: {name}, SEED={seed}", file=sys.stderr, flush=True)
            raise
        print(f"ok {name}", flush=True)


if __name__ == "__main__":
    main()
