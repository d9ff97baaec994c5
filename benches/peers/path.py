"""One way from one container to the other, through some switch."""

import subprocess
from dataclasses import dataclass

from host import HOSTS, SWITCH, inside, make_namespaces, remove_namespaces, start_inside, stop, wait_for


@dataclass(frozen=True)
class Setup:
    """What a path is set up for."""

    mtu: int = 1500
    cap: int | None = None  # bits per second, of port a in both directions


class Path:
    """Set up when entered, gone when left."""

    name = ""
    can_cap = True
    tx_offload = True  # whether the containers keep their checksum offload
    own_interfaces = False  # whether the switch makes the interfaces in the containers

    def __init__(self, workspace, options, setup):
        self.workspace, self.options, self.setup = workspace, options, setup
        self.processes = []

    def __enter__(self):
        make_namespaces()
        try:
            if not self.own_interfaces:
                for namespace, address in HOSTS.items():
                    self.veth(namespace, address)
            self.start()
            wait_for(self.pings, 15, f"{self.name}: no ping from lgb-a to lgb-b")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            stop(process)
        remove_namespaces()

    def start(self):
        """Sets the switch up between the two near ends of the veths, or makes the containers' interfaces itself."""
        raise NotImplementedError

    def veth(self, namespace, address):
        near, mtu = namespace[-1] + "0", self.setup.mtu
        inside(SWITCH, f"ip link add {near} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {namespace}")
        inside(SWITCH, f"ip link set {near} up")
        inside(namespace, f"ip addr add {address}/24 dev eth0")
        inside(namespace, "ip link set eth0 up")
        if not self.tx_offload:
            inside(namespace, "ethtool -K eth0 tx off")

    def spawn(self, command):
        with open(self.workspace / f"{self.name}.log", "a") as log:
            process = start_inside(SWITCH, command, stdout=log, stderr=log)
        self.processes.append(process)

    def pings(self):
        full = self.setup.mtu - 28
        command = f"ip netns exec lgb-a ping -c 1 -W 1 -M do -s {full} {HOSTS['lgb-b']}"
        return subprocess.run(command.split(), capture_output=True).returncode == 0
