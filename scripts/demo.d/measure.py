"""Measuring with ping, iperf3 and flood.py.

Capped rates are reckoned from the payload that the receiving container got: its interface counts a super-frame with the
headers of one frame."""

import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from host import HostError, inside, start_piped

MTU_BYTES = 1500
ICMP_HEADER_BYTES = 8
IP_HEADER_BYTES = {4: 20, 6: 40}
UDP_PAYLOAD_BYTES = MTU_BYTES - 20 - 8
# With the timestamps that Linux puts into every segment.
TCP_PAYLOAD_BYTES = MTU_BYTES - 20 - 32
FRAME_BYTES = MTU_BYTES + 14
FLOOD = Path(__file__).with_name("flood.py")
# After the start of a transfer: the burst is spent and TCP has found its rate.
SETTLE_SECONDS = 1
# After this long, less than this much says that nothing comes through.
START_SECONDS = 5.0
LOAD_BYTES = 100_000


@dataclass
class Ping:
    """Echo requests, replies and their round-trip times."""

    sent: int
    rtts_ms: list = field(default_factory=list)

    @property
    def received(self):
        return len(self.rtts_ms)

    def percentile_ms(self, percent):
        ranked = sorted(self.rtts_ms)
        return ranked[min(len(ranked) - 1, len(ranked) * percent // 100)] if ranked else None


@dataclass
class Rate:
    """What came through during a window, in bits per second of Ethernet frames without their checksum; and what the
    sender says of the whole transfer."""

    wire: float
    seconds: float
    offered: float | None = None
    retransmits: int | None = None


def start_ping(namespace, address, count, interval_s, *, full_size_family=None):
    """Starts ping; with `full_size_family` 4 or 6, with packets of the full MTU that must not be fragmented."""
    size = ()
    if full_size_family:
        size = ("-M", "do", "-s", str(MTU_BYTES - IP_HEADER_BYTES[full_size_family] - ICMP_HEADER_BYTES))
    command = ("ping", "-n", "-c", str(count), "-i", str(interval_s), "-W", "1", *size, address)
    return start_piped("ping", *inside(namespace, *command)), count


def finish_ping(started):
    process, count = started
    text, _ = process.communicate(timeout=30)
    return Ping(count, [float(rtt) for rtt in re.findall(r"time=([\d.]+) ms", text)])


def received_bytes(pid, interface):
    """Bytes an interface has received, link headers included, in the namespace of process `pid`."""
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == interface:
            return int(counters.split()[0])
    raise HostError(f"no interface {interface} in the namespace of process {pid}")


def checksum_errors(pid):
    """Packets that the stack in the namespace of process `pid` refused for their checksum."""
    total = 0
    lines = Path(f"/proc/{pid}/net/snmp").read_text().splitlines()
    for names, values in zip(lines[::2], lines[1::2]):
        total += sum(int(value) for name, value in zip(names.split(), values.split()) if name == "InCsumErrors")
    for line in Path(f"/proc/{pid}/net/snmp6").read_text().splitlines():
        name, value = line.split()
        if name.endswith("InCsumErrors"):
            total += int(value)
    return total


class Iperf:
    """One iperf3 client, sending to the server in another namespace."""

    def __init__(self, namespace, address, seconds, *, udp=False, settle_s=0):
        """Reports what it sent in `seconds` after `settle_s`."""
        protocol = ("-u", "-b", "0", "-l", str(UDP_PAYLOAD_BYTES)) if udp else ()
        timing = ("-O", str(settle_s), "-t", str(seconds), "--connect-timeout", "3000")
        command = ("iperf3", "-J", "-c", address, *timing, *protocol)
        self.seconds = seconds + settle_s
        self.process = start_piped("sender", *inside(namespace, *command))

    def report(self):
        """The end of iperf3's own report, once it has ended."""
        text = _finish(self.process, self.seconds, "iperf3")
        try:
            report = json.loads(text)
        except json.JSONDecodeError:
            raise HostError(f"iperf3 said: {text.strip()}") from None
        if "error" in report:
            raise HostError(f"iperf3: {report['error']}")
        return report["end"]

    def goodput(self):
        """What reached the receiving program, in bits per second, by its own account."""
        return self.report()["sum_received"]["bits_per_second"]



class Flood:
    """UDP at a rate, whether it arrives or not."""

    def __init__(self, namespace, address, seconds, bits_per_second):
        self.seconds = seconds
        command = (sys.executable, "-B", FLOOD, "send", address, str(bits_per_second), str(seconds))
        self.process = start_piped("sender", *inside(namespace, *command))

    def offered(self):
        """Bits per second that it sent."""
        return int(_finish(self.process, self.seconds, "the UDP sender")) * 8 / self.seconds


def tcp_wire_rate(namespace, address, window_s):
    """The rate of a TCP stream during `window_s`, after it has settled."""
    end = Iperf(namespace, address, window_s, settle_s=SETTLE_SECONDS).report()
    received = end["sum_received"]
    return Rate(
        wire=received["bits_per_second"] * FRAME_BYTES / TCP_PAYLOAD_BYTES,
        seconds=received["seconds"],
        retransmits=end["sum_sent"]["retransmits"],
    )


def udp_wire_rate(namespace, address, window_s, bits_per_second, receiver_pid, interface):
    """The rate at which datagrams arrive during `window_s` of a flood, after it has settled."""
    flood = Flood(namespace, address, window_s + SETTLE_SECONDS + 1, bits_per_second)
    wait_until_settled(flood, receiver_pid, interface)
    since, first = time.monotonic(), datagrams(receiver_pid)
    time.sleep(window_s)
    until, last = time.monotonic(), datagrams(receiver_pid)
    if flood.process.poll() is not None:
        raise HostError("the sender ended before the window did")
    seconds = until - since
    return Rate(wire=(last - first) * FRAME_BYTES * 8 / seconds, seconds=seconds, offered=flood.offered())


def datagrams(pid):
    """UDP datagrams that arrived in the namespace of process `pid`, also those that nobody read."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line.startswith("Udp:")]
    counters = dict(zip(*rows))
    return int(counters["InDatagrams"]) + int(counters["RcvbufErrors"])


def wait_until_settled(transfer, receiver_pid, interface):
    """Waits until load arrives, after the few frames of iperf3's own connection, and has found its rate."""
    before = received_bytes(receiver_pid, interface)
    deadline = time.monotonic() + START_SECONDS
    while received_bytes(receiver_pid, interface) - before < LOAD_BYTES:
        if time.monotonic() > deadline:
            transfer.process.kill()
            raise HostError(f"nothing comes through to {interface}")
        time.sleep(0.005)
    time.sleep(SETTLE_SECONDS)


def _finish(process, seconds, what):
    try:
        return process.communicate(timeout=seconds + 15)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise HostError(f"{what} did not end") from None
