"""The demonstration that scripts/demo starts: order, expectations, cleaning up."""

import argparse
import os
import signal
import sys
import time

import host
import measure
from host import NAMESPACES, HostError, inside
from measure import FLOOD, Iperf
from report import Report, mbit, ms, percent
from switch import Switch

# Who is in which group, as configs/demo.yaml says, with the last part of the address.
MEMBERS = {"a": ("web", 1), "b": ("web", 2), "c": ("db", 3), "t": ("db", 4)}
# Name, rate, third part of the IPv4 address, interface and ports of each capped link between a and b.
CAPS = [
    ("50 Mbit/s", 50_000_000, 50, "cap50"),
    ("200 Mbit/s", 200_000_000, 200, "cap200"),
    ("1 Gbit/s", 1_000_000_000, 100, "cap1000"),
]
DIRECTIONS = ("ingress (port → switch)", "egress (switch → port)")

# What the switch must reach: mean rate against the cap, lowest and highest.
MEAN = (0.99, 1.01)
# On a machine that does other things too, one bad second proves nothing.
TRIES = 2
# A sender that offers less than this does not overload the cap, so the row would prove nothing.
OVERLOAD = 1.1
# `max_delay` is 20 ms by default; what comes on top is the host's.
PING_P50_MS = 25.0
METRICS_ERROR = 0.01

UNCAPPED_SECONDS = 3
# What UDP offers is always too much, so a short window shows the shaper; TCP's own swings need a long one.
WINDOW_SECONDS = {"TCP": 10, "UDP": 4}
PING_LOAD_SECONDS = 6


def namespace(member):
    return f"lgdemo-{member}"


def address(member, family=4):
    last = MEMBERS[member][1]
    return f"10.77.0.{last}" if family == 4 else f"fd77::{last}"


def demonstrate(report, switch):
    started = time.monotonic()
    host.make_namespaces()
    own = host.interfaces()
    servers = {member: start_server(member) for member in MEMBERS}
    switch.start()
    print(f"lockgate runs {switch.topology}; metrics at {switch.metrics_url}")
    show_reachability(report)
    show_full_size(report)
    show_uncapped(report, servers)
    show_capped(report, servers)
    show_ping_through_a_full_cap(report, servers)
    show_drops(report, switch)
    show_books(report, switch, servers)
    return own, started


def start_server(member):
    """Starts what receives in a namespace; the number of a process in it."""
    host.start(f"catch-{member}", *inside(namespace(member), sys.executable, "-B", FLOOD, "catch"))
    return host.start(f"iperf3-{member}", *inside(namespace(member), "iperf3", "-s")).pid


def show_reachability(report):
    report.section("Reachability by ping (one IP subnet; only port groups separate)")
    pairs = [(source, target) for source in MEMBERS for target in MEMBERS if source != target]
    started = {
        pair: measure.start_ping(namespace(pair[0]), address(pair[1]), count=4, interval_s=0.2) for pair in pairs
    }
    for pair, process in started.items():
        source, target = pair
        ping = measure.finish_ping(process)
        groups = MEMBERS[source][0], MEMBERS[target][0]
        wanted, reached = groups[0] == groups[1], ping.received > 0
        fault = None if reached == wanted else f"ping {source} → {target} {'does not' if wanted else 'must not'} pass"
        outcome = f"reached, {ms(ping.percentile_ms(50))}" if reached else "not reached"
        report.row(
            f"{source} → {target}", f"{groups[0]} → {groups[1]}", outcome,
            fault=fault, source=source, target=target, sent=ping.sent, received=ping.received,
        )  # fmt: skip


def show_full_size(report):
    report.section("Packets of the full MTU, not to be fragmented")
    for source, target, family in [("a", "b", 4), ("a", "b", 6), ("t", "c", 4), ("c", "t", 6)]:
        ping = measure.finish_ping(
            measure.start_ping(namespace(source), address(target, family), 5, 0.2, full_size_family=family)
        )
        fault = None if ping.received >= ping.sent - 1 else f"full-size IPv{family} ping {source} → {target} is lost"
        report.row(
            f"{source} → {target}", f"IPv{family}", f"{ping.received} of {ping.sent}", "", ms(ping.percentile_ms(50)),
            fault=fault, source=source, target=target, family=family, sent=ping.sent, received=ping.received,
        )  # fmt: skip


def show_uncapped(report, servers):
    report.section(f"Without a cap (goodput over {UNCAPPED_SECONDS} s; offloads as the containers have them)")
    runs = [
        ("a", "b", "TCP", 4, "veth → veth, tc"),
        ("a", "b", "UDP", 4, "veth → veth, tc"),
        ("t", "c", "TCP", 4, "tap → veth, xdp"),
        ("t", "c", "UDP", 4, "tap → veth, xdp"),
        ("c", "t", "TCP", 6, "veth, xdp → tap"),
    ]
    for source, target, protocol, family, kinds in runs:
        before = measure.checksum_errors(servers[target])
        client = Iperf(namespace(source), address(target, family), UNCAPPED_SECONDS, udp=protocol == "UDP")
        rate = client.goodput()
        errors = measure.checksum_errors(servers[target]) - before
        fault = None
        if rate < 1e6 or errors:
            fault = f"{protocol} {kinds}: {mbit(rate)}, {errors} checksum errors"
        report.row(
            f"{source} → {target}", kinds, f"{protocol} over IPv{family}", "", mbit(rate), f"{errors} checksum errors",
            fault=fault, source=source, target=target, protocol=protocol, family=family,
            goodput_bits_per_second=rate, checksum_errors=errors,
        )  # fmt: skip


def show_capped(report, servers):
    windows = ", ".join(f"{protocol} for {seconds} s" for protocol, seconds in WINDOW_SECONDS.items())
    report.section(f"Held to a cap (Ethernet bytes of what the receiving container got, {windows}, against the cap)")
    for cap_name, cap, subnet, interface in CAPS:
        for direction in DIRECTIONS:
            source, target = ("a", "b") if direction.startswith("ingress") else ("b", "a")
            source, target_address = namespace(source), f"10.77.{subnet}.{MEMBERS[target][1]}"
            for protocol, window_s in WINDOW_SECONDS.items():
                for attempt in range(1, TRIES + 1):
                    if protocol == "UDP":
                        rate = measure.udp_wire_rate(
                            source, target_address, window_s, 2 * cap, servers[target], interface
                        )
                    else:
                        rate = measure.tcp_wire_rate(source, target_address, window_s)
                    fault = judge_cap(cap_name, cap, direction, protocol, rate)
                    if not fault:
                        break
                report_cap(report, cap_name, cap, direction, protocol, rate, attempt, fault)


def judge_cap(cap_name, cap, direction, protocol, rate):
    if protocol == "UDP" and rate.offered < OVERLOAD * cap:
        return f"UDP at {cap_name}: the sender offered only {mbit(rate.offered)}, too little to judge the cap"
    lowest, highest = MEAN
    if not lowest <= rate.wire / cap <= highest:
        return f"{protocol} {direction} at {cap_name}: {percent(rate.wire / cap - 1)}"
    return None


def report_cap(report, cap_name, cap, direction, protocol, rate, attempt, fault):
    error = rate.wire / cap - 1
    note = f"offered {mbit(rate.offered)}" if protocol == "UDP" else f"{rate.retransmits} retransmits"
    if attempt > 1:
        note += f", try {attempt}"
    report.row(
        cap_name, direction, protocol, percent(error), mbit(rate.wire).rjust(15), note,
        fault=fault, cap_bits_per_second=cap, direction=direction.split()[0], protocol=protocol, error=error,
        wire_bits_per_second=rate.wire, offered_bits_per_second=rate.offered, window_seconds=rate.seconds,
        retransmits=rate.retransmits, attempt=attempt,
    )  # fmt: skip


def show_ping_through_a_full_cap(report, servers):
    cap_name, _, subnet, interface = CAPS[0]
    report.section(f"Ping through the {cap_name} cap while TCP fills it")
    for direction in DIRECTIONS:
        source, target = ("a", "b") if direction.startswith("ingress") else ("b", "a")
        source, target_address = namespace(source), f"10.77.{subnet}.{MEMBERS[target][1]}"
        load = Iperf(source, target_address, PING_LOAD_SECONDS)
        measure.wait_until_settled(load, servers[target], interface)
        ping = measure.finish_ping(measure.start_ping(source, target_address, count=80, interval_s=0.05))
        load.report()
        judge_ping(report, cap_name, direction, ping)


def judge_ping(report, cap_name, direction, ping):
    p50, p99 = ping.percentile_ms(50), ping.percentile_ms(99)
    fault = None
    if p50 is None or p50 > PING_P50_MS:
        fault = f"ping through the saturated {cap_name} {direction}: median {ms(p50)}"
    report.row(
        cap_name, direction, f"{ping.received} of {ping.sent}", "", f"p50 {ms(p50)}, p99 {ms(p99)}",
        fault=fault, direction=direction.split()[0], ping_p50_ms=p50, ping_p99_ms=p99,
        sent=ping.sent, received=ping.received,
    )  # fmt: skip


def show_drops(report, switch):
    report.section("Drops by reason")
    arrows = {direction.split()[0]: direction for direction in DIRECTIONS}
    for drop in switch.show("drops"):
        report.row(f"port {drop['port']}", arrows[drop["direction"]], drop["reason"], "", f"{drop['frames']:,}", **drop)
    # What the kernel dropped in front of the switch, because it was not fetched in time.
    for name, labels, frames in switch.metrics():
        if name == "lockgate_xsk_rx_ring_full_total" and frames:
            report.row(f"port {labels['port']}", "before the switch", "rx_ring_full", "", f"{frames:,.0f}",
                       port=labels["port"], reason="rx_ring_full", frames=frames)  # fmt: skip


def show_books(report, switch, servers):
    report.section("Books")
    errors = {member: measure.checksum_errors(pid) for member, pid in servers.items()}
    total = sum(errors.values())
    report.row(
        "checksum errors", "all receivers", total,
        fault=f"checksum errors: {errors}" if total else None, checksum_errors=errors,
    )  # fmt: skip
    unaccounted = switch.value("lockgate_accounting_error_frames")
    report.row(
        "frames unaccounted for", "whole switch", f"{unaccounted:.0f}",
        fault=f"{unaccounted:.0f} frames are unaccounted for" if unaccounted else None, unaccounted_frames=unaccounted,
    )  # fmt: skip
    # Of ports by XDP: the interfaces of others count a super-frame with the headers of one frame.
    for port, member, interface in [("c", "c", "eth0"), ("b1000", "b", "cap1000"), ("a1000", "a", "cap1000")]:
        own = measure.received_bytes(servers[member], interface)
        metric = switch.value("lockgate_port_bytes_total", port=port, direction="egress")
        error = metric / own - 1 if own else 1
        report.row(
            "metrics agree", f"{interface} of {member}", percent(error), "", f"{metric:,.0f} of {own:,} bytes",
            fault=f"metrics of port {port} and {interface} of {member} differ by {percent(error)}"
            if abs(error) > METRICS_ERROR else None,
            port=port, metric_bytes=metric, interface_bytes=own,
        )  # fmt: skip


def take_down(report, switch, own_interfaces):
    report.section("After the end")
    fault = switch.stop()
    left = sorted(host.interfaces() - own_interfaces)
    report.row("switch", "stopped by SIGTERM", "failed" if fault else "cleanly", fault=fault)
    report.row(
        "interfaces left on the host", "", len(left),
        fault=f"left on the host: {', '.join(left)}" if left else None, interfaces_left=left,
    )  # fmt: skip


def say_what_is_kept(switch):
    print(f"""
Kept running: the switch and the namespaces {', '.join(NAMESPACES)}.
  sudo ip netns exec lgdemo-a ping {address('b')}
  sudo {switch.binary} show ports --socket {switch.socket}
  curl {switch.metrics_url}
To end it all: sudo scripts/demo --stop""")


def run(arguments):
    report = Report()
    switch = Switch(arguments.switch, arguments.topology)
    keep = False
    try:
        host.clean_up()
        own_interfaces, started = demonstrate(report, switch)
        keep = arguments.keep
        if keep:
            say_what_is_kept(switch)
        else:
            take_down(report, switch, own_interfaces)
        print(f"\nmeasured in {time.monotonic() - started:.0f} s")
    except (HostError, OSError) as error:
        report.faults.append(str(error))
    except KeyboardInterrupt:
        report.faults.append("interrupted")
    finally:
        if not keep:
            # A second Ctrl-C must not leave half of it behind.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            host.clean_up()
    if arguments.json:
        report.write(arguments.json)
    return report.verdict()


def interrupt(_number, _frame):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(prog="scripts/demo")
    parser.add_argument("--switch", required=True)
    parser.add_argument("--topology", required=True)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--stop", action="store_true")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    # Programs are asked for what they measured in one language, and ping must not round.
    os.environ["LC_ALL"] = "C"
    if arguments.stop:
        host.clean_up()
        return 0
    return run(arguments)


sys.exit(main())
