"""The switch under demonstration: started, asked through its command line and its metrics."""

import json
import re
import time
import urllib.error
import urllib.request
from pathlib import Path

import host
from host import HostError

READY_SECONDS = 15
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Switch:
    def __init__(self, binary, topology):
        self.binary, self.topology = binary, topology
        text = Path(topology).read_text()
        self.metrics_url = f"http://{_setting(text, 'listen')}/metrics"
        self.socket = _setting(text, "socket")
        self.process = None

    def start(self):
        self.process = host.start("switch", self.binary, "run", self.topology)
        self._wait_until_ready()

    def stop(self):
        """Returns what was wrong with its end, or None."""
        if not host.stop("switch"):
            return "the switch did not stop on SIGTERM"
        if self.process.returncode != 0:
            return f"the switch ended with {self.process.returncode}: {self._last_words()}"
        return None

    def metrics(self):
        """Samples of /metrics: (name, labels, value)."""
        with urllib.request.urlopen(self.metrics_url, timeout=5) as response:
            lines = response.read().decode().splitlines()
        matches = (SAMPLE.fullmatch(line) for line in lines if line and not line.startswith("#"))
        return [(m[1], dict(LABEL.findall(m[2] or "")), float(m[3])) for m in matches if m]

    def value(self, name, **labels):
        """Sum of the samples of `name` that have these labels."""
        return sum(
            value for found, have, value in self.metrics() if found == name and labels.items() <= have.items()
        )

    def show(self, what):
        return json.loads(host.output(self.binary, "show", what, "--json", "--socket", self.socket))

    def _wait_until_ready(self):
        deadline = time.monotonic() + READY_SECONDS
        waiting = "its metrics do not answer"
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise HostError(f"the switch ended with {self.process.returncode}: {self._last_words()}")
            try:
                ports = {labels["port"]: value for name, labels, value in self.metrics() if name == "lockgate_port_up"}
            except (urllib.error.URLError, ConnectionError):
                ports = {}
            if ports:
                down = sorted(port for port, up in ports.items() if up != 1)
                if not down:
                    return
                waiting = f"not up: {', '.join(down)}"
            time.sleep(0.05)
        raise HostError(f"the switch is not ready after {READY_SECONDS} s, {waiting}: {self._last_words()}")

    def _last_words(self):
        text = host.log_of("switch").read_text(errors="replace").strip()
        return "\n".join(text.splitlines()[-20:]) or "(it said nothing)"


def _setting(text, key):
    """A value of the demo's own topology, which stands on one line."""
    match = re.search(rf"\b{key}: ([^\s,}}]+)", text)
    if not match:
        raise HostError(f"the topology has no `{key}`")
    return match[1]
