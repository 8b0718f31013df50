"""Dedicated CPUs of one cell for one node: whole cores, then whole L3 groups, before fractions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Final, NamedTuple

from msgspec import Struct

from compute_agent.fitting.guest import ISOLATE, REQUIRE
from compute_agent.fitting.host import Core

_TRIED_GROUPS: Final = 256
"""Sets of L3 groups that are compared; of more the first is as good as any."""


class CpuCost(NamedTuple):
    """What a choice of CPUs breaks.

    :param fractions: CPUs of cores that the node has not to itself.
    :param broken_cores: cores that were whole and are not any more.
    :param groups: L3 groups touched.
    :param group_fractions: CPUs of L3 groups that the node has not to itself.
    """

    fractions: int = 0
    broken_cores: int = 0
    groups: int = 0
    group_fractions: int = 0


NO_COST: Final = CpuCost()


class GroupRoom(NamedTuple):
    """The free cores of one L3 group.

    :param whole: size of a core to the number of those that nobody has anything of.
    :param loose: free CPUs of other cores.
    :param cpus: all free CPUs.
    """

    number: int
    whole: Mapping[int, int]
    loose: int
    cpus: int
    is_whole: bool


class CoreRoom(Struct, frozen=True):
    """The free cores of a cell, as those of a group; and by group, where there is any."""

    whole: Mapping[int, int]
    loose: int
    cpus: int
    groups: tuple[GroupRoom, ...]


class CpuNeed(Struct, frozen=True):
    """Of which cores CPUs are taken.

    :param whole: size of a core to the number of cores taken whole.
    :param fractions: CPUs of cores that are broken already.
    :param broken: CPUs of one whole core, of which it gives but these; 0 = none is broken.
    """

    whole: Mapping[int, int]
    fractions: int
    broken: int


def room_of(cores: Iterable[Core]) -> CoreRoom:
    """Sum up what is free of the cores of a cell."""
    whole_of: dict[int, dict[int, int]] = {}
    loose_of: dict[int, int] = {}
    for cpus, threads, group in cores:
        whole = whole_of.get(group)
        if whole is None:
            whole = whole_of[group] = {}
        if len(cpus) == threads:
            whole[threads] = whole.get(threads, 0) + 1
        else:
            loose_of[group] = loose_of.get(group, 0) + len(cpus)
    groups = []
    for group, whole in whole_of.items():
        loose = loose_of.get(group, 0)
        free = loose + sum([size * number for size, number in whole.items()])
        if free:
            groups.append(GroupRoom(group, whole, loose, free, group not in loose_of))
    if len(groups) == 1:
        [only] = groups
        return CoreRoom(only.whole, only.loose, only.cpus, (only,))
    total: dict[int, int] = {}
    for room in groups:
        for size, number in room.whole.items():
            total[size] = total.get(size, 0) + number
    return CoreRoom(
        total,
        sum([room.loose for room in groups]),
        sum([room.cpus for room in groups]),
        tuple(groups),
    )


def need_of(room: CoreRoom, count: int, policy: str) -> CpuNeed | None:
    """Return of which cores `count` CPUs are best taken; None: they are not there."""
    if policy == ISOLATE:
        # on a core of several threads its siblings would have to stay unused: refused, as by Nova
        return CpuNeed({1: count}, 0, 0) if room.whole.get(1, 0) >= count else None
    if policy == REQUIRE:
        sizes = {size: number for size, number in room.whole.items() if size > 1}
        whole = _largest_sum(sizes, count)
        fits = sum(size * number for size, number in whole.items()) == count
        return CpuNeed(whole, 0, 0) if fits else None
    if count > room.cpus:
        return None
    whole = _largest_sum(room.whole, count)
    rest = count - sum([size * number for size, number in whole.items()])
    loose = min(rest, room.loose)
    return CpuNeed(whole, loose, rest - loose)


def _largest_sum(sizes: Mapping[int, int], limit: int) -> dict[int, int]:
    """Return whole cores, by size, that together have the most CPUs of up to `limit`."""
    if len(sizes) == 1:
        [(size, number)] = sizes.items()
        taken = min(number, limit // size)
        return {size: taken} if taken else {}
    best: dict[int, dict[int, int]] = {0: {}}
    for size in sorted(sizes, reverse=True):
        for total, taken_cores in list(best.items()):
            for more in range(1, min(sizes[size], (limit - total) // size) + 1):
                best.setdefault(total + more * size, {**taken_cores, size: more})
    return best[max(best)]


def cost_of(room: CoreRoom, count: int, policy: str) -> CpuCost | None:
    """Return what `count` CPUs would break; None: they are not there."""
    need = need_of(room, count, policy)
    if need is None:
        return None
    return _cost_over(_best_groups(room, need), need)[0]


def pick(cores: Sequence[Core], count: int, policy: str) -> tuple[int, ...]:
    """Return the CPUs for a node for which there are enough, ascending."""
    room = room_of(cores)
    need = need_of(room, count, policy)
    if need is None or not count:
        return ()
    wanted, loose, broken = dict(need.whole), need.fractions, need.broken
    picked_cpus: list[int] = []
    # what fills a whole group is taken first, so that the rest comes from the last one
    for group in _best_groups(room, need):
        rest: list[Core] = []
        for core in cores:
            if core.group != group.number:
                continue
            if len(core.cpus) == core.threads and wanted.get(core.threads):
                wanted[core.threads] -= 1
                picked_cpus += core.cpus
            elif len(core.cpus) < core.threads and loose:
                taken = core.cpus[:loose]
                loose -= len(taken)
                picked_cpus += taken
            elif len(core.cpus) == core.threads > broken:
                rest.append(core)
        if broken and rest:
            picked_cpus += rest[0].cpus[:broken]
            broken = 0
    return tuple(sorted(picked_cpus))


def _best_groups(room: CoreRoom, need: CpuNeed) -> Sequence[GroupRoom]:
    """Return the fewest L3 groups that have the CPUs: whole ones, else those that are broken.

    Groups that are taken whole come first, the one that gives a part last.
    """
    groups = room.groups
    if len(groups) < 2:
        return groups
    for number in range(1, len(groups) + 1):
        best: tuple[tuple[int, int], Sequence[GroupRoom]] | None = None
        for choice in islice(_choices(groups, number), _TRIED_GROUPS):
            if not _has(choice, need):
                continue
            ordered = choice if number == 1 else _in_order(choice)
            cost, broken = _cost_over(ordered, need)
            price = cost.group_fractions, broken
            if best is None or price < best[0]:
                best = price, ordered
            if price == (0, 0):
                break
        if best is not None:
            return best[1]
    return _in_order(groups)


def _choices(groups: Sequence[GroupRoom], number: int) -> Iterator[tuple[GroupRoom, ...]]:
    if number == 1:
        before = None
        for group in groups:
            if group[1:] != before:  # of equal neighbours the first will do
                before = group[1:]
                yield (group,)
        return
    # the largest first, so that a set that has enough is among the first
    yield from combinations(sorted(groups, key=lambda group: -group.cpus), number)


def _in_order(groups: Iterable[GroupRoom]) -> list[GroupRoom]:
    return sorted(groups, key=lambda group: (not group.is_whole, -group.cpus))


def _has(groups: Sequence[GroupRoom], need: CpuNeed) -> bool:
    if len(groups) == 1:
        [group] = groups
        whole, loose = group.whole, group.loose
    else:
        whole = Counter[int]()
        loose = 0
        for group in groups:
            whole.update(group.whole)
            loose += group.loose
    if loose < need.fractions:
        return False
    for size, number in need.whole.items():
        if whole.get(size, 0) < number:
            return False
    return not need.broken or any(
        number > need.whole.get(size, 0) and size > need.broken for size, number in whole.items()
    )


def _cost_over(groups: Sequence[GroupRoom], need: CpuNeed) -> tuple[CpuCost, int]:
    """Return the cost of taking the need from groups in this order, and the groups it breaks."""
    fractions, broken = need.fractions + need.broken, need.broken
    if len(groups) == 1:
        taken = fractions + sum([size * number for size, number in need.whole.items()])
        [group] = groups
        if not taken:
            return NO_COST, 0
        is_part = not group.is_whole or taken < group.cpus
        cost = CpuCost(fractions, bool(broken), 1, taken if is_part else 0)
        return cost, int(is_part and group.is_whole)
    wanted, loose = dict(need.whole), need.fractions
    touched = broken_groups = group_fractions = 0
    for group in groups:
        taken = 0
        left = dict(group.whole)
        for size, number in group.whole.items():
            cores = min(number, wanted.get(size, 0))
            if cores:
                wanted[size] -= cores
                left[size] -= cores
                taken += cores * size
        own_loose = min(loose, group.loose)
        loose -= own_loose
        taken += own_loose
        if broken and any(number and size > broken for size, number in left.items()):
            taken += broken
            broken = 0
        if taken:
            touched += 1
            is_part = not group.is_whole or taken < group.cpus
            group_fractions += taken if is_part else 0
            broken_groups += is_part and group.is_whole
    return CpuCost(fractions, bool(need.broken), touched, group_fractions), broken_groups
