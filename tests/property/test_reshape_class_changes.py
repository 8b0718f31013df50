"""Classes that get other names, sizes and providers at once, and losses beside them."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.tracker.passes import reshape_check
from compute_agent.virt.driver import ClassChange
from tests.unit.virt.hosts import NAME, ROOT, consumer

CHILDREN = [f"00000000-0000-4000-8000-00000000000{n}" for n in range(3)]
Units = dict[tuple[str, str], int]
Records = dict[str, dict[str, Any]]


class Case(NamedTuple):
    """A tree and its allocations, and what a driver makes of them.

    :ivar changes: old class -> new class and factor.
    """

    base: ProviderTree
    wanted: ProviderTree
    before: Records
    after: Records
    changes: dict[str, tuple[str, Fraction]]


def tree(units: Units) -> ProviderTree:
    result = ProviderTree()
    result.new_root(NAME, ROOT, 1)
    for number, uuid in enumerate(CHILDREN):
        result.new_child(f"{NAME}_{number}", ROOT, uuid)
    for uuid in (ROOT, *CHILDREN):
        records = {rc: {"total": n} for (at, rc), n in units.items() if at == uuid}
        result.update_inventory(uuid, {"VCPU": {"total": 9}, **records})
    return result


factors = st.sampled_from([Fraction(1), Fraction(1000), Fraction(1, 4), Fraction(3, 2)])
news = st.permutations(["FPGA", "PGPU", "SRIOV_NET_VF", "CUSTOM_NEW"])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    olds = [f"CUSTOM_OLD_{n}" for n in range(draw(st.integers(1, 3)))]
    changes = {old: (new, draw(factors)) for old, new in zip(olds, draw(news), strict=False)}
    place = st.sampled_from([ROOT, *CHILDREN])
    source = {old: draw(place) for old in olds}
    target = {old: draw(st.sampled_from([source[old], draw(place)])) for old in olds}
    before: Records = {}
    after: Records = {}
    sums = dict.fromkeys(olds, 0)
    for number in range(draw(st.integers(1, 5))):
        was: dict[str, dict[str, int]] = {ROOT: {"VCPU": 1}}
        now: dict[str, dict[str, int]] = {ROOT: {"VCPU": 1}}
        for old in draw(st.sets(st.sampled_from(olds))):
            new, factor = changes[old]
            amount = 4 * draw(st.integers(1, 5))
            sums[old] += amount
            was.setdefault(source[old], {})[old] = amount
            now.setdefault(target[old], {})[new] = int(amount * factor)
        before[f"consumer-{number}"] = consumer(**was)
        after[f"consumer-{number}"] = consumer(**now)
    old_units = {(source[old], old): sums[old] + 4 for old in olds}
    new_units = {
        (target[old], new): int((sums[old] + 4) * factor) for old, (new, factor) in changes.items()
    }
    return Case(tree(old_units), tree(new_units), before, after, changes)


def _seems_to_stay(case: Case, old: str) -> bool:
    """Whether another class comes with the same total to a child that a class leaves."""
    return any(
        rc != case.changes[old][0]
        and rc in {new for new, _factor in case.changes.values()}
        and record["total"] == case.base.data(uuid).inventory[old]["total"]
        for uuid in CHILDREN
        if old in case.base.data(uuid).inventory
        for rc, record in case.wanted.data(uuid).inventory.items()
    )


def check(case: Case, after: Records, declared: tuple[ClassChange, ...] = ()) -> Any:
    return reshape_check.check(case.base, case.wanted, case.before, after, ROOT, declared)


@given(cases(), st.booleans())
def test_a_pivot_passes_declared_or_not_and_is_named(case: Case, is_declared: bool) -> None:
    declared = tuple(ClassChange(old, new, factor) for old, (new, factor) in case.changes.items())
    # what looks like a name given where the class stays has to be declared to be another
    assume(is_declared or not any(_seems_to_stay(case, old) for old in case.changes))
    found = check(case, case.after, declared if is_declared else ())
    held = {
        rc
        for record in case.before.values()
        for entry in record["allocations"].values()
        for rc in entry["resources"]
    }
    # with one amount of each, several pairs may explain them; each explains all amounts
    assert {change.old for change in found} == held - {"VCPU"}
    if is_declared:
        assert set(found) <= set(declared)


@given(cases(), st.data())
def test_a_loss_or_a_gift_beside_it_is_refused_by_its_consumer(case: Case, data: Any) -> None:
    """By declaration always, and without one where another consumer shows the factor."""
    new_classes = {new for new, _factor in case.changes.values()}
    places = [
        (name, uuid, rc)
        for name, record in case.after.items()
        for uuid, entry in record["allocations"].items()
        for rc in entry["resources"]
    ]
    name, uuid, rc = data.draw(st.sampled_from(places))
    after = copy.deepcopy(case.after)
    resources = after[name]["allocations"][uuid]["resources"]
    if data.draw(st.booleans()):
        resources[rc] += 1
    else:
        del resources[rc]
        if not resources:
            del after[name]["allocations"][uuid]
    declared = tuple(ClassChange(old, new, factor) for old, (new, factor) in case.changes.items())
    with pytest.raises(errors.ReshapeFailed, match=name):
        check(case, after, declared)
    others = sum(rc in e["resources"] for r in after.values() for e in r["allocations"].values())
    if "CUSTOM_NEW" in new_classes:
        return  # device classes that leave the root may become any that comes, by their sum
    if rc not in new_classes or not resources.get(rc) or others > 2:
        with pytest.raises(errors.ReshapeFailed):
            check(case, after)
