"""A network of namespaces for checks of the converter: a wide area behind a multicast router, level 1, central, hosts.

    far ── router ──(near)── a, b ──(local)── central, h1 … h16

`near` is the network on which both converters of level 1 hear groups, `local` that of central and hosts; each is a bridge.
A check that needs it is run by `unshare -n -m -p -f --kill-child --mount-proc`, so nothing is left behind of it.
"""

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
import time

import classic
from classic import LONG, Place

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3
FAR, ROUTER_FAR, ROUTER_NEAR = "10.8.0.2", "10.8.0.1", "10.7.0.1"
NEAR = {"a": "10.7.0.2", "b": "10.7.0.3"}
CENTRAL = "10.9.0.1"
LOCAL = {"a": "10.9.0.2", "b": "10.9.0.3"}
HOSTS = range(1, 17)


def local(host):
    return f"10.9.0.{10 + host}"


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def documented(name):
    """The lines of a block of docs/reference/bundle.md whose first line is a comment that begins with a name."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../docs/reference/bundle.md")) as file:
        blocks = file.read().split("```")[1::2]
    [found] = [block for block in blocks if block.split("\n")[1].startswith(f"# {name}")]
    return found.split("\n")[2:-1]


class Network:
    """All namespaces and lines, and what runs in them."""

    def __init__(self):
        # Names of namespaces are files: in this mount namespace no other process sees them.
        run("mount", "-t", "tmpfs", "none", "/run")
        os.mkdir("/run/netns")
        self.own = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.running = []
        lines = [
            ("far", "far", FAR, "router", "far", ROUTER_FAR),
            *((name, "near", ip, None, f"near-{name}", None) for name, ip in [("router", ROUTER_NEAR), *NEAR.items()]),
            ("central", "local", CENTRAL, None, "local-c", None),
            *((name, "local", ip, None, f"local-{name}", None) for name, ip in LOCAL.items()),
            *((f"h{host}", "local", local(host), None, f"local-h{host}", None) for host in HOSTS),
        ]
        places = sorted({line[0] for line in lines} | {"router"})
        text = "".join(f"netns add {place}\n" for place in places)
        # Without snooping a bridge gives all multicast to all: what a router forwards both of level 1 get.
        text += "".join(
            f"link add {name} type bridge mcast_snooping 0\nlink set {name} up\n" for name in ("near", "local"))
        for place, name, _, other, there, _ in lines:
            where = f"netns {other} name {there}" if other else f"name {there}"
            text += f"link add name {name} netns {place} type veth peer {where}\n"
            if not other:
                text += f"link set {there} master {name}\nlink set {there} up\n"
        run("ip", "-batch", "-", input=text)
        for place in places:
            text = "link set lo up\n"
            for one, name, ip, other, there, peer in lines:
                for dev, address in [(name, ip)] * (one == place) + [(there, peer)] * (other == place):
                    text += f"addr add {address}/24 broadcast + dev {dev}\nlink set {dev} up\n"
            run("ip", "-n", place, "-batch", "-", input=text)
        # What is sent before its ends are up is lost.
        deadline = time.monotonic() + LONG
        for where in [[], *(["-n", place] for place in places)]:
            while "DOWN" in run("ip", *where, "link", "show", "up"):
                assert time.monotonic() < deadline, "links do not come up"
                time.sleep(0.02)
        with self.at("router"):
            for name, value in [("ip_forward", 1), ("igmp_max_memberships", 4096)]:
                with open(f"/proc/sys/net/ipv4/{name}", "w") as file:
                    file.write(str(value))
        # Clients in the wide area reach hosts through the router, and hosts reach them.
        run("ip", "-n", "far", "route", "add", "10.7.0.0/24", "via", ROUTER_FAR)
        for place in NEAR:
            run("ip", "-n", place, "route", "add", "10.8.0.0/24", "via", ROUTER_NEAR)

    @contextlib.contextmanager
    def at(self, place):
        """What is opened and started here is in that namespace."""
        there = os.open(f"/run/netns/{place}", os.O_RDONLY)
        try:
            self.enter(there)
            yield
        finally:
            self.enter(self.own)
            os.close(there)

    def enter(self, namespace):
        if LIBC.setns(namespace, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    def start(self, place, *words):
        """Another program, in a namespace; it is ended with this one."""
        with self.at(place):
            log = open(f"/run/{words[0]}.log", "w")
            self.running.append(subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def igmpproxy(self):
        """A router that asks who wants what and forwards that, from the far side to the near one."""
        file = self.written("igmpproxy.conf")
        self.start("router", "igmpproxy", "-n", file)

    def smcroute(self):
        """A router that forwards all groups of the converter both ways, and a switch before it that looks for IGMP."""
        file = self.written("smcroute.conf")
        self.start("router", "smcrouted", "-n", "-N", "-f", file)
        for line in documented("near"):
            run("sh", "-ec", line)

    def written(self, name):
        """A file as docs/reference/bundle.md has it."""
        with open(f"/run/{name}", "w") as file:
            file.write("\n".join(documented(name)) + "\n")
        os.chmod(file.name, 0o600)
        return file.name

    def forwarded(self):
        """Packets that the router forwarded by group; of those that it has a way for."""
        with self.at("router"), open("/proc/net/ip_mr_cache") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        # The group as the system writes it: its octets as a number of this machine.
        ip = lambda text: socket.inet_ntoa(struct.pack("=I", int(text, 16)))
        found = {}
        for group, _, _, packets, _, _, *ways in rows:
            if ways:
                found[ip(group)] = found.get(ip(group), 0) + int(packets)
        return found


class Capture:
    """What passes an interface, with the time of the system: (time, whether it leaves, packet of IPv4)."""

    def __init__(self, network, place, name):
        with network.at(place):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
            self.socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
            self.socket.bind((name, ETH_P_ALL))
        self.socket.setblocking(False)
        self.packets = []

    def take(self):
        """All so far."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data, (_, protocol, kind, *_) = self.socket.recvfrom(1 << 16)
                if protocol == 0x0800:
                    self.packets.append((kind == socket.PACKET_OUTGOING, data))
        lost = self.socket.getsockopt(263, 6, 8)  # PACKET_STATISTICS
        assert struct.unpack("=II", lost)[1] == 0, "the capture has lost packets"
        return self.packets

    def clear(self):
        self.take()
        self.packets.clear()

    def igmp(self):
        return [data for _, data in self.take() if data[9] == 2]

    def udp(self):
        """(whether it leaves, from, to, to port, body)."""
        found = []
        for out, data in self.take():
            head = (data[0] & 15) * 4
            if data[9] == 17:
                source, to = socket.inet_ntoa(data[12:16]), socket.inet_ntoa(data[16:20])
                found.append((out, source, to, struct.unpack(">H", data[head + 2 : head + 4])[0], data[head + 8 :]))
        return found
