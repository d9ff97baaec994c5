"""Measures Lockgate beside other switches in the same namespaces, interleaved, and prints medians.

Topology: namespace lgb-a - veth - switch's namespace lgb-s - veth - namespace lgb-b; for taps the switch makes the
interfaces in lgb-a and lgb-b itself. Figures of one run are to be compared with each other only.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import measure
from kernel import Bridge, BridgeHtb, BridgeTbf
from lockgate import LockgateTap, LockgateTc, LockgateXdp
from openvswitch import OvsAfXdp, OvsTso
from path import Setup
from table import Results

PATHS = [Bridge, BridgeTbf, BridgeHtb, OvsAfXdp, OvsTso, LockgateXdp, LockgateTc, LockgateTap]
# A shaper with nothing to do is the same bridge.
ONLY_CAPPED = (BridgeTbf, BridgeHtb)
CAPS = {"100 Mbit/s": 100_000_000, "1 Gbit/s": 1_000_000_000}


def plan():
    """What is measured, by what the path is set up for: (name of the figures, measure)."""
    def frames(flows):
        name = f"64 B, {flows} flow{'s' if flows > 1 else ''}"
        return (f"{name}, kframes/s", f"{name}, CPU s/M"), functools.partial(measure.small_frames, flows=flows)

    def tcp(streams, mtu):
        return (f"TCP {streams}, MTU {mtu}, Gbit/s",), functools.partial(measure.tcp, streams=streams)

    yield Setup(), [
        frames(1), frames(1000), tcp(1, 1500), tcp(4, 1500),
        (("ping p50, µs", "ping p99, µs"), measure.ping),
    ]  # fmt: skip
    yield Setup(mtu=9000), [tcp(1, 9000), tcp(4, 9000)]
    for name, cap in CAPS.items():
        yield Setup(cap=cap), [
            (
                (f"{name} {direction} {protocol}, error %",),
                functools.partial(measure.cap_error, cap=cap, direction=direction, protocol=protocol),
            )
            for direction in ("ingress", "egress")
            for protocol in ("TCP", "UDP")
        ]


def measures(path, setup):
    return path.can_cap if setup.cap else path not in ONLY_CAPPED


def measure_path(path, setup, steps, workspace, options):
    """(figure, value) pairs; None where it could not be measured, and why on standard error."""
    try:
        with path(workspace, options, setup):
            for names, take in steps:
                try:
                    values = take(options)
                except (subprocess.SubprocessError, RuntimeError, IndexError) as error:
                    print(f"{path.name}: {names[0]}: {error}", file=sys.stderr)
                    values = None
                if not isinstance(values, tuple):
                    values = (values,) * len(names)
                yield from zip(names, values)
    except (subprocess.SubprocessError, RuntimeError) as error:
        print(f"{path.name}: cannot be set up with {setup}: {error}", file=sys.stderr)
        for names, _ in steps:
            yield from ((name, None) for name in names)


def main():
    parser = argparse.ArgumentParser(prog="benches/peers", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="length of each measurement")
    parser.add_argument("--cap-seconds", type=int, default=5, help="length of each measurement of a cap")
    parser.add_argument("--paths", nargs="*", default=[path.name for path in PATHS], metavar="PATH",
                        help=f"of: {', '.join(path.name for path in PATHS)}")  # fmt: skip
    parser.add_argument("--only", default="", metavar="TEXT", help="only figures whose name contains this")
    parser.add_argument("--lockgate", default="target/release/lockgate", type=os.path.abspath)
    parser.add_argument("--source", default="target/release/frame-source", type=os.path.abspath)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="put the table between the marks of a document")
    options = parser.parse_args()
    paths = [path for path in PATHS if path.name in options.paths]
    results = Results([path.name for path in paths])
    with tempfile.TemporaryDirectory(prefix="lgb-") as workspace:
        options.drop = measure.drop_program(Path(workspace))
        for round_ in range(1, options.rounds + 1):
            for setup, steps in plan():
                steps = [(names, take) for names, take in steps if any(options.only in name for name in names)]
                for path in paths if steps else []:
                    if not measures(path, setup):
                        continue
                    for name, value in measure_path(path, setup, steps, Path(workspace), options):
                        results.add(name, path.name, value)
                        shown = "-" if value is None else f"{value:9.2f}"
                        print(f"round {round_}  {path.name:14}  {name:32} {shown}", file=sys.stderr, flush=True)
    print(results.markdown())
    if options.json:
        options.json.write_text(json.dumps(results.values, indent=2) + "\n")
    if options.write:
        results.write_into(options.write, f"python3 benches/peers {' '.join(sys.argv[1:])}")


if __name__ == "__main__":
    main()
