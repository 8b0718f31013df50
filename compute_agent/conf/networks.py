"""Options for the NUMA cells of the host that are near its networks."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg
from oslo_config import types as cfg_types

TUNNEL: Final = "neutron_tunnel"

_PHYSNETS: Final = cfg.ListOpt(
    "physnets",
    default=[],
    help="""
Physical networks whose interfaces on this host are near only some NUMA cells. The group
[neutron_physnet_<name>] of each network names these cells.
""",
)


def _numa_nodes(what: str) -> cfg.Opt:
    return cfg.ListOpt(
        "numa_nodes",
        item_type=cfg_types.Integer(min=0),
        default=[],
        help=f"""
NUMA cells that are near {what}, for example 0,1.

A guest that has NUMA nodes and uses such a network is put on one of these cells. If none of them
has room, the guest is refused. Empty: all cells are equally near.
""",
    )


def physnet_group(physnet: str) -> str:
    """Return the name of the group with the cells of one physical network."""
    return f"neutron_physnet_{physnet}"


OPTIONS: Final[dict[str, list[cfg.Opt]]] = {
    "neutron": [_PHYSNETS],
    physnet_group("<name>"): [_numa_nodes("the interface to that physical network")],
    TUNNEL: [_numa_nodes("the interfaces for tunnels")],
}


def register_numbered_groups(conf: cfg.ConfigOpts) -> None:
    """Register group neutron_physnet_<name> for every physical network."""
    for physnet in conf.neutron.physnets:
        conf.register_opt(_numa_nodes(f"the interface to {physnet}"), group=physnet_group(physnet))
