"""What libpcap says: which packets of a capture each filter passes.

    pcap_says.py CAPTURE < FILTERS

Prints a line for each filter: 0 and 1 for the packets in order, `refused` if it
passes none, or an error. Exits with 77 if there is no libpcap.
"""

import ctypes
import ctypes.util
import struct
import sys

path = ctypes.util.find_library("pcap") or "libpcap.so.0.8"
try:
    pcap = ctypes.CDLL(path)
except OSError:
    sys.exit(77)


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint), ("instructions", ctypes.c_void_p)]


class Header(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("us", ctypes.c_long), ("captured", ctypes.c_uint32), ("length", ctypes.c_uint32)]


def packets(path):
    """Packets of a pcap file in this machine's byte order."""
    data = open(path, "rb").read()
    at = 24
    while at < len(data):
        _, _, captured, length = struct.unpack("=IIII", data[at : at + 16])
        yield data[at + 16 : at + 16 + captured], length
        at += 16 + captured


pcap.pcap_open_dead.restype = ctypes.c_void_p
pcap.pcap_geterr.restype = ctypes.c_char_p
pcap.pcap_geterr.argtypes = [ctypes.c_void_p]
pcap.pcap_compile.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint32]
pcap.pcap_offline_filter.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
ETHERNET = 1
handle = pcap.pcap_open_dead(ETHERNET, 65535)
all_packets = list(packets(sys.argv[1]))
for line in sys.stdin:
    program = Program()
    if pcap.pcap_compile(handle, ctypes.byref(program), line.strip().encode(), 1, 0xFFFFFFFF) != 0:
        why = pcap.pcap_geterr(handle).decode()
        print("refused" if "rejects all packets" in why else "error " + why)
        continue
    passed = []
    for data, length in all_packets:
        header = Header(0, 0, len(data), length)
        found = pcap.pcap_offline_filter(ctypes.byref(program), ctypes.byref(header), data)
        passed.append("1" if found else "0")
    print("".join(passed))
