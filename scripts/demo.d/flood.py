"""Sends UDP of full-size packets at a rate, or catches it: `flood.py send ADDRESS BITS_PER_SECOND SECONDS`,
`flood.py catch`.

iperf3 makes a system call for each packet, which on two shared cores is too slow to offer twice 1 Gbit/s. Here the
kernel cuts many packets out of each call (UDP_SEGMENT). The sender prints what it offered in bytes on the wire.
"""

import signal
import socket
import sys
import time

PORT = 5202
PAYLOAD_BYTES = 1500 - 20 - 8
FRAME_BYTES = 1500 + 14
FRAMES_PER_CALL = 16
UDP_SEGMENT = 103
# A sender that was not scheduled for longer than this does not make up for it: that would be a burst, not a rate.
MAX_LAG_SECONDS = 0.01


def send(address, bits_per_second, seconds):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, PAYLOAD_BYTES)
    sender.connect((address, PORT))
    packets = bytes(PAYLOAD_BYTES * FRAMES_PER_CALL)
    pause = FRAMES_PER_CALL * FRAME_BYTES * 8 / bits_per_second
    offered, due = 0, time.monotonic()
    end = due + seconds
    while (now := time.monotonic()) < end:
        if now < due:
            time.sleep(due - now)
            continue
        due = max(due + pause, now - MAX_LAG_SECONDS)
        sender.send(packets)
        offered += FRAMES_PER_CALL * FRAME_BYTES
    print(offered)


def catch():
    """Holds the port open and reads nothing: what arrives is counted by the interface, and costs no time here."""
    catcher = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    catcher.bind(("", PORT))
    signal.pause()


if sys.argv[1] == "send":
    send(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
else:
    catch()
