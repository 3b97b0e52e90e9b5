"""Agents in namespaces, one for each host, joined by a bridge to the namespace of the controller.

Run by `unshare -n -m -p -f --kill-child --mount-proc`, so nothing is left behind.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3
SO_TIMESTAMPNS = 35
CONTROLLER = "10.66.0.100"
# How long anything may take before a check counts as failed.
LONG = 60


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def wait_for(condition, what, limit=LONG):
    """Waits until a condition holds; returns how long that took, in seconds."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < limit, f"{what}: not within {limit} s"
        time.sleep(0.01)
    return time.monotonic() - start


class Lab:
    """The controller's namespace is the own one; agent `hN` is in the namespace `hN` with the address 10.66.0.N."""

    def __init__(self, program, hosts, *flags):
        self.program, self.flags = program, flags
        run("mount", "-t", "tmpfs", "none", "/run")
        os.mkdir("/run/netns")
        self.folder = tempfile.mkdtemp(dir="/run")
        os.environ.update(HOME=self.folder, TRUNKLINE_KEYS=f"{self.folder}/controller")
        self.own = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.hosts, self.agents = [f"h{n}" for n in range(1, hosts + 1)], {}
        text = "link set lo up\nlink add br0 type bridge\n"
        text += f"addr add {CONTROLLER}/24 dev br0\nlink set br0 up\n"
        for host in self.hosts:
            text += f"netns add {host}\nlink add {host} type veth peer name eth0 netns {host}\n"
            text += f"link set {host} master br0 up\n"
        run("ip", "-batch", "-", input=text)
        for host in self.hosts:
            text = f"link set lo up\naddr add {self.address(host)}/24 dev eth0\nlink set eth0 up\n"
            run("ip", "-n", host, "-batch", "-", input=text)
        wait_for(lambda: "DOWN" not in run("ip", "link", "show", "up"), "the links are up")
        for host in self.hosts:
            join = self.start_agent(host)
            self.trunkline("keys", "add", host, join, "--as", "controller")

    def address(self, host):
        return f"10.66.0.{host[1:]}"

    @contextlib.contextmanager
    def at(self, host):
        """What is opened and started here is in the namespace of a host."""
        there = os.open(f"/run/netns/{host}", os.O_RDONLY)
        try:
            assert LIBC.setns(there, CLONE_NEWNET) == 0, ctypes.get_errno()
            yield
        finally:
            assert LIBC.setns(self.own, CLONE_NEWNET) == 0, ctypes.get_errno()
            os.close(there)

    def start_agent(self, host, *more):
        """Starts the agent of a host; returns its join string."""
        words = [self.program, "agent", "--listen", f"{self.address(host)}:7600"]
        words += ["--keys", f"{self.folder}/{host}", *self.flags, *more]
        with self.at(host), open(f"{self.folder}/{host}.log", "a") as log:
            agent = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        self.agents[host] = agent
        join = agent.stdout.readline().strip()
        assert join, self.log(host)
        return join

    def log(self, host):
        with open(f"{self.folder}/{host}.log") as file:
            return file.read()

    def trunkline(self, *words):
        return run(self.program, *words, cwd=self.folder)

    def start_run(self, text, hosts=None, *more):
        """Starts a run whose hosts are agents; returns its process."""
        path = f"{self.folder}/experiment.ns"
        with open(path, "w") as file:
            file.write(text)
        places = [word for host in hosts or self.hosts for word in ("--at", f"{host}=agent:{host}")]
        words = [self.program, "run", path, *places, "--no-archive", "--json", "--out", f"{self.folder}/out", *more]
        # Files: a full pipe would keep the process from ending.
        with open(f"{self.folder}/out.json", "w") as out, open(f"{self.folder}/err", "w") as err:
            return subprocess.Popen(words, stdout=out, stderr=err, cwd=self.folder, start_new_session=True)

    def end_run(self, process):
        """Waits for the end of a run; returns its status, its record, and its errors."""
        process.wait(timeout=LONG)
        with open(f"{self.folder}/out.json") as out, open(f"{self.folder}/err") as err:
            text = out.read()
            return process.returncode, json.loads(text) if text else None, err.read()

    def run(self, text, hosts=None, *more):
        status, record, err = self.end_run(self.start_run(text, hosts, *more))
        assert status == 0, (status, err, record and record["trouble"])
        return record

    def process_of_run(self, host):
        """The process of a run on the agent of a host, or None."""
        found = subprocess.run(
            ["pgrep", "-P", str(self.agents[host].pid)], capture_output=True, text=True
        ).stdout.split()
        return int(found[0]) if found else None

    def processes_of_runs(self):
        found = subprocess.run(["pgrep", "-f", "agent --stdio"], capture_output=True, text=True)
        return found.stdout.split()

    def sent_bytes(self, host):
        """Bytes that the host has sent."""
        # /sys is that of the namespace in which it was mounted.
        with open("/proc/net/dev") as file:
            [line] = [line for line in file if line.strip().startswith(f"{host}:")]
        return int(line.split(":")[1].split()[0])

    def open_ports(self, host):
        """Local UDP addresses in the namespace of a host."""
        with self.at(host):
            lines = run("cat", "/proc/thread-self/net/udp").splitlines()[1:]
        return [line.split()[1] for line in lines]

    def end(self):
        for agent in self.agents.values():
            with contextlib.suppress(ProcessLookupError):
                agent.send_signal(signal.SIGTERM)
        for host, agent in self.agents.items():
            agent.wait(timeout=LONG)


class Capture:
    """The times of the first datagram of each flow with messages of a length, by the kernel's clock."""

    def __init__(self, length):
        self.length, self.first, self.is_over = length, {}, False
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 25)
        self.socket.settimeout(0.1)
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while not self.is_over:
            try:
                packet, control, _, _ = self.socket.recvmsg(64, 64)
            except TimeoutError:
                continue
            if packet[12:14] != b"\x08\x00" or packet[23] != 17:
                continue
            if struct.unpack("!H", packet[38:40])[0] - 8 != self.length:
                continue
            [(_, _, stamp)] = control
            seconds, ns = struct.unpack("qq", stamp)
            self.first.setdefault(packet[26:38], seconds * 1_000_000_000 + ns)

    def end(self):
        self.is_over = True
        self.thread.join()
        return sorted(self.first.values())
