#!/usr/bin/env python3
"""The converter among real routers: two of level 1 on one network behind a multicast router, sixteen hosts, each in a
namespace of its own (network.py), and the wide area on the far side of the router. As root:

    unshare -n -m -p -f --kill-child --mount-proc router.py TRUNKLINE [CHECK…]
"""

import sys

sys.dont_write_bytecode = True

import contextlib
import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import time

import classic
import wide
from classic import LONG, TRUNKLINE, Daemon, Place, group, pdu, udp
from network import CENTRAL, FAR, HOSTS, LOCAL, NEAR, Capture, Network, local, run

PORT = 3456
STATUS = 9000
# All hosts send to and subscribe to `ALL`; host k also subscribes to `OWN + 32 k`, each in a separate group. No host subscribes above that.
ALL, OWN, NOBODY = 64, 320, 20_000
# Cells in which entities move: a row has 32, which is a group.
GRID = 4096


def rules(host):
    return f"""
        [[rule]]
        type = 1
        grid = {{ address = {GRID}, origin = [0, 0, 0], size = 100, cells = [32, 16] }}
        [default]
        address = {ALL}
        [subscribe]
        addresses = [{ALL}, {OWN + 32 * host}]
        around = [{{ entity = [1, 1, {host}], cells = 0 }}]
    """


def state(host, x, y):
    """An entity of a host, in a cell."""
    return pdu(144, kind=1, entity=(1, 1, host), location=(100 * x + 50.0, 100 * y + 50.0, 0.0))


class Far:
    """A client on the far side of the router, which sends and receives like a host of another site."""

    def __init__(self, network, format):
        self.is_wide = format == "wide"
        with network.at("far"):
            self.says, self.hears = udp("0.0.0.0"), udp("0.0.0.0", PORT)
        self.says.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
        self.says.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(FAR))
        self.says.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        self.life, self.sequence = random.randrange(1 << 32), {}

    def join(self, address):
        both = socket.inet_aton(group(address)) + socket.inet_aton(FAR)
        self.hears.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, both)

    def send(self, address, body):
        data = struct.pack(">H", address) + body
        if self.is_wide:
            packet = address // 32
            number = self.sequence[packet] = self.sequence.get(packet, -1) + 1
            message = (address, 2 << 16 | 1, self.life, number, body)
            data = wide.bundle(wide.LEVEL1, 1, to=packet, messages=[message])
        self.says.sendto(data, (group(address), PORT))

    def take(self, within=LONG):
        """The next (address, body) that came from elsewhere."""
        if not select.select([self.hears], [], [], within)[0]:
            return None
        data = self.hears.recv(1 << 16)
        if self.is_wide:
            [(address, _, _, body)] = wide.read(data)[2]
            return address, body
        return struct.unpack(">H", data[:2])[0], data[2:]


class Site:
    """Level 1 twice, central, and sixteen hosts with a program each, in a format."""

    def __init__(self, network, format):
        self.network, self.is_wide = network, format == "wide"
        self.common = ["--format", format, "--status", f"127.0.0.1:{STATUS}", "--timers", "processor"]
        self.daemons, self.programs = {}, {}
        for place in ("a", "b", "central"):
            self.start(place)
        # In format 2 the first converter would be assigned everything.
        self.until("both level 1 to be met", lambda: not self.is_wide or all(
            f'trunkline_converter_held{{level1="{number}"}}' in self.metrics("central") for number in (1, 2)))
        for host in HOSTS:
            self.start(f"h{host}")
            with network.at(f"h{host}"):
                program = self.programs[host] = udp("127.0.0.1", 7000)
            program.setblocking(False)
        self.until("all hosts to want what they want", lambda: [
            self.metrics("central").get(f'trunkline_converter_wanted{{host="{host}"}}') for host in HOSTS] == [2] * 16)
        self.until("all groups to be held", lambda: sum(self.groups()) == 17)

    def start(self, place):
        with self.network.at(place):
            self.daemons[place] = Daemon(*self.words(place), *self.common)

    def words(self, place):
        if place == "central":
            level1 = [f"--level1={number}={LOCAL[one]}" for number, one in enumerate("ab", 1)]
            return ["central", "--listen-level1", CENTRAL, "--listen-hosts", CENTRAL,
                    *(level1 if not self.is_wide else ["--level1", f"1={LOCAL['a']},2={LOCAL['b']}"]),
                    *([] if self.is_wide else ["--hosts", ",".join(map(local, HOSTS))])]
        if place in NEAR:
            number = "ab".index(place) + 1
            return ["level1", "--number", number, "--central", CENTRAL, "--listen", f"{LOCAL[place]}:3457",
                    "--interface", NEAR[place], "--ttl", 8]
        host = int(place[1:])
        with open(f"/run/{place}.toml", "w") as file:
            file.write(rules(host))
        return ["host", "--number", host, "--central", CENTRAL, "--listen", f"{local(host)}:3459",
                "--interface", local(host), "--dis", "127.0.0.1:8000", "--dis-to", "127.0.0.1:7000", "--rules", file.name]

    def restart(self, place, how, meanwhile):
        """Ends a daemon by a signal and starts it again; calls `meanwhile` in between."""
        process = self.daemons[place].process
        process.send_signal(how)
        self.until(f"{place} to end", lambda: meanwhile() and process.poll() is not None)
        process.communicate()
        self.start(place)

    def metrics(self, place):
        with self.network.at(place), socket.create_connection(("127.0.0.1", STATUS), timeout=LONG) as page:
            page.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: page.recv(1 << 16), b"")).decode()
        lines = [line for line in text.splitlines() if line.startswith("trunkline_")]
        return {name: int(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def starved(self):
        """Who was taken for dead, and whose buffer was full."""
        return {(place, name): count for place in self.daemons for name, count in self.metrics(place).items()
                if count and ("_silent_" in name or "_overflow_" in name)}

    def groups(self):
        return [self.metrics(place)["trunkline_converter_groups"] for place in NEAR]

    until = Place.until

    def say(self, host, *pdus):
        for one in pdus:
            self.programs[host].sendto(one, ("127.0.0.1", 8000))

    def heard(self, host):
        """All PDUs that a program has now."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self.programs[host].recv(1 << 16))
        return found

    def end(self):
        for daemon in self.daemons.values():
            daemon.end()


@contextlib.contextmanager
def routed(format, router):
    network = Network()
    getattr(network, router)()
    site, far = Site(network, format), Far(network, format)
    trouble = None
    try:
        yield network, site, far
        # A daemon that was lost for a time says so, and ends then.
        trouble = site.starved()
        site.end()
    except AssertionError as failure:
        trouble = site.starved() if trouble is None else trouble
        if trouble:
            raise classic.Starved(trouble) from failure
        raise


def flows(site, far, hosts, address):
    """Waits until what is sent from afar to an address reaches these hosts, and all of it is taken."""
    left = set(hosts)

    def again():
        far.send(address, pdu(64))
        time.sleep(0.02)
        left.difference_update(host for host in list(left) if site.heard(host))
        return not left

    site.until(f"{address} to flow", again)
    settle(site)


def settle(site):
    """Waits until nothing comes any more."""
    quiet = 0
    while quiet < 3:
        time.sleep(0.1)
        quiet = 0 if any([site.heard(host) for host in site.programs]) else quiet + 1


def a_router_that_is_told_by_igmp(format):
    with routed(format, "igmpproxy") as (network, site, far):
        for host in HOSTS:
            flows(site, far, [host], OWN + 32 * host)
        flows(site, far, HOSTS, ALL)
        assert min(site.groups()) > 0, f"both have some: {site.groups()}"
        near = [Capture(network, place, "near") for place in NEAR]
        before = network.forwarded()
        sent, got = ({host: [] for host in HOSTS} for _ in range(2))
        for number in range(1, 41):
            for host in HOSTS:
                sent[host].append(pdu(64))
                far.send(OWN + 32 * host, sent[host][-1])
            for other in range(32):
                far.send(NOBODY + 32 * other, pdu(64))
                # Of a group that is wanted an address that is not.
                far.send(OWN + 32 * (1 + other % 16) + 1, pdu(64))
            site.until("all to come", lambda: all(
                [got[host].extend(site.heard(host)) or len(got[host]) >= number for host in HOSTS]))
        settle(site)
        assert got == sent, "to each what it wants, in order, once"
        wanted = {group(ALL), *(group(OWN + 32 * host) for host in HOSTS)}
        passed = network.forwarded()
        assert set(passed) <= wanted, set(passed) - wanted
        for host in HOSTS:
            one = group(OWN + 32 * host)
            assert passed[one] - before.get(one, 0) == 40 + 80, one
        for capture in near:
            groups = {to for _, _, to, port, _ in capture.udp() if port == PORT}
            assert groups == wanted - {group(ALL)}, groups
        # Each message was taken by one of both.
        dropped = site.metrics("central")['trunkline_converter_dropped_total{way="to_hosts",why="nobody",priority="ordinary"}']
        assert dropped >= 40 * 32, dropped


def check_routed_classic():
    a_router_that_is_told_by_igmp("classic")


def check_routed_wide():
    a_router_that_is_told_by_igmp("wide")


# --- a router that forwards all, both ways, and a switch that looks for IGMP


def both_ways(format, check):
    with routed(format, "smcroute") as (network, site, far):
        far.join(ALL)
        flows(site, far, HOSTS, ALL)
        check(network, site, far)


def the_switch_keeps_back_what_nobody_joined(network, site, far):
    unwanted = {group(NOBODY + 32 * other) for other in range(32)}
    near = {place: Capture(network, place, "near") for place in NEAR}
    taken = lambda: sum(site.metrics(place)['trunkline_converter_messages_total{way="from_wide"}'] for place in NEAR)

    def arrived():
        for capture in near.values():
            capture.clear()
        for other in range(32):
            far.send(NOBODY + 32 * other, pdu(64))
        far.send(ALL, pdu(64))
        settle(site)
        return [unwanted & {to for _, _, to, port, _ in capture.udp() if port == PORT} for capture in near.values()]

    # It looks from when the first answers are in.
    site.until("the switch to look for IGMP", lambda: arrived() == [set(), set()])
    assert unwanted <= set(network.forwarded()), "the router forwards the joined groups"
    # A switch that does not look gives all to both: so it was counted right. Level 1 takes none of it.
    run("ip", "link", "set", "near", "type", "bridge", "mcast_snooping", 0)
    before = taken()
    assert arrived() == [unwanted, unwanted]
    assert taken() - before == 1, "that to all"
    assert sum(site.groups()) == 17


def joins_within_a_group_are_silent(network, site, far):
    near = [Capture(network, place, "near") for place in NEAR]
    igmp = lambda: [one for capture in near for one in capture.igmp()]
    # The first join of a group is announced by IGMP, more than once.
    site.say(16, state(16, 0, 0))
    flows(site, far, [16], GRID)
    assert any(socket.inet_aton(group(GRID)) in one for one in igmp()), "the group is joined"
    # What answers the switch's questions, half a minute apart, says nothing of joins.
    run("ip", "link", "set", "near", "type", "bridge", "mcast_querier", 0)
    heard, quiet = len(igmp()), time.monotonic()
    while time.monotonic() < quiet + 3:
        time.sleep(0.1)
        if len(igmp()) > heard:
            heard, quiet = len(igmp()), time.monotonic()
    numbers = []
    for cell in range(1, 31):
        # Another cell of the same row, by the entity of each host in turn.
        host, address = (cell - 1) % 15 + 1, GRID + cell
        capture, sent, came = Capture(network, "central", "local"), [], []

        def comes():
            sent.append(pdu(64))
            far.send(address, sent[-1])
            came.extend(one for one in site.heard(host) if one in sent)
            return came

        site.say(host, state(host, cell, 0))
        site.until(f"{address} to come to host {host}", comes)
        numbers.append(bundle_of_the_first(site, capture.udp(), host, address, came[0]))
        capture.socket.close()
    # The next bundle has it. Where this machine slept while one was under way it is the one after that.
    assert max(numbers) <= 2 and numbers.count(1) > len(numbers) / 2, numbers
    assert len(igmp()) == heard, "a join in a group that is already joined sends no report"
    settle(site)


def bundle_of_the_first(site, packets, host, address, first):
    """The number of the bundle with the first message, among those that left for a host once both its join and that message
    had arrived. The system may hand the converter the join first although the message was captured first."""
    to_central = lambda port: [(number, one[4]) for number, one in enumerate(packets) if one[3] == port]
    joined = next(at for at, data in to_central(3458) if packets[at][1] == local(host) and address in joins(site, data))
    arrived = next(at for at, data in to_central(3450) if (address, first) in carried(site, data, 2))
    after = packets[max(joined, arrived):]
    left = [dict(map(reversed, carried(site, data, 0))) for out, _, to, _, data in after if out and to == local(host)]
    return next(number for number, bodies in enumerate(filter(None, left), 1) if first in bodies)


def carried(site, data, first):
    """The messages of a bundle, (address or mask, body); `first` is where they begin in the classic format."""
    return [(one[0], one[-1]) for one in (wide.read(data)[2] if site.is_wide else classic.messages(data, first))]


def joins(site, data):
    """Addresses that a bundle of a host joins."""
    if not site.is_wide:
        return {address for address, body in classic.messages(data, 2) if len(body) == 20 and body[0] == 1}
    found, at, end = set(), 32 + 24 * data[15], struct.unpack(">H", data[8:10])[0]
    while at < end:
        kind, _, octets = struct.unpack(">BBH", data[at : at + 4])
        if kind == 1:
            found.update(struct.unpack(f">{(octets - 8) // 4}I", data[at + 8 : at + octets])[::2])
        at += octets
    return found


def nothing_comes_back_over_restarts(_, site, far):
    said, got, outside = {}, {host: [] for host in HOSTS}, []

    def pump():
        """Everybody says something to all; what was said."""
        new = {pdu(64): host for host in (0, *HOSTS)}
        said.update(new)
        for one, host in new.items():
            far.send(ALL, one) if host == 0 else site.say(host, one)
        time.sleep(0.02)
        for host in HOSTS:
            got[host] += site.heard(host)
        while (one := far.take(0)) is not None:
            outside.append(one[1])
        return new

    def flow():
        """Whether each of the last three rounds' speakers is heard by everybody else."""
        new = {**pump(), **pump(), **pump()}
        heard = lambda all: {new[one] for one in all[-200:] if one in new}
        return heard(outside) == set(HOSTS) and all(heard(got[host]) == {0, *HOSTS} - {host} for host in HOSTS)

    site.until("all to flow", flow)
    for place, how in [("a", signal.SIGTERM), ("b", signal.SIGKILL), ("central", signal.SIGTERM), ("b", signal.SIGTERM),
                       ("central", signal.SIGKILL), ("a", signal.SIGKILL), ("h3", signal.SIGTERM), ("h4", signal.SIGKILL)]:
        site.restart(place, how, meanwhile=pump)
        site.until(f"all to flow again with another {place}", flow)
    settle(site)
    for host in HOSTS:
        assert not [one for one in got[host] if said.get(one) == host], f"host {host} heard itself"
        assert len(set(got[host])) == len(got[host]), f"host {host} heard something twice"
        assert set(got[host]) <= set(said)
    assert len(set(outside)) == len(outside) and set(outside) <= set(said)


def check_a_switch_classic():
    both_ways("classic", the_switch_keeps_back_what_nobody_joined)


def check_a_switch_wide():
    both_ways("wide", the_switch_keeps_back_what_nobody_joined)


def check_joins_classic():
    both_ways("classic", joins_within_a_group_are_silent)


def check_joins_wide():
    both_ways("wide", joins_within_a_group_are_silent)


def check_restarts_classic():
    both_ways("classic", nothing_comes_back_over_restarts)


def check_restarts_wide():
    both_ways("wide", nothing_comes_back_over_restarts)


# --- all 2,048 groups


def processor_ms(process):
    with open(f"/proc/{process}/schedstat") as file:
        return int(file.read().split()[0]) / 1e6


def groups_at_once(format, tell):
    """Has level 1 join all groups, without a privilege and without a setting of the system."""
    with Place() as place:
        place.ip = "10.7.0.2"
        lines = ["link set lo up", "link add near type veth peer name there", f"addr add {place.ip}/24 dev near"]
        run("ip", "-batch", "-", input="\n".join([*lines, "link set near up", "link set there up"]))
        central = udp(place.ip, 3450)
        nothing = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        daemon = Daemon("level1", "--format", format, "--interface", place.ip, "--listen", f"{place.ip}:3457", "--central",
                        f"{place.ip}:3450", "--status", f"{place.ip}:{place.status}", before=nothing)
        place.daemons.append(daemon)
        with open(f"/proc/{daemon.process.pid}/status") as file:
            assert re.search(r"^CapEff:\s0+$", file.read(), re.M), "it has privileges"
        before = processor_ms(daemon.process.pid)
        seconds = tell(place, central)
        took = processor_ms(daemon.process.pid) - before
        assert place.metrics()["trunkline_converter_groups"] == 2048
        with open("/proc/net/igmp") as file:
            held = {line.split()[0] for line in file if line.startswith("\t\t\t\t")}
        all_ = {f"{struct.unpack('=I', socket.inet_aton(group(32 * packet)))[0]:08X}" for packet in range(2048)}
        assert all_ <= held, len(all_ - held)
        print(f"{format}: 2,048 groups held after {1000 * seconds:.1f} ms, {took:.1f} ms of processor")


def check_all_groups_at_once_classic():
    def tell(place, central):
        begin = time.monotonic()
        for first in range(0, 2048, 255):
            joins = [classic.join(32 * packet) for packet in range(first, min(first + 255, 2048))]
            central.sendto(classic.bundle(joins), (place.ip, 3457))
        # It answers after it has completed earlier requests.
        place.until("it to hold all", lambda: place.metrics()["trunkline_converter_groups"] == 2048)
        return time.monotonic() - begin

    groups_at_once("classic", tell)


def check_all_groups_at_once_wide():
    def tell(place, central):
        central.settimeout(LONG)
        _, at = central.recvfrom(1 << 16)
        hold = struct.pack(">BBHI", 4, 0, 264, 1) + b"\xff" * 256
        begin = time.monotonic()
        central.sendto(wide.bundle(wide.CENTRAL, 0, to=1, session=1, control=hold), at)
        holds = struct.pack(">BBHI", 5, 0, 8, 1)
        while holds not in central.recv(1 << 16):
            pass
        return time.monotonic() - begin

    groups_at_once("wide", tell)


if __name__ == "__main__":
    classic.main(globals())
