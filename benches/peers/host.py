"""Namespaces, commands and waiting, for one run of the comparison."""

import subprocess
import time

# The two containers, with their addresses; the switch sits between them in a namespace of its own.
HOSTS = {"lgb-a": "10.200.0.1", "lgb-b": "10.200.0.2"}
SWITCH = "lgb-s"
SENDER_CPU, SWITCH_CPU = 0, 1


def run(command, **options):
    """What `command` printed; raises CalledProcessError if it fails."""
    options.setdefault("check", True)
    return subprocess.run(command.split(), capture_output=True, text=True, timeout=60, **options).stdout


def inside(namespace, command, **options):
    return run(f"ip netns exec {namespace} {command}", **options)


def start_inside(namespace, command, **streams):
    """A process in a namespace; `ip` replaces itself by it."""
    return subprocess.Popen(f"ip netns exec {namespace} {command}".split(), start_new_session=True, **streams)


def stop(process):
    """Asks a process of ours to end, and insists."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(condition, seconds, what):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.05)
    raise RuntimeError(f"{what} within {seconds} s")


def make_namespaces():
    remove_namespaces()
    for namespace in [SWITCH, *HOSTS]:
        run(f"ip netns add {namespace}")
        inside(namespace, "ip link set lo up")
        # BBR, the default of some hosts, stops for 0.2 s every 10 s to measure, which would be charged to the switch.
        inside(namespace, "sysctl -q -w net.ipv4.tcp_congestion_control=reno")


def remove_namespaces():
    for namespace in [SWITCH, *HOSTS]:
        run(f"ip netns del {namespace}", check=False)


def receives(namespace):
    """Frames and bytes that the container's own interface has received."""
    read = inside(namespace, "cat /sys/class/net/eth0/statistics/rx_packets /sys/class/net/eth0/statistics/rx_bytes")
    return [int(word) for word in read.split()]


def busy_seconds():
    """Processor seconds of everything on this machine so far, idle time and time taken by others apart."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, stat.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / 100
