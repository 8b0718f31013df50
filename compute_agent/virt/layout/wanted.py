"""The result of a layout: the providers a host should have, before they meet placement's.

Providers refer to each other by stable key; the root's key is "". Uuids come later, as a provider
that placement already has keeps the uuid it has there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from compute_agent.discovery.facts import PciAddress

ROOT: Final = ""
MAX_TOTAL: Final = 2147483647


def slots(address: PciAddress, count: int) -> tuple[str, ...]:
    """Name the places for `count` mediated devices on one function: ADDRESS/0, ADDRESS/1, ..."""
    return tuple(f"{address}/{number}" for number in range(count))


class WantedRecord(Struct, frozen=True):
    """One inventory record, except for what only placement knows.

    `ratio` None: by the precedence of the options (VCPU, MEMORY_MB, DISK_GB). `keep_reserved`:
    operators and cleaning tools set `reserved` in placement, and it is left as it is there.
    """

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int | None = None
    """None = the total."""
    step_size: int = 1
    ratio: float | None = 1.0
    keep_reserved: bool = False
    reserve_when_held: bool = False
    """A one-time device: once a consumer held it, all of it stays reserved until it was cleaned."""


class WantedProvider(Struct, frozen=True):
    """One provider that the driver owns, complete but for the traits and aggregates of others."""

    key: str
    """The strongest identity the hardware gives; the uuid of a new provider derives from it."""
    name: str
    parent: str = ROOT
    inventory: Mapping[str, WantedRecord] = {}
    traits: frozenset[str] = frozenset()
    absent_traits: frozenset[str] = frozenset()
    """Traits the driver owns and computed to be false here."""
    absent_prefixes: tuple[str, ...] = ()
    """Traits that start so are the driver's, and false here unless in `traits`."""
    address: PciAddress | None = None
    units: Mapping[str, tuple[str, ...]] = {}
    """Class -> names of its units, where a guest gets certain ones: CPU numbers, PCI
    addresses of functions, `slots` for mediated devices."""
    unmanaged_units: frozenset[str] = frozenset()
    """Units that the hypervisor must not take from their driver and give back: `UNMANAGED`."""

    @property
    def is_root(self) -> bool:
        return self.key == ROOT


class UnmetOption(Struct, frozen=True):
    """An entry without its effect; `value` is what the option should be, where that is known."""

    group: str
    option: str
    reason: str
    value: str | None = None

    def __str__(self) -> str:
        return f"[{self.group}]{self.option} {self.reason}"


class HostLayout(Struct, frozen=True):
    """The root first, then its descendants, parents before children, in a fixed order."""

    providers: tuple[WantedProvider, ...]
    is_nested: bool
    provider_of: Mapping[int, int] = MappingProxyType({})
    """Cell of the machine -> cell that has its provider; empty in the flat layout."""
    warnings: tuple[str, ...] = ()
    """What was left out or adjusted, one sentence each."""
    errors: tuple[str, ...] = ()
    """Options that do not fit this machine: fatal at start; later the layout is clamped to it."""
    unmet_options: tuple[UnmetOption, ...] = ()
    """Entries of options that name nothing here, or whose devices are left out."""
    caveats: tuple[str, ...] = ()
    """What of all that an operator has to know while the agent runs: the errors, what options name
    in vain, and devices that are left out."""

    @property
    def root(self) -> WantedProvider:
        return self.providers[0]

    @property
    def children(self) -> Iterator[WantedProvider]:
        return iter(self.providers[1:])

    def provider(self, key: str) -> WantedProvider:
        """Return the provider with this key; KeyError when there is none."""
        for provider in self.providers:
            if provider.key == key:
                return provider
        raise KeyError(key)
