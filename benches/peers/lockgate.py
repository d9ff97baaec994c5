"""Lockgate, once for each kind of port."""

from host import HOSTS
from path import Path


class Lockgate(Path):
    def start(self):
        topology = self.workspace / "topology.yaml"
        topology.write_text(self.topology())
        self.spawn(f"{self.options.lockgate} run {topology}")

    def topology(self):
        cap = f"average: {self.setup.cap} bit/s"
        shaping = f"shaping: {{ port: {{ ingress: {{ {cap} }}, egress: {{ {cap} }} }} }}" if self.setup.cap else ""
        lines = [
            "version: 1",
            "switch: { workers: 1 }",
            f"api: {{ socket: {self.workspace}/lockgate.sock }}",
            f"port_groups: {{ capped: {{ {shaping} }}, free: {{}} }}",
            "ports:",
        ]
        for (namespace, address), group in zip(HOSTS.items(), ["capped", "free"]):
            lines.append(f"  {namespace}: {{ group: {group}, {self.port(namespace, address)} }}")
        return "\n".join(lines) + "\n"


class LockgateXdp(Lockgate):
    name = "lockgate xdp"

    def port(self, namespace, _address):
        return f"netdev: {namespace[-1]}0, steering: xdp"


class LockgateTc(Lockgate):
    name = "lockgate tc"

    def port(self, namespace, _address):
        return f"netdev: {namespace[-1]}0, steering: tc"


class LockgateTap(Lockgate):
    name = "lockgate tap"
    own_interfaces = True

    def port(self, namespace, address):
        return f"tap: {{ netns: {namespace}, interface: eth0, address: {address}/24, mtu: {self.setup.mtu} }}"
