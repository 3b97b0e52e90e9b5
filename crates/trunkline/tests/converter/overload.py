#!/usr/bin/env python3
"""The converter at twice what its hosts' medium carries: real daemons on a line that is limited by `tc`, in namespaces of
network.py. As root:

    unshare -n -m -p -f --kill-child --mount-proc overload.py TRUNKLINE [CHECK…]
"""

import sys

sys.dont_write_bytecode = True

import math
import random
import re
import socket
import struct
import threading
import time

import classic
import wide
from classic import Daemon, group, pdu, udp
from network import CENTRAL, LOCAL, NEAR, Capture, Network, local, run
from router import PORT, STATUS, Site, settle

# With --pairs the odd one has priority, and who joins one joins both.
ORDINARY, PRIORITY = 64, 65
BROADCAST = "10.9.0.255"
# 2 Mb/s, of which packets' headers take their part.
LIMIT = ["tbf", "rate", "2mbit", "burst", "20kb", "limit", "500kb"]
INTERVAL, CAPACITY, LENGTH = 0.005, 1000, 496


class Small(Site):
    """One of level 1, and two hosts that hear bundles to all, on a limited medium. Each program hears its host's PDUs."""

    def __init__(self, network, format, *flags, interval=INTERVAL, capacity=CAPACITY, limit=True):
        self.network, self.is_wide, self.flags, self.capacity = network, format == "wide", flags, capacity
        self.interval = interval
        self.common = ["--format", format, "--status", f"127.0.0.1:{STATUS}", "--pairs", "--timers", "processor"]
        if limit:
            with network.at("central"):
                run("tc", "qdisc", "add", "dev", "local", "root", *LIMIT)
        self.daemons, self.programs = {}, {}
        for place in ("a", "central", "h1", "h2"):
            self.start(place)
        for host in (1, 2):
            with network.at(f"h{host}"):
                self.programs[host] = udp("127.0.0.1", 7000)
            self.programs[host].setblocking(False)
        self.until("both hosts to want both", lambda: [
            self.metrics("central").get(f'trunkline_converter_wanted{{host="{host}"}}') for host in (1, 2)] == [2, 2])
        self.until("the group to be held", lambda: self.metrics("a")["trunkline_converter_groups"] == 1)

    def words(self, place):
        if place == "central":
            return ["central", "--listen-level1", CENTRAL, "--listen-hosts", CENTRAL, "--hosts", BROADCAST,
                    f"--level1=1={LOCAL['a']}", "--capacity", self.capacity, "--wide-capacity", 10**9, "--interval", f"{self.interval}s",
                    *self.flags]
        if place == "a":
            return ["level1", "--central", CENTRAL, "--listen", f"{LOCAL['a']}:3457", "--interface", NEAR["a"],
                    *self.flags]
        host = int(place[1:])
        with open(f"/run/{place}.toml", "w") as file:
            file.write(f"[subscribe]\naddresses = {ORDINARY}\n" if not self.is_wide else
                       f"[subscribe]\naddresses = [{ORDINARY}, {PRIORITY}]\n")
        return ["host", "--number", host, "--central", CENTRAL, "--listen", BROADCAST, "--interface", local(host),
                "--dis", "127.0.0.1:8000", "--dis-to", "127.0.0.1:7000", "--rules", file.name,
                *self.flags]

    def dropped(self):
        """Ordinary messages that are counted as dropped, datagrams that were not dropped deliberately, of these what this
        machine had no time to take or to send, with those who were taken for dead, and messages with priority that are counted
        as dropped."""
        figures = [self.metrics(place) for place in ("a", "central", "h1", "h2")]
        counted = lambda *names: sum(
            value for one in figures for name, value in one.items() if all(part in name for part in names))
        starved = counted("_overflow_") + counted("_unsent_") + counted("_silent_")
        lost = starved + counted("pdus_dropped") + counted("pdus_malformed")
        with self.network.at("central"):
            lost += int(re.search(r"dropped (\d+)", run("tc", "-s", "qdisc", "show", "dev", "local")).group(1))
        of = lambda priority: counted("dropped_total{", f'priority="{priority}"')
        return of("ordinary"), lost, starved, of("priority")


class Source:
    """A client in the wide area, beside level 1."""

    def __init__(self, network, is_wide):
        self.is_wide, self.life, self.sequence = is_wide, random.randrange(1 << 32), {}
        with network.at("b"):
            self.says = udp("0.0.0.0")
        self.says.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(NEAR["b"]))

    def send(self, address, body):
        data = struct.pack(">H", address) + body
        if self.is_wide:
            number = self.sequence[address] = self.sequence.get(address, -1) + 1
            message = (address, 2 << 16 | 1, self.life, number, body)
            data = bytearray(wide.bundle(wide.LEVEL1, 1, to=address // 32, messages=[message]))
            data[32 + 21] = address & 1
        self.says.sendto(data, (group(address), PORT))


class Offer:
    """Messages to both addresses, each at a share of what the medium carries in its intervals; `sent` by address."""

    def __init__(self, source, shares, late=0.01, each=INTERVAL / CAPACITY):
        self.late, self.source, self.sent = late, source, {ORDINARY: [], PRIORITY: []}
        # What has priority goes to each host by itself in the wide format; and there is the index.
        cost = {ORDINARY: LENGTH + 30, PRIORITY: 2 * (LENGTH + 56)} if source.is_wide else dict.fromkeys(self.sent, LENGTH + 5)
        self.each = {to: each * cost[to] / share for to, share in shares.items() if share}
        self.due = dict.fromkeys(self.each, time.monotonic())
        self.over = False

    def __enter__(self):
        """Plays until the end of the block, beside it."""
        self.thread = threading.Thread(target=self.play, args=(math.inf,))
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()

    def play(self, seconds, meanwhile=lambda: None):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.over:
            to = min(self.due, key=self.due.get)
            time.sleep(max(0, self.due[to] - time.monotonic()))
            self.sent[to].append(pdu(LENGTH, kind=2 + (to & 1)))
            self.source.send(to, self.sent[to][-1])
            # Who slept for longer does not catch up.
            self.due[to] = max(self.due[to] + self.each[to], time.monotonic() - self.late)
            meanwhile()


class Levels:
    """Congestion levels as hosts receive them."""

    def __init__(self, network, is_wide):
        self.is_wide, self.found = is_wide, []
        self.capture = Capture(network, "central", "local") if is_wide else None
        with network.at("h3"):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.socket.bind((BROADCAST, 3459))
        self.socket.setblocking(False)

    def take(self):
        while not self.is_wide:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                break
            self.found += [body[0] for mask, body in classic.messages(data) if len(body) == 22 and mask == 0xFFFF]
        return self.found

    def all(self):
        """Of the wide format in the bundles to one host."""
        for _, _, to, _, data in self.capture.udp() if self.is_wide else ():
            at, end = 32 + 24 * data[15], struct.unpack(">H", data[8:10])[0]
            while to == local(1) and at < end:
                kind, argument, octets = struct.unpack(">BBH", data[at : at + 4])
                self.found += [argument] if kind == 7 else []
                at += octets
        return self.take()


def twice(format, *flags, by_levels=True):
    network = Network()
    levels = Levels(network, format == "wide")
    site, source = Small(network, format, *flags), Source(network, format == "wide")
    got = {host: [] for host in site.programs}

    def collect():
        for host in got:
            got[host] += site.heard(host)
        levels.take()

    site.until("it to flow", lambda: (source.send(ORDINARY, pdu(64)), time.sleep(0.05), collect(), all(got.values()))[3])
    all_starved = True
    for attempt in range(5):
        settle(site)
        levels = Levels(network, site.is_wide)
        before, got, begin = site.dropped(), {host: [] for host in site.programs}, time.monotonic()
        offer = Offer(source, {ORDINARY: 1.9, PRIORITY: 0.1})
        offer.play(4, collect)
        quiet, count = time.monotonic(), 0
        # What has priority is sent again until it is there, more and more seldom.
        of_priority = lambda: all(sum(one[2] == 3 for one in all_) == len(offer.sent[PRIORITY]) for all_ in got.values())
        while time.monotonic() < quiet + (1.5 if of_priority() else 20):
            time.sleep(0.05)
            collect()
            if count != (count := sum(map(len, got.values()))):
                quiet = time.monotonic()
        took = time.monotonic() - begin
        sent = offer.sent
        dropped, lost, starved, of_priority = (now - then for now, then in zip(site.dropped(), before))
        # What a machine that does not run for a while does not take is counted too, by the datagram: then once more.
        # And who sends offered less than the medium carries.
        starved += len(sent[ORDINARY]) < 4 / offer.each[ORDINARY] * 0.6
        all_starved = all_starved and starved > 0
        if not lost and not starved:
            break
    if all_starved:
        # Nothing can be concluded from that.
        print(f"skipped: {format} {' '.join(flags)}: this machine lost datagrams in each of 5 attempts, {starved} in the last")
        site.end()
        return
    for host, all_ in got.items():
        here = {kind: [one for one in all_ if one[2] == kind] for kind in (2, 3)}
        assert here[3] == sent[PRIORITY], (
            f"host {host}: {len(here[3])} of {len(sent[PRIORITY])} with priority, {site.starved()}")
        assert len(here[2]) + dropped == len(sent[ORDINARY]), (host, len(here[2]), dropped, len(sent[ORDINARY]))
        remaining = iter(sent[ORDINARY])
        assert all(one in remaining for one in here[2]), "in order, none twice"
    assert of_priority == 0 and dropped > len(sent[ORDINARY]) // 10, (of_priority, dropped, len(sent[ORDINARY]))
    if by_levels:
        said = levels.all()
        changes = [one for one, last in zip(said, [3, *said]) if one != last]
        assert set(said) <= {3, 4, 5, 6} and max(said) > 3 and said[-1] == 3, said[-20:]
        assert len(changes) <= took / INTERVAL + 1, (len(changes), took)
        print(f"{format}: {len(changes)} changes of level in {took:.1f} s, up to {max(said)}")
    share = len([one for one in got[1] if one[2] == 2]) / len(sent[ORDINARY])
    print(f"{format} {' '.join(flags)}: {sum(map(len, sent.values()))} sent, {share:.0%} of ordinary messages arrived")
    site.end()


def thresholds(format, *flags):
    """Levels rise above 80 % of the capacity and fall below 40 %; from 4 on 7 - level ordinary messages go in an interval."""
    # Long intervals and few messages, so that it does not matter when this machine runs.
    interval, capacity = 1.0, 40_000
    network = Network()
    site = Small(network, format, *flags, interval=interval, capacity=capacity, limit=False)
    source = Source(network, site.is_wide)
    level = lambda: site.metrics("central")['trunkline_converter_congestion_level{side="hosts"}']

    def stays(shares, expected):
        """Whether the level comes to one of these and stays there for some intervals, and no more goes than may."""
        with Offer(source, shares, late=interval / 2, each=interval / capacity):
            site.until(f"level {expected}", lambda: level() in expected)
            time.sleep(interval)
            site.heard(1)
            begin, seen = time.monotonic(), {level()}
            while time.monotonic() < begin + 4 * interval:
                time.sleep(interval / 8)
                seen.add(level())
            went = len([one for one in site.heard(1) if one[2] == 2])
            most = {3: math.inf, 4: 3, 5: 2, 6: 0}[min(seen)] * ((time.monotonic() - begin) / interval + 1)
            return seen <= expected and len(seen) == 1 and went <= most

    for ordinary, priority, expected in [
            (0.6, 0, {3}), (0.7, 0.55, {4, 5, 6}), (0, 1.2, {6}), (0.3, 0.55, {6}), (0, 0.2, {3})]:
        shares = {ORDINARY: ordinary, PRIORITY: priority}
        # Where this machine slept for long more came in an interval than was sent in one.
        assert any(stays(shares, expected) for _ in range(4)), (ordinary, priority, expected)
    site.end()


def check_thresholds_classic():
    thresholds("classic")


def check_thresholds_wide():
    thresholds("wide", "--congestion=levels")


def check_twice_the_medium_classic():
    twice("classic")


def check_twice_the_medium_wide_by_levels():
    twice("wide", "--congestion=levels")


def check_twice_the_medium_wide_by_rates():
    twice("wide", by_levels=False)


if __name__ == "__main__":
    classic.main(globals())
