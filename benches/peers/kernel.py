"""The kernel's own switch and shapers."""

from host import SWITCH, inside
from path import Path

# What tc's manual pages recommend: room for a few super-frames, and a queue of about 20 ms.
BURST_SECONDS, QUEUE_SECONDS = 0.004, 0.02
LEAST_BURST_BYTES = 65536


class Bridge(Path):
    name = "linux-bridge"
    can_cap = False

    def start(self):
        inside(SWITCH, "ip link add br0 type bridge")
        inside(SWITCH, "ip link set br0 up")
        for near in ["a0", "b0"]:
            inside(SWITCH, f"ip link set {near} master br0")
        if self.setup.cap:
            self.shape("a0")
            self.shape_ingress()

    def burst_bytes(self):
        return max(int(self.setup.cap / 8 * BURST_SECONDS), LEAST_BURST_BYTES)

    def tbf(self, device):
        limit = self.burst_bytes() + int(self.setup.cap / 8 * QUEUE_SECONDS)
        inside(SWITCH, f"tc qdisc add dev {device} root tbf rate {self.setup.cap}bit burst {self.burst_bytes()} limit {limit}")

    def shape_ingress(self):
        """The kernel shapes what leaves a device only, so what comes from the container goes through a detour."""
        inside(SWITCH, "ip link add ifb-a type ifb")
        inside(SWITCH, "ip link set ifb-a up")
        self.shape("ifb-a")
        inside(SWITCH, "tc qdisc add dev a0 clsact")
        inside(SWITCH, "tc filter add dev a0 ingress protocol all u32 match u32 0 0 action mirred egress redirect dev ifb-a")


class BridgeTbf(Bridge):
    name = "bridge + tbf"
    can_cap = True

    def shape(self, device):
        self.tbf(device)


class BridgeHtb(Bridge):
    name = "bridge + htb"
    can_cap = True

    def shape(self, device):
        cap = self.setup.cap
        inside(SWITCH, f"tc qdisc add dev {device} root handle 1: htb default 1")
        inside(SWITCH, f"tc class add dev {device} parent 1: classid 1:1 htb rate {cap}bit burst {self.burst_bytes()}")
        frames = max(int(cap / 8 * QUEUE_SECONDS / 1514), 10)
        inside(SWITCH, f"tc qdisc add dev {device} parent 1:1 handle 10: pfifo limit {frames}")
