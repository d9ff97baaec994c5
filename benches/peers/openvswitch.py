"""Open vSwitch in user space: the peer that does what Lockgate does."""

import os
import shutil

from host import SWITCH, SWITCH_CPU, inside, run, wait_for
from path import Path


class OpenVSwitch(Path):
    interface_options = ""

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
        self.configure(f"{vsctl} --no-wait set Open_vSwitch .")
        self.spawn(f"ovs-vswitchd unix:{socket} --unixctl={home}/vswitchd.ctl")
        inside(SWITCH, f"{vsctl} add-br br0 -- set bridge br0 datapath_type=netdev protocols=OpenFlow10,OpenFlow13")
        for number, near in enumerate(["a0", "b0"], 1):
            mtu = f"mtu_request={self.setup.mtu}" if self.setup.mtu != 1500 else ""
            options = f"set interface {near} ofport_request={number} {mtu} {self.interface_options}"
            inside(SWITCH, f"{vsctl} add-port br0 {near} -- {options}")
        if self.setup.cap:
            self.meter(f"{home}/br0.mgmt")

    def configure(self, command):
        pass

    def meter(self, management):
        """A policer for each direction of a: user space has no shaper for AF_XDP and packet sockets alike."""
        ofctl = "ovs-ofctl -O OpenFlow13 --timeout=10"
        kbits, burst = self.setup.cap // 1000, self.setup.cap // 1000 // 10
        for meter, port in [(1, 1), (2, 2)]:
            bands = f"meter={meter},kbps,burst,stats,bands=type=drop,rate={kbits},burst_size={burst}"
            inside(SWITCH, f"{ofctl} add-meter unix:{management} {bands}")
            inside(SWITCH, f"{ofctl} add-flow unix:{management} in_port={port},actions=meter:{meter},normal")


class OvsAfXdp(OpenVSwitch):
    name = "ovs af_xdp"
    tx_offload = False  # its TCP does not work otherwise
    interface_options = "type=afxdp options:n_rxq=1"


class OvsTso(OpenVSwitch):
    name = "ovs tso"

    def configure(self, command):
        inside(SWITCH, f"{command} other_config:userspace-tso-enable=true")
