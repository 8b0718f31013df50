"""Placements with amounts that are new before those with amounts that were there already.

Items that want the same class may exchange their providers and take the same amounts all the same::

    A (a trait) and B want one VGPU each     A on gpu1, B on gpu2    new
                                             A on gpu1, B on gpu3    new
                                             A on gpu2, B on gpu1    put off: gpu1 and gpu2 again

The solver gives such exchanges of *alike* items no place in its order. Of items that are not alike,
because one may go where the other may not, they are found like any others, and put off here; and
so are placements that differ only in the provider of a group that asks for no resources.
"""

from collections.abc import Iterator, Sequence

from placement_server.candidates.plan import Plan
from placement_server.candidates.problem import Positions

# Who asks for a few candidates must not wait for all exchanges between two new ones.
_MOST_IN_A_ROW = 512
_MOST_PUT_OFF = 10_000

_Takers = tuple[tuple[tuple[int, int], ...], ...]
"""For each class the items that want it, each with its amount."""


def may_repeat(plan: Plan, alike: Sequence[tuple[int, ...]]) -> bool:
    """Whether two placements of the solver may have the same amounts.

    :param alike: the sets of items that the solver places in one order only.
    """
    sets = [frozenset(items) for items in alike]
    return any(not item.amounts for item in plan.items) or any(
        len(takers) > 1 and not any(items.issuperset(item for item, _ in takers) for items in sets)
        for takers in _takers(plan)
    )


def new_first(
    plan: Plan, placements: Iterator[Positions], put_off: list[Positions]
) -> Iterator[Positions]:
    """Yield the placements whose amounts are new, and collect the others.

    After very many in a row that are not new, or very many in all, what is left comes as it is
    found: the order is worth some time, not any.
    """
    takers = _takers(plan)
    seen: set[object] = set()
    in_a_row = 0
    for placement in placements:
        amounts = _amounts(takers, placement)
        if amounts not in seen:
            seen.add(amounts)
            in_a_row = 0
            yield placement
            continue
        put_off.append(placement)
        in_a_row += 1
        if in_a_row == _MOST_IN_A_ROW or len(put_off) == _MOST_PUT_OFF:
            yield from placements
            return


def _takers(plan: Plan) -> _Takers:
    by_class: dict[int, list[tuple[int, int]]] = {}
    for position, item in enumerate(plan.items):
        for class_id, amount in item.amounts:
            by_class.setdefault(class_id, []).append((position, amount))
    return tuple(tuple(takers) for takers in by_class.values())


def _amounts(takers: _Takers, placement: Positions) -> object:
    """Return what is equal for two placements just when their amounts are."""
    return tuple([_of_class(each, placement) for each in takers])


def _of_class(takers: tuple[tuple[int, int], ...], placement: Positions) -> object:
    if len(takers) == 1:
        return placement[takers[0][0]]
    sums: dict[int, int] = {}
    for item, amount in takers:
        at = placement[item]
        sums[at] = sums.get(at, 0) + amount
    return frozenset(sums.items())
