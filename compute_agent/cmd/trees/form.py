"""The form in which a tree and its amounts are shown, and the options that choose it."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any, Final, NamedTuple


class TreeForm(NamedTuple):
    """The parts of a tree that are shown.

    :ivar full: every provider with a table of its inventories, its traits and aggregates.
    :ivar resource_class: only providers that have this class; None for all.
    :ivar only_used: only providers of which something is used.
    :ivar apart: a line for each of equal providers too, with its uuid.
    :ivar traits: the traits below each line; those of a full tree are left out by False.
    :ivar in_bytes: memory and disk in bytes, and not in GiB beside the units of their classes.
    :ivar bars: a bar of what is used beside each amount.
    :ivar tables: uuids of providers whose tables a full tree has; empty for all.
    """

    full: bool = False
    resource_class: str | None = None
    only_used: bool = False
    apart: bool = False
    traits: bool = False
    in_bytes: bool = False
    bars: bool = False
    tables: Collection[str] = ()


def given_form_options(namespace: argparse.Namespace) -> list[str]:
    """Return the names of those that were given."""
    options = {
        "--class": namespace.resource_class,
        "--used": namespace.used,
        "--providers": namespace.providers,
        "--traits": namespace.traits,
        "--bytes": namespace.in_bytes,
    }
    return [option for option, value in options.items() if value]


def form_of(namespace: argparse.Namespace, **others: Any) -> TreeForm:
    """Return the form that the options choose, with fields that have no option."""
    return TreeForm(
        resource_class=namespace.resource_class,
        only_used=namespace.used,
        apart=namespace.providers,
        in_bytes=namespace.in_bytes,
        traits=namespace.traits or bool(others.get("full")),
        **others,
    )


_UNIT_BYTES: Final = {"_KB": 2**10, "_MB": 2**20, "_GB": 2**30}
"""Bytes of one unit of a class, by the end of its name."""

_SIZES: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"))


def amount_text(
    resource_class: str, used: int, capacity: int, ratio: float = 1.0, *, in_bytes: bool = False
) -> str:
    """Return what is used of a capacity, as in `2048/8192 (2/8 GiB)`.

    :param ratio: the allocation ratio, which is shown unless it is 1.
    :param in_bytes: memory and disk in bytes alone, for scripts.
    """
    unit_bytes = _UNIT_BYTES.get(resource_class[-3:], 0)
    if in_bytes and unit_bytes:
        used, capacity = used * unit_bytes, capacity * unit_bytes
    notes = []
    largest = max(used, capacity) * unit_bytes
    size, unit = next((entry for entry in _SIZES if entry[0] <= largest), (0, ""))
    if size > unit_bytes and not in_bytes:
        notes.append(f"{_in(size, used * unit_bytes)}/{_in(size, capacity * unit_bytes)} {unit}")
    if ratio != 1:
        notes.append(f"ratio {ratio:g}")
    return f"{used}/{capacity}" + (f" ({', '.join(notes)})" if notes else "")


def _in(size: int, number: int) -> str:
    return f"{number / size:.1f}".removesuffix(".0")
