#!/usr/bin/env python3
"""Measures Lockgate beside other switches in the same namespaces, interleaved, and prints medians.

Topology: namespace lgb-a - veth - switch's namespace lgb-s - veth - namespace lgb-b; for taps the switch makes the
interfaces in lgb-a and lgb-b itself. Figures of one run are to be compared with each other only.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOSTS = {"lgb-a": "10.200.0.1", "lgb-b": "10.200.0.2"}
SWITCH = "lgb-s"
FRAME_BYTES = 60  # 64 on the wire, with FCS
SENDER_CPU, SWITCH_CPU = 0, 1


def run(command, **options):
    options.setdefault("check", True)
    return subprocess.run(command.split(), capture_output=True, text=True, **options).stdout


def inside(namespace, command, **options):
    return run(f"ip netns exec {namespace} {command}", **options)


def wait_for(condition, seconds, what):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.05)
    raise RuntimeError(f"{what} within {seconds} s")


def pings(count=1):
    done = subprocess.run(f"ip netns exec lgb-a ping -c {count} -W 1 {HOSTS['lgb-b']}".split(), capture_output=True)
    return done.returncode == 0


class SwitchPath:
    """One way from lgb-a to lgb-b."""

    name = ""
    tx_offload = True  # whether the containers keep their checksum offload
    own_interfaces = False  # whether the switch makes the interfaces in the containers

    def __init__(self, workspace, options):
        self.workspace, self.options = workspace, options
        self.processes = []

    def __enter__(self):
        for namespace in [SWITCH, *HOSTS]:
            run(f"ip netns del {namespace}", check=False)
            run(f"ip netns add {namespace}")
            inside(namespace, "ip link set lo up")
        if not self.own_interfaces:
            for namespace, address in HOSTS.items():
                self.veth(namespace, address)
        self.start()
        wait_for(pings, 15, f"{self.name}: no ping from lgb-a to lgb-b")
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            if process.poll() is None:
                process.kill()
                process.wait()
        for namespace in [SWITCH, *HOSTS]:
            run(f"ip netns del {namespace}", check=False)

    def veth(self, namespace, address):
        near = namespace[-1] + "0"
        mtu = self.options.mtu
        inside(SWITCH, f"ip link add {near} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {namespace}")
        inside(SWITCH, f"ip link set {near} up")
        inside(namespace, f"ip addr add {address}/24 dev eth0")
        inside(namespace, "ip link set eth0 up")
        if not self.tx_offload:
            inside(namespace, "ethtool -K eth0 tx off")

    def spawn(self, command):
        log = open(self.workspace / f"{self.name}.log", "a")
        full = f"ip netns exec {SWITCH} {command}".split()
        process = subprocess.Popen(full, stdout=log, stderr=log, start_new_session=True)
        self.processes.append(process)
        return process


class Bridge(SwitchPath):
    name = "linux-bridge"

    def start(self):
        inside(SWITCH, "ip link add br0 type bridge")
        inside(SWITCH, "ip link set br0 up")
        for near in ["a0", "b0"]:
            inside(SWITCH, f"ip link set {near} master br0")


class OvsAfXdp(SwitchPath):
    name = "ovs-afxdp"
    tx_offload = False  # its TCP does not work otherwise

    def start(self):
        home = self.workspace / "ovs"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        database, socket = home / "conf.db", home / "db.sock"
        run(f"ovsdb-tool create {database} /usr/share/openvswitch/vswitch.ovsschema")
        os.environ["OVS_RUNDIR"] = str(home)
        self.spawn(f"ovsdb-server {database} --remote=punix:{socket} --unixctl={home}/db.ctl")
        wait_for(socket.exists, 5, "ovsdb-server did not start")
        vsctl = f"ovs-vsctl --db=unix:{socket} --timeout=20"
        inside(SWITCH, f"{vsctl} --no-wait init")
        inside(SWITCH, f"{vsctl} --no-wait set Open_vSwitch . other_config:pmd-cpu-mask={1 << SWITCH_CPU:#x}")
        self.spawn(f"ovs-vswitchd unix:{socket} --unixctl={home}/vswitchd.ctl")
        inside(SWITCH, f"{vsctl} add-br br0 -- set bridge br0 datapath_type=netdev")
        for near in ["a0", "b0"]:
            inside(SWITCH, f"{vsctl} add-port br0 {near} -- set interface {near} type=afxdp options:n_rxq=1")


class Lockgate(SwitchPath):
    def start(self):
        topology = self.workspace / f"{self.name}.yaml"
        topology.write_text(self.topology())
        self.spawn(f"{self.options.lockgate} run {topology}")

    def topology(self):
        return "\n".join([
            "version: 1",
            "switch: { workers: 1 }",
            f"api: {{ socket: {self.workspace}/lockgate.sock }}",
            "port_groups: { all: {} }",
            "ports:",
            *(f"  {namespace}: {{ group: all, {self.port(namespace, address)} }}" for namespace, address in HOSTS.items()),
            "",
        ])


class LockgateXdp(Lockgate):
    name = "lockgate-xdp"

    def port(self, namespace, _address):
        return f"netdev: {namespace[-1]}0"


class LockgateTap(Lockgate):
    name = "lockgate-tap"
    own_interfaces = True

    def port(self, namespace, address):
        return f"tap: {{ netns: {namespace}, interface: eth0, address: {address}/24, mtu: {self.options.mtu} }}"


PATHS = [Bridge, OvsAfXdp, LockgateXdp, LockgateTap]


def drop_program(workspace):
    """A classifier that drops everything: this kernel may lack the drop action."""
    source, built = workspace / "drop.c", workspace / "drop.o"
    source.write_text("""
__attribute__((section("classifier"), used)) int drop_all(void *frame) { return 2; /* TC_ACT_SHOT */ }
char _license[] __attribute__((section("license"), used)) = "GPL";
""")
    run(f"clang -O2 -target bpf -c {source} -o {built}")
    return built


def statistic(namespace, name):
    return int(inside(namespace, f"cat /sys/class/net/eth0/statistics/{name}"))


def frames(options, flows):
    """64-byte frames per second that reach lgb-b's interface, where they are dropped."""
    inside("lgb-b", "tc qdisc add dev eth0 clsact")
    inside("lgb-b", f"tc filter add dev eth0 ingress bpf direct-action object-file {options.drop} section classifier")
    try:
        mac = json.loads(inside("lgb-b", "ip -j link show eth0"))[0]["address"]
        before, start = statistic("lgb-b", "rx_packets"), time.monotonic()
        inside("lgb-a", f"{options.source} eth0 {mac} {options.seconds} {flows} {FRAME_BYTES} {SENDER_CPU}")
        return (statistic("lgb-b", "rx_packets") - before) / (time.monotonic() - start)
    finally:
        inside("lgb-b", "tc qdisc del dev eth0 clsact")


def tcp(options, streams):
    """Bits per second of TCP payload from lgb-a to lgb-b."""
    server = subprocess.Popen("ip netns exec lgb-b iperf3 -s -1".split(), stdout=subprocess.DEVNULL)
    time.sleep(0.3)
    try:
        client = f"iperf3 -J -c {HOSTS['lgb-b']} -t {options.seconds} -P {streams}"
        return json.loads(inside("lgb-a", client))["end"]["sum_received"]["bits_per_second"]
    finally:
        server.terminate()
        server.wait()


MEASURES = {
    "64 B 1 flow, kframes/s": lambda options: frames(options, 1) / 1e3,
    "64 B 1000 flows, kframes/s": lambda options: frames(options, 1000) / 1e3,
    "TCP 1 stream, Gbit/s": lambda options: tcp(options, 1) / 1e9,
    "TCP 4 streams, Gbit/s": lambda options: tcp(options, 4) / 1e9,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="length of each measurement")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--paths", nargs="*", default=[path.name for path in PATHS])
    parser.add_argument("--lockgate", default="target/release/lockgate", type=os.path.abspath)
    parser.add_argument("--source", default="target/release/frame-source", type=os.path.abspath)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(prefix="lgb-") as workspace:
        options.drop = drop_program(Path(workspace))
        for round_ in range(options.rounds):
            for path in [path for path in PATHS if path.name in options.paths]:
                with path(Path(workspace), options):
                    for measure, take in MEASURES.items():
                        value = take(options)
                        results.setdefault(measure, {}).setdefault(path.name, []).append(value)
                        print(f"round {round_ + 1}  {path.name:14}  {measure:28} {value:9.2f}", file=sys.stderr, flush=True)
    print(f"{'median (min-max)':28}", *(f"{name:>24}" for name in options.paths))
    for measure, by_path in results.items():
        cells = (f"{statistics.median(v):8.2f} ({min(v):.2f}-{max(v):.2f})" for v in by_path.values())
        print(f"{measure:28}", *(f"{cell:>24}" for cell in cells))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
