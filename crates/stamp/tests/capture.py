#!/usr/bin/env python3
"""Prints packets of stamp-suite for fixtures.rs. Usage: capture.py PROGRAM"""

import os
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1]
PORT = 8629


def start(arguments):
    quiet = subprocess.DEVNULL
    return subprocess.Popen([PROGRAM, *arguments], stdout=quiet, stderr=quiet)


def sender(*arguments):
    """Returns the first packet of a sender."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        s.settimeout(10)
        port = str(s.getsockname()[1])
        process = start(["--remote-addr", "127.0.0.1", "--remote-port", port, "--count", "1", *arguments])
        packet = s.recv(2000)
        process.kill()
        process.wait()
        return packet


def reflector(packet, *arguments):
    """Returns a reflector's answer to a packet that arrives with a TTL of 200."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.2)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 200)
        local = ["--is-reflector", "--stateful-reflector", "--local-addr", "127.0.0.1", "--local-port", str(PORT)]
        process = start([*local, *arguments])
        try:
            for _ in range(50):
                s.sendto(packet, ("127.0.0.1", PORT))
                try:
                    return s.recv(2000)
                except OSError:
                    time.sleep(0.1)
            sys.exit("no answer")
        finally:
            process.kill()
            process.wait()


with tempfile.NamedTemporaryFile() as key:
    os.chmod(key.name, 0o600)
    key.write(bytes(range(32)).hex().encode())
    key.flush()
    authenticated = ["-A", "A", "--hmac-key-file", key.name]
    error = ["--clock-synchronized", "--error-scale"]
    plain = sender("--ssid", "258")
    sealed = sender("--ssid", "258", "-K", "PTP", *error, "20", "--error-multiplier", "200", *authenticated)
    print("SENDER", plain.hex())
    print("SENDER_AUTHENTICATED", sealed.hex())
    extended = plain + bytes.fromhex("80fa000107")
    print("REFLECTOR", reflector(extended, *error, "22", "--error-multiplier", "200").hex())
    print("REFLECTOR_AUTHENTICATED", reflector(sealed, "-K", "PTP", *authenticated).hex())
