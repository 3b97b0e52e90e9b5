"""Checks of agents: `check.py PROGRAM NAME`. Prints what it measured and, if it succeeded, `ok NAME`."""

import contextlib
import os
import signal
import sys
import threading
import time

from lab import Capture, Lab, run, wait_for

# Load above this is a test, below it are only requests, events and consent.
LOAD_BPS = 2e6


def mesh(program):
    """Twelve connections between four agents start together, and each is in the record."""
    lab = Lab(program, 4)
    pairs = [(a, b) for a in lab.hosts for b in lab.hosts if a != b]
    connection = (
        "connection {0}-{1} {{ xmt = {0}; rcv = {1}; protocol = udp;"
        " test = cbr (messagesize = 500, period = 4 ms); messages = 500; }}"
    )
    text = 'experiment "mesh" { parallel {\n' + "\n".join(connection.format(*pair) for pair in pairs) + "\n} }\n"
    spreads = []
    for _ in range(5):
        capture = Capture(500)
        record = lab.run(text)
        times = capture.end()
        assert not record["partial"], record["trouble"]
        assert [c["name"] for c in record["connections"]] == [f"{a}-{b}" for a, b in pairs]
        for c in record["connections"]:
            assert c["messages_sent"] == c["messages_received"] == 500, (c["name"], c["messages_received"])
            assert c["delay_us"]["count"] == 500 and c["delay_uncertainty_us"] > 0
            assert c["notes"]["receiver_address"].startswith("10.66.0.")
        assert {h["name"] for h in record["hosts"]} == set(lab.hosts)
        assert len({c["runs"][0]["start_s"] for c in record["connections"]}) == 1
        assert len(times) == 12, len(times)
        spreads.append((times[-1] - times[0]) / 1e3)
    spreads.sort()
    print(f"mesh of 12 connections: first messages within {spreads[2]:.0f} us ({spreads[0]:.0f} to {spreads[-1]:.0f})")
    uncertainty = max(c["delay_uncertainty_us"] for c in record["connections"])
    print(f"one-way delays within {uncertainty:.0f} us at most")
    lab.end()


TEXT = """experiment "kill" {{ connection c {{ xmt = h1; rcv = h2; protocol = {};
    test = cbr (messagesize = 1400, period = 100 us); duration = {} s; }} }}"""


def observe(lab, process):
    """Waits for the end of the load of h1, of the controller, and of the runs; returns when each ended, in seconds from now."""
    start = time.monotonic()
    sent, load, over = lab.sent_bytes("h1"), 0.0, {}
    while len(over) < 2 or time.monotonic() - start < load + 1.0:
        assert time.monotonic() - start < 30, f"not over: {over}, load until {load}"
        time.sleep(0.05)
        now = lab.sent_bytes("h1")
        if (now - sent) * 8 / 0.05 > LOAD_BPS:
            load = time.monotonic() - start
        sent = now
        if process.poll() is not None:
            over.setdefault("controller", time.monotonic() - start)
        if not lab.processes_of_runs():
            over.setdefault("runs", time.monotonic() - start)
    return load, max(over.values())


def kill(program, quick=False):
    """Whatever dies at whatever moment: the load ends, the rest says what happened, and the next run works."""
    lab = Lab(program, 2)
    victims = ["agent of h1", "run on h1", "agent of h2", "run on h2", "controller", "link of h2", "link of controller"]
    delays = {"udp": [0.05, 0.2, 0.4, 0.8, 1.6, 2.15], "tcp": [0.3, 1.8], "guaranteed": [0.3, 1.8], "stamp": [0.3, 1.8]}
    if quick:
        delays = {"udp": [0.2, 1.6]}
    figures, messages, number = {}, set(), 0
    for protocol, moments in delays.items():
        for victim in victims:
            for delay in moments:
                # The latest moment is at the end of a short test.
                process = lab.start_run(TEXT.format(protocol, 1.5 if delay > 2 else 20))
                time.sleep(delay)
                if not hit(lab, victim, process):
                    # The run was already over, or not there yet.
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    wait_for(lambda: not lab.processes_of_runs(), "runs end", 10)
                    continue
                number += 1
                worst = figures.setdefault(victim, [0.0, 0.0])
                worst[:] = map(max, worst, observe(lab, process))
                if victim != "controller":
                    status, record, err = lab.end_run(process)
                    assert status in (0, 1), (victim, delay, status, err)
                    if status == 1:
                        assert err.count("\n") == 1, err
                        messages.add(err.strip().split(";")[0])
                    if delay in (1.6, 1.8) and victim != "link of controller":
                        assert status == 1 and record["partial"], (victim, delay, status)
                        assert record["connections"][0]["messages_received"] > 0, (victim, delay)
                restore(lab, victim)
                for host in lab.hosts:
                    assert not lab.open_ports(host), (victim, delay, lab.open_ports(host))
                record = lab.run(TEXT.format(protocol, 0.2))
                assert record["connections"][0]["messages_received"] > 100, (victim, delay)
    print(f"{number} times something died; the longest times until its load, and everything, had ended:")
    for victim, (load, over) in figures.items():
        print(f"  {victim}: {load:.2f} s, {over:.2f} s")
    for line in sorted(messages):
        print(f"  {line}")
    lab.end()


def kill_quick(program):
    kill(program, quick=True)


def hit(lab, victim, process):
    """Kills or cuts the victim; returns whether it was there."""
    what, _, host = victim.partition(" of ") if " of " in victim else victim.partition(" on ")
    if victim == "controller":
        os.killpg(process.pid, signal.SIGKILL)
    elif what == "agent":
        lab.agents[host].kill()
        lab.agents[host].wait()
    elif what == "run":
        pid = lab.process_of_run(host)
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
    else:
        run("ip", "link", "set", "br0" if host == "controller" else host, "down")
        if host == "controller":
            # The bridge still forwards, without an address.
            run("ip", "link", "set", "br0", "up")
            run("ip", "addr", "flush", "dev", "br0")
    return True


def restore(lab, victim):
    """Repairs what `hit` has destroyed."""
    if victim.startswith("agent"):
        host = victim.split()[-1]
        lab.agents[host].stdout.close()
        lab.start_agent(host)
    elif victim == "link of h2":
        run("ip", "link", "set", "h2", "up")
        wait_for(lambda: "LOWER_UP" in run("ip", "link", "show", "h2"), "the link is up")
    elif victim == "link of controller":
        run("ip", "addr", "add", "10.66.0.100/24", "dev", "br0")


def some(program):
    """40 connections between two agents: a debug build on a busy machine keeps the consent of 200 not always."""
    many(program, 40)


def many(program, count=200):
    """Many connections between two agents."""
    lab = Lab(program, 2)
    connection = (
        "connection c{0} {{ xmt = {1}; rcv = {2}; protocol = udp;"
        " test = cbr (messagesize = 200, period = 50 ms); messages = 60; }}"
    )
    both = lambda n: ("h1", "h2") if n % 2 else ("h2", "h1")
    lines = [connection.format(n, *both(n)) for n in range(count)]
    process = lab.start_run('experiment "many" { parallel {\n' + "\n".join(lines) + "\n} }\n")
    peak, is_over = {}, threading.Event()

    def watch():
        while not is_over.wait(0.1):
            for host in lab.hosts:
                for pid in [lab.agents[host].pid, lab.process_of_run(host)]:
                    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status") as file:
                        [line] = [line for line in file if line.startswith("VmHWM")]
                        peak[host, pid] = int(line.split()[1]) / 1024

    watcher = threading.Thread(target=watch)
    watcher.start()
    status, record, err = lab.end_run(process)
    is_over.set()
    watcher.join()
    assert status == 0 and not record["partial"], (err, record and record["trouble"])
    assert all(c["messages_received"] == 60 for c in record["connections"])
    total = {host: sum(mib for (h, _), mib in peak.items() if h == host) for host in lab.hosts}
    print(f"{count} connections: " + ", ".join(f"agent {host} {mib:.0f} MiB" for host, mib in total.items()))
    # A debug build has 60 MiB more of code.
    assert all(mib < 300 for mib in total.values()), total
    lab.end()


if __name__ == "__main__":
    program, name = sys.argv[1:]
    globals()[name](program)
    print(f"ok {name}")
