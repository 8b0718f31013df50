"""The option numa_node_override of groups gpu and nic, and the form of its value."""

from __future__ import annotations

from collections.abc import Mapping

from oslo_config import cfg
from oslo_config import types as cfg_types

NAME = "numa_node_override"
_SEPARATOR = "="  # an address is full of colons


def option(help_text: str) -> cfg.Opt:
    """Return the option: NUMA cell by PCI address."""
    return cfg.Opt(
        NAME,
        type=cfg_types.Dict(cfg_types.Integer(min=0), key_value_separator=_SEPARATOR),
        default={},
        help=help_text,
    )


def value_of(cells: Mapping[str, int | str]) -> str:
    """Return the value that gives each address its cell."""
    return ",".join(f"{address}{_SEPARATOR}{cell}" for address, cell in sorted(cells.items()))
