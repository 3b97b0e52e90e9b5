#!/usr/bin/env python3
"""A recording of DIS, replayed by `trunkline converter replay` into a host's interface: byte for byte, in order, at every
host that wants it and none other, at its own site and at another one behind both converters of level 1.

    CAPTURE=FILE replay.py TRUNKLINE [CHECK…]

CAPTURE is a pcap of nanoseconds. What arrived is written to the files `pdus` and `bundles` here, each datagram behind its
length in four octets, for others to read.
"""

import sys

sys.dont_write_bytecode = True

import os
import re
import select
import struct
import subprocess
import time

import classic
import wide
from classic import TRUNKLINE, Place, Program, pdu

# Entity States go to the one, all else to the other; the third receives nothing.
STATES, REST, NOTHING = 7, 9, 8
RULES = f"[[rule]]\ntype = 1\naddress = {STATES}\n[default]\naddress = {REST}\n[subscribe]\naddresses = "


def packets(seconds=None):
    """The recording's packets, as they stand in the file, and the PDUs in them; of its first seconds."""
    with open(os.environ["CAPTURE"], "rb") as file:
        data = file.read()
    found, at, begin = [], 24, None
    while at < len(data):
        s, ns, length = struct.unpack("<III", data[at : at + 12])
        begin = s + ns / 1e9 if begin is None else begin
        if seconds is not None and s + ns / 1e9 - begin > seconds:
            break
        # Behind the headers of Ethernet, IPv4 and UDP.
        found.append((s + ns / 1e9 - begin, data[at : at + 16 + length], data[at + 16 + 42 : at + 16 + length]))
        at += 16 + length
    return data[:24], found


class Sites:
    """Two sites with the same groups; host 1 of the first is where the recording comes from."""

    # What hosts want: of the first site, and of the second.
    WANTS = {2: (STATES, REST), 3: (STATES,), 4: (NOTHING,), 5: (STATES, REST), 6: (REST,)}

    def __init__(self, format, one, two):
        self.is_wide, self.places = format == "wide", (one, two)
        two.port = one.port
        self.statuses = []
        for site, place in enumerate(self.places, 1):
            flags = ("--site", site) if self.is_wide else ()
            if self.is_wide:
                wide.central(place, *flags)
            else:
                place.central(*flags, hosts=6)
            status = place.free()
            self.statuses.append((place, status))
            (wide.level1 if self.is_wide else Place.level1)(place, 1, *flags, "--status", f"{place.ip}:{status}")
        self.entry = self.host(one, 1, (NOTHING,))
        self.programs = {}
        for number, addresses in self.WANTS.items():
            place = one if number < 5 else two
            self.host(place, number, addresses)
            self.programs[number] = Program(place, number)

    def host(self, place, number, addresses):
        rules = RULES + str(list(addresses))
        if self.is_wide:
            status, site = place.free(), 1 + self.places.index(place)
            wide.dis_host(place, number, "--site", site, "--status", f"{place.ip}:{status}", rules=rules)
        else:
            _, status = classic.dis_host(place, number, "--dis-to", f"{place.ip}:{7000 + number}", rules=rules)
        wide.wants(place, number, len(addresses))
        self.statuses.append((place, status))
        return place, status

    def begin(self):
        """Waits until what host 1 is given reaches the other site."""
        entry = Program(self.places[0], 1)
        for kind, number in ((1, 5), (2, 6)):
            self.places[0].until("both sites to hear each other", lambda: (
                entry.send(pdu(144, kind=kind)), self.programs[number].take(0.05))[1] is not None)
        while any([program.take(0.1) for program in self.programs.values()]):
            pass

    def heard(self):
        """PDUs that host 1 was given."""
        place, status = self.entry
        return place.metrics(status)['trunkline_converter_pdus_total{way="from_programs"}']

    def counted(self):
        """What all daemons count, by whose it is and its name."""
        figures = [place.metrics(status) for place, status in self.statuses + [(place, None) for place in self.places]]
        return {(at, name): value for at, one in enumerate(figures) for name, value in one.items() if "_total" in name}

    def wanted(self, pdus, number):
        return [one for one in pdus if (STATES if one[2] == 1 else REST) in self.WANTS[number]]

    def replay(self, file, speed, pdus):
        """Once through; what each program got."""
        words = [TRUNKLINE, "converter", "replay", file, "--to", f"{self.places[0].ip}:8001", "--speed", str(speed)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        got, missing = {number: [] for number in self.programs}, {number: len(self.wanted(pdus, number)) for number in self.WANTS}
        quiet = time.monotonic()
        while process.poll() is None or any(missing.values()) and time.monotonic() < quiet + 3:
            ready = select.select([program.socket for program in self.programs.values()], [], [], 0.1)[0]
            for number, program in self.programs.items():
                if program.socket in ready:
                    got[number].append(program.take(0))
                    missing[number] -= 1
                    quiet = time.monotonic()
        said = process.communicate()[0]
        assert process.returncode == 0, said
        for number, program in self.programs.items():
            while (one := program.take(0.1)) is not None:
                got[number].append(one)
        return said, got


# A buffer was full, or a peer was considered dead.
STARVED = "_overflow_", "_silent_"


def write(name, datagrams):
    with open(name, "wb") as file:
        for one in datagrams:
            file.write(struct.pack(">I", len(one)) + one)


def replayed(format, speed, seconds=None):
    head, found = packets(seconds)
    pdus, takes = [pdu for *_, pdu in found], found[-1][0]
    with open("capture", "wb") as file:
        file.write(head + b"".join(packet for _, packet, _ in found))
    with Place() as one, Place() as two:
        sites = Sites(format, one, two)
        sites.begin()
        raw = wide.Host(one, 60_000, STATES, REST) if format == "wide" else None
        if raw:
            wide.wants(one, 60_000, 3)
        for attempt in range(5):
            before = sites.heard(), sites.counted()
            said, got = sites.replay("capture", speed, pdus)
            count, seconds_taken = re.match(r"sent (\d+) datagrams to \S+ in ([0-9.]+) s, skipped 0 packets\n$", said).groups()
            assert int(count) == len(pdus) and float(seconds_taken) + 0.1 > takes / speed, (said, takes, speed)
            # A process that does not run for a while does not take what comes; then it is counted, and all is done again.
            grown = {key: value - before[1].get(key, 0) for key, value in sites.counted().items() if value != before[1].get(key, 0)}
            if sites.heard() - before[0] == len(pdus) and not any(what in name for _, name in grown for what in STARVED):
                break
        else:
            raise classic.Starved(f"in each of 5 attempts: {grown}")
        for number in sites.programs:
            expected = sites.wanted(pdus, number)
            assert got[number] == expected, f"host {number} has {len(got[number])} of {len(expected)}: {grown}"
        write("pdus", got[2])
        if raw:
            raw.ends = True
            write("bundles", [data for data in raw.datagrams if wide.read(data)[2]])


def check_replayed_classic():
    replayed("classic", 100)


def check_replayed_wide():
    replayed("wide", 100)


def check_a_part_at_its_own_pace_classic():
    replayed("classic", 1, seconds=10)


def check_a_part_at_its_own_pace_wide():
    replayed("wide", 1, seconds=10)


# These take as long as the recording: `make soak`.


def check_all_at_its_own_pace_classic():
    replayed("classic", 1)


def check_all_at_its_own_pace_wide():
    replayed("wide", 1)


if __name__ == "__main__":
    classic.main(globals())
