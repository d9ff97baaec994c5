"""What is measured on a path, as the receiving container sees it."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from host import HOSTS, SENDER_CPU, busy_seconds, inside, receives, run, start_inside, stop

FRAME_BYTES = 60  # 64 on the wire, with FCS
SETTLE_SECONDS = 2
FULL_FRAME_BYTES = 1514
TCP_PAYLOAD_BYTES = 1448  # with timestamps
FLOOD = Path(__file__).resolve().parents[2] / "scripts/demo.d/flood.py"


def drop_program(workspace):
    """A classifier that drops everything: this kernel may lack the drop action."""
    source, built = workspace / "drop.c", workspace / "drop.o"
    source.write_text("""
__attribute__((section("classifier"), used)) int drop_all(void *frame) { return 2; /* TC_ACT_SHOT */ }
char _license[] __attribute__((section("license"), used)) = "GPL";
""")
    run(f"clang -O2 -target bpf -c {source} -o {built}")
    return built


def small_frames(options, flows):
    """Thousands of 64-byte frames per second that reach lgb-b, where they are dropped, and processor seconds of the
    whole machine, the sender's included, for each million of them."""
    inside("lgb-b", "tc qdisc add dev eth0 clsact")
    inside("lgb-b", f"tc filter add dev eth0 ingress bpf direct-action object-file {options.drop} section classifier")
    try:
        mac = json.loads(inside("lgb-b", "ip -j link show eth0"))[0]["address"]
        before, start, busy = receives("lgb-b")[0], time.monotonic(), busy_seconds()
        inside("lgb-a", f"{options.source} eth0 {mac} {options.seconds} {flows} {FRAME_BYTES} {SENDER_CPU}")
        busy, seconds, arrived = busy_seconds() - busy, time.monotonic() - start, receives("lgb-b")[0] - before
        return arrived / seconds / 1e3, busy / max(arrived, 1) * 1e6
    finally:
        inside("lgb-b", "tc qdisc del dev eth0 clsact")


def tcp(options, streams):
    """Gbit/s of TCP payload from lgb-a to lgb-b."""
    server = start_inside("lgb-b", "iperf3 -s -1", stdout=subprocess.DEVNULL)
    time.sleep(0.3)
    try:
        client = f"iperf3 -J -c {HOSTS['lgb-b']} -t {options.seconds} -P {streams}"
        return json.loads(inside("lgb-a", client))["end"]["sum_received"]["bits_per_second"] / 1e9
    finally:
        stop(server)


def ping(_options):
    """Round-trip time on an idle switch, µs: p50 and p99."""
    text = inside("lgb-a", f"ping -n -c 400 -i 0.005 -W 1 {HOSTS['lgb-b']}", check=False)
    times = sorted(float(ms) * 1e3 for ms in re.findall(r"time=([\d.]+) ms", text))
    return times[len(times) // 2], times[len(times) * 99 // 100]


def cap_error(options, cap, direction, protocol):
    """Mean rate against the cap of port a, in per cent, after the burst is spent. Reckoned from payload, since an
    interface counts a super-frame with the headers of one frame."""
    sender, receiver = ("lgb-a", "lgb-b") if direction == "ingress" else ("lgb-b", "lgb-a")
    rate = (tcp_wire_rate if protocol == "TCP" else udp_wire_rate)(options, cap, sender, receiver)
    return 100 * (rate / cap - 1)


def tcp_wire_rate(options, _cap, sender, receiver):
    server = start_inside(receiver, "iperf3 -s -1", stdout=subprocess.DEVNULL)
    time.sleep(0.3)
    try:
        client = f"iperf3 -J -c {HOSTS[receiver]} -O {SETTLE_SECONDS} -t {options.cap_seconds}"
        goodput = json.loads(inside(sender, client))["end"]["sum_received"]["bits_per_second"]
        return goodput * FULL_FRAME_BYTES / TCP_PAYLOAD_BYTES
    finally:
        stop(server)


def udp_wire_rate(options, cap, sender, receiver):
    catcher = start_inside(receiver, f"{sys.executable} -B {FLOOD} catch")
    time.sleep(0.3)
    seconds = options.cap_seconds + SETTLE_SECONDS + 1
    command = f"{sys.executable} -B {FLOOD} send {HOSTS[receiver]} {2 * cap} {seconds}"
    load = start_inside(sender, command, stdout=subprocess.DEVNULL)
    try:
        time.sleep(SETTLE_SECONDS)
        before, start = datagrams(receiver), time.monotonic()
        time.sleep(options.cap_seconds)
        after, end = datagrams(receiver), time.monotonic()
        if load.poll() is not None:
            raise RuntimeError("the sender ended too early")
        return (after - before) * FULL_FRAME_BYTES * 8 / (end - start)
    finally:
        stop(load)
        stop(catcher)


def datagrams(namespace):
    """UDP datagrams that have arrived, also those that nobody read."""
    rows = [line.split() for line in inside(namespace, "cat /proc/net/snmp").splitlines() if line.startswith("Udp:")]
    counters = dict(zip(*rows))
    return int(counters["InDatagrams"]) + int(counters["RcvbufErrors"])
