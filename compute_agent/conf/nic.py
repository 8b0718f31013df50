"""Options of group nic: reporting of network cards with SR-IOV."""

from __future__ import annotations

from oslo_config import cfg

from compute_agent.conf.files import numa_node_override

GROUP = "nic"

nic_opts = [
    cfg.StrOpt(
        "report_vfs",
        default="auto",
        choices=[
            ("auto", "where NUMA cells are reported"),
            ("always", "in the flat layout too"),
            ("never", "no providers for network cards"),
        ],
        help="""
Whether network cards with SR-IOV become providers that count their virtual functions
(SRIOV_NET_VF).
""",
    ),
    cfg.BoolOpt(
        "report_bandwidth",
        default=False,
        help="""
Report NET_BW_EGR_KILOBIT_PER_SEC and NET_BW_IGR_KILOBIT_PER_SEC of each port from the speed of its
link. Only for clouds without Neutron, whose agents report bandwidth on providers of their own.
""",
    ),
    cfg.FloatOpt(
        "bandwidth_share",
        default=0.9,
        min=0.0,
        max=1.0,
        help="""
Part of a link's speed that may be given to guests, with report_bandwidth.
""",
    ),
    cfg.ListOpt(
        "physnet_mappings",
        default=[],
        help="""
Physical network behind each interface: physnet0:enp129s0f0,physnet1:enp129s0f1. It becomes the
trait CUSTOM_PHYSNET_<NETWORK> of the port.
""",
    ),
    numa_node_override.option("""
NUMA cell of network cards for which the firmware says nothing or the wrong thing:
0000:81:00.0=1,0000:81:00.1=1.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group nic on `conf`."""
    conf.register_opts(nic_opts, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [(GROUP, list(nic_opts))]
