"""For dis.ns: a program that speaks DIS. It sends Entity States to 127.0.0.1:3000 and receives those of another at port 3001.

First it sends number 0, and number 1001 as soon as it hears the other; when the other hears it, 1 to 1000. It ends when it has
received the same of the other, with status 1 if one is missing or was changed.
"""

import socket
import struct
import sys
import time

COUNT = 1000
LENGTH = 144  # octets of an Entity State (IEEE 1278.1) without articulation


def entity_state(number):
    """Version 6, exercise 1, type 1, family 1; then the entity, which has the number."""
    head = struct.pack(">BBBBIHH", 6, 1, 1, 1, 0, LENGTH, 0)
    entity = struct.pack(">HHH", 1, 2, number)
    return head + entity + bytes((number * k) % 256 for k in range(LENGTH - len(head) - len(entity)))


receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
receiver.bind(("127.0.0.1", 3001))
receiver.settimeout(0.002)
missing, sent, last_probe = set(range(1, COUNT + 1)), 0, 0.0
probe, is_heard, deadline = 0, False, time.monotonic() + 60
while sent < COUNT or missing:
    now = time.monotonic()
    if now > deadline:
        sys.exit(f"{sent} of {COUNT} sent, {len(missing)} missing")
    if is_heard and sent < COUNT:
        sent += 1
        receiver.sendto(entity_state(sent), ("127.0.0.1", 3000))
    elif now - last_probe > 0.1:
        last_probe = now
        receiver.sendto(entity_state(probe), ("127.0.0.1", 3000))
    try:
        data = receiver.recv(2000)
    except TimeoutError:
        continue
    number = struct.unpack_from(">H", data, 16)[0]
    if data != entity_state(number):
        sys.exit(f"PDU {number} was changed: {data.hex()}")
    probe = COUNT + 1
    is_heard |= number > 0
    missing.discard(number)
print(f"{sent} sent, {COUNT - len(missing)} received")
