"""Sums of what a consumer holds before and after a reshape, compared class by class.

A unit stays a unit of its class, with two exceptions:

    VCPU and PCPU      change into each other one for one: a guest has CPUs of its own or not
    classes            change their names: where one goes from a provider below the root and another
                       comes with the same total, what was held of the one is held of the other; so
                       it is anywhere where CUSTOM_<CLASS> goes and <CLASS> comes, or back. What
                       goes of devices from elsewhere, as from the root, may be held of any device
                       that comes

Pure functions; amounts are provider uuid -> resource class -> units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple, TypeAlias

from compute_agent.placement.allocations.amounts import Amounts
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.inventory import other_spelling
from compute_agent.provider_tree.trait_names import CUSTOM_PREFIX

Units: TypeAlias = frozenset[tuple[str, str]]
"""Provider uuid and resource class."""

CPUS = frozenset({"VCPU", "PCPU"})
_DEVICE_CLASS = "VGPU"
_OF_THE_HOST = CPUS | {"MEMORY_MB", "DISK_GB"}


class Exchanges(NamedTuple):
    """Which classes of a tree count as one in this reshape.

    ``going``, ``coming``: units that a provider has only before, or only after.
    ``newly_counted``: units that were in use before placement counted them; what is held of them
    may appear from nowhere.
    """

    groups: tuple[frozenset[str], ...]
    going: Units
    coming: Units
    newly_counted: Units = frozenset()

    @classmethod
    def of(
        cls, base: ProviderTree, wanted_tree: ProviderTree, root_uuid: str, newly_counted: Units
    ) -> Exchanges:
        """Compare the tree of one root before and after."""
        before, after = _totals(base, root_uuid), _totals(wanted_tree, root_uuid)
        going, coming = frozenset(before.keys() - after), frozenset(after.keys() - before)
        anywhere = {new for _uuid, new in coming - newly_counted if _is_of_devices(new)}
        links = [CPUS]
        for uuid, old in going:
            here = {
                new
                for at, new in coming
                if at == uuid
                and (
                    new == other_spelling(old)
                    or (
                        uuid != root_uuid
                        and after[at, new] == before[uuid, old]
                        and not {old, new} & _OF_THE_HOST
                    )
                )
            }
            if here:
                links.append(frozenset({old, *here}))
            elif _is_of_devices(old):
                links.append(frozenset({old, *anywhere}))
        return cls(_unite(links), going, coming, newly_counted)

    def faults(self, was: Amounts, now: Amounts) -> Iterator[tuple[str, int, int]]:
        """Yield class, units before and units after, of every class that lost or gained units.

        :param was, now: what one consumer holds on this tree.
        """
        before, after = _sums(was), _sums(now)
        found_sums = _sums(_within(now, self.newly_counted))
        departures, arrivals = _sums(_within(was, self.going)), _sums(_within(now, self.coming))
        grouped_classes = {rc for group in self.groups for rc in group}
        alone = (frozenset({rc}) for rc in {*before, *after} - grouped_classes)
        faulty: set[str] = set()
        for group in (*self.groups, *alone):
            total = sum(after[rc] for rc in group)
            healed_total = total - sum(found_sums[rc] for rc in group)
            is_renamed = group != CPUS and len(group) > 1
            if sum(before[rc] for rc in group) not in (total, healed_total) or (
                is_renamed
                and any(
                    before[rc] - after[rc] > departures[rc] or after[rc] - before[rc] > arrivals[rc]
                    for rc in group - CPUS
                )
            ):
                faulty |= group
        for rc in sorted(faulty):
            if before[rc] != after[rc]:
                yield rc, before[rc], after[rc]


def _totals(tree: ProviderTree, root_uuid: str) -> dict[tuple[str, str], int]:
    return {
        (uuid, rc): int(record["total"])
        for uuid in tree.get_provider_uuids(root_uuid)
        for rc, record in tree.data(uuid).inventory.items()
    }


def _is_of_devices(resource_class: str) -> bool:
    return resource_class == _DEVICE_CLASS or resource_class.startswith(CUSTOM_PREFIX)


def _unite(links: Collection[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Unite sets that have something in common; of the result no two have."""
    groups: list[frozenset[str]] = []
    for link in links:
        touching = [group for group in groups if group & link]
        groups = [group for group in groups if not group & link]
        groups.append(link.union(*touching))
    return tuple(groups)


def _sums(amounts: Amounts) -> Counter[str]:
    sums: Counter[str] = Counter()
    for resources in amounts.values():
        sums.update(resources)
    return sums


def _within(amounts: Amounts, units: Units) -> Amounts:
    return {
        uuid: {rc: n for rc, n in resources.items() if (uuid, rc) in units}
        for uuid, resources in amounts.items()
    }
