"""The demo's namespaces and processes.

Each process is recorded in a file with its start time, so that a later run can end what this one left, and ends
nothing else: a process number alone may have been given to somebody else meanwhile.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

NAMESPACES = ("lgdemo-a", "lgdemo-b", "lgdemo-c", "lgdemo-t")
RECORDS = Path("/run/lockgate-demo")
STOP_SECONDS = 10

# Processes that this run started, by number; others were an earlier run's.
_own = {}


class HostError(Exception):
    """The host did not do what the demo needs; the text says what."""


def output(*command, timeout=20):
    """Runs `command` to its end and returns what it printed; raises HostError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise HostError(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def inside(namespace, *command):
    """The command line that runs `command` in a namespace. `ip` replaces itself by it, so its process is the command's."""
    return ("ip", "netns", "exec", namespace, *command)


def make_namespaces():
    for namespace in NAMESPACES:
        output("ip", "netns", "add", namespace)
        output("ip", "-n", namespace, "link", "set", "lo", "up")
        # BBR, the default of some hosts, stops for 0.2 s every 10 s to measure (draft-ietf-ccwg-bbr, ProbeRTT), which a
        # window would charge to the cap. Reno is built into every kernel and allowed in every namespace.
        output(*inside(namespace, "sysctl", "-q", "-w", "net.ipv4.tcp_congestion_control=reno"))


def interfaces():
    """Names of the host's own interfaces."""
    return {path.name for path in Path("/sys/class/net").iterdir()}


def log_of(name):
    return RECORDS / f"{name}.log"


def start(name, *command):
    """Starts a process that is recorded under `name` and writes to its log."""
    RECORDS.mkdir(mode=0o755, exist_ok=True)
    with log_of(name).open("wb") as log:
        return _start(name, command, stdout=log, stderr=log)


def start_piped(name, *command):
    """Starts a process that is recorded under a name of its own; the caller reads what it prints."""
    return _start(f"{name}-{len(_own)}", command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _start(name, command, **streams):
    # Its own session: Ctrl-C reaches the demo, which then stops the others in order.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **streams)
    _own[process.pid] = process
    stat = _stat(process.pid)
    (RECORDS / f"{name}.pid").write_text(f"{process.pid} {stat[1] if stat else 0}")
    return process


def stop(name):
    """Asks a recorded process to end, and insists after a while. Returns whether it ended when asked."""
    record = RECORDS / f"{name}.pid"
    pid, started = record.read_text().split()
    pid, obliging = int(pid), True
    if _is_running(pid, started):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while _is_running(pid, started):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                obliging = False
                deadline += STOP_SECONDS
            time.sleep(0.02)
    record.unlink()
    return obliging


def clean_up():
    """Ends every recorded process, the switch first, and removes the namespaces. Returns the names of processes that
    had to be killed."""
    killed = []
    if RECORDS.is_dir():
        names = sorted((record.stem for record in RECORDS.glob("*.pid")), key=lambda name: name != "switch")
        killed = [name for name in names if not stop(name)]
        shutil.rmtree(RECORDS)
    existing = {line.split()[0] for line in output("ip", "netns", "list").splitlines() if line}
    for namespace in existing & set(NAMESPACES):
        output("ip", "netns", "del", namespace)
    return killed


def _stat(pid):
    """State and start time of a process, or None. Its name, which comes first, may hold spaces."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], fields[19]


def _is_running(pid, started):
    if pid in _own:
        return _own[pid].poll() is None
    stat = _stat(pid)
    return stat is not None and stat[0] != "Z" and stat[1] == started
