"""Options for the NUMA cells of the host that are near its networks."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg
from oslo_config import types as cfg_types

from compute_agent.programs.declared_options import options

TUNNEL: Final = "neutron_tunnel"


def _numa_nodes(what: str) -> list[cfg.Opt]:
    return options(
        f"""
numa_nodes: list ()
    NUMA cells that are near {what}, for example 0,1.

    A guest that has NUMA nodes and uses such a network is put on one of these cells. If none of
    them has room, the guest is refused. Empty: all cells are equally near.
""",
        numa_nodes={"item_type": cfg_types.Integer(min=0)},
    )


def physnet_group(physnet: str) -> str:
    """Return the name of the group with the cells of one physical network."""
    return f"neutron_physnet_{physnet}"


OPTIONS: Final[dict[str, list[cfg.Opt]]] = {
    "neutron": options("""
physnets: list ()
    Physical networks whose interfaces on this host are near only some NUMA cells. The group
    [neutron_physnet_<name>] of each network names these cells.
"""),
    physnet_group("<name>"): _numa_nodes("the interface to that physical network"),
    TUNNEL: _numa_nodes("the interfaces for tunnels"),
}


def register_numbered_groups(conf: cfg.ConfigOpts) -> None:
    """Register group neutron_physnet_<name> for every physical network."""
    for physnet in conf.neutron.physnets:
        conf.register_opts(_numa_nodes(f"the interface to {physnet}"), group=physnet_group(physnet))
