"""Options of group nic: reporting of network cards with SR-IOV."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

from compute_agent.conf.files import numa_node_override

OPTIONS: Final[dict[str, list[cfg.Opt]]] = {
    "nic": [
        cfg.StrOpt(
            "report_vfs",
            default="auto",
            choices=[
                ("auto", "if NUMA cells are reported"),
                ("always", "in the flat layout too"),
                ("never", "virtual functions are not counted"),
            ],
            help="""
Whether network cards with SR-IOV become providers that count their virtual functions
(SRIOV_NET_VF). If virtual functions are not counted, network cards become providers only with
report_bandwidth.
""",
        ),
        cfg.BoolOpt(
            "report_bandwidth",
            default=False,
            help="""
Report NET_BW_EGR_KILOBIT_PER_SEC and NET_BW_IGR_KILOBIT_PER_SEC of each port, from the speed of
its link. Use it only in clouds without Neutron: the agents of Neutron report bandwidth on
providers of their own.
""",
        ),
        cfg.FloatOpt(
            "bandwidth_share",
            default=0.9,
            min=0.0,
            max=1.0,
            help="""
Share of the speed of a link that guests may get, from 0 to 1. Used with report_bandwidth.
""",
        ),
        cfg.ListOpt(
            "physnet_mappings",
            default=[],
            help="""
Physical network of each interface, for example physnet0:enp129s0f0,physnet1:enp129s0f1. It is
reported as the trait CUSTOM_PHYSNET_<NETWORK> of the port.
""",
        ),
        numa_node_override.option("""
NUMA cell of network cards for which the firmware reports no cell or a wrong cell, for example
0000:81:00.0=1,0000:81:00.1=1.
"""),
    ]
}
