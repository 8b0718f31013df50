"""Edits of a tree, the difference between two trees, and the plan from one to the other.

The oracle writes every tree out as plain dictionaries and compares those.
"""

import copy
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.provider_tree import ProviderTree, child_uuid
from compute_agent.report.diff import diff
from compute_agent.report.plan import order_inventories, plan, stages
from compute_agent.report.steps import (
    EnsureResourceClass,
    PutProvider,
    SetInventory,
    describe,
)
from tests.property.tree_pairs import (
    CLASSES,
    ROOT,
    carry_out,
    content,
    full,
    inventories,
    pairs,
)


def capacity(tree: ProviderTree, resource_class: str) -> float:
    found = (p["inventory"].get(resource_class) for p in content(tree).values())
    return sum(max(r["total"] - r["reserved"], 0) * r["allocation_ratio"] for r in found if r)


@given(pairs())
def test_the_difference_is_empty_exactly_when_the_trees_say_the_same(pair):
    old, new = pair
    assert bool(diff(old, new)) == (content(old) != content(new))
    assert not diff(new, copy.deepcopy(new))
    assert bool(plan(old, new)) == bool(diff(old, new))


@given(pairs())
def test_every_step_of_a_plan_is_possible_and_the_last_one_ends_at_the_wanted_tree(pair):
    old, new = pair
    before = content(old)
    steps = plan(old, new)
    tree = old.snapshot()
    for step in steps:
        assert describe(step)
        carry_out(step, tree)
    assert content(tree) == content(new)
    assert content(old) == before
    assert [step for stage in stages(steps) for step in stage] == steps


@given(pairs())
def test_the_operations_of_one_stage_may_be_carried_out_in_any_order(pair):
    old, new = pair
    tree = old.snapshot()
    for stage in stages(plan(old, new)):
        for step in reversed(stage):
            carry_out(step, tree)
    assert content(tree) == content(new)


@given(pairs(), st.booleans())
def test_no_step_of_a_plan_shows_capacity_that_neither_tree_has(pair, bulk):
    old, new = pair
    most = {rc: max(capacity(old, rc), capacity(new, rc)) for rc in CLASSES}
    tree = old.snapshot()
    for step in plan(old, new, bulk=bulk):
        carry_out(step, tree)
        for resource_class in CLASSES:
            assert capacity(tree, resource_class) <= most[resource_class] + 1e-6


@given(pairs())
def test_a_plan_changes_nothing_it_does_not_have_to(pair):
    old, new = pair
    before, after = content(old), content(new)
    steps = plan(old, new)
    for step in steps:
        uuid = getattr(step, "uuid", None)
        if uuid in before and uuid in after and not isinstance(step, PutProvider):
            assert before[uuid] != after[uuid]
        if isinstance(step, SetInventory):
            assert step.before != step.after
        if isinstance(step, EnsureResourceClass):
            assert any(
                step.resource_class in provider["inventory"]
                and step.resource_class not in before.get(uuid, {}).get("inventory", {})
                for uuid, provider in after.items()
            )
    written = [o.uuid for o in steps if isinstance(o, SetInventory)]
    assert all(written.count(uuid) <= 2 for uuid in written)


@given(st.lists(st.tuples(inventories, inventories), max_size=5))
def test_ordered_inventory_changes_end_where_the_unordered_ones_do(wanted):
    tree = ProviderTree()
    changes = []
    for number, (before, after) in enumerate(wanted):
        uuid = tree.new_root(f"p{number}", child_uuid(ROOT, str(number)))
        tree.update_inventory(uuid, after)
        target = tree.data(uuid).inventory
        tree.update_inventory(uuid, {})
        tree.update_inventory(uuid, before)
        changes.append(SetInventory(uuid, f"p{number}", tree.data(uuid).inventory, target))
    old, new, ordered_changes = tree.snapshot(), tree.snapshot(), order_inventories(changes)
    for change in ordered_changes:
        assert content(new)[change.uuid]["inventory"] == {
            rc: full(record) for rc, record in change.before.items()
        }
        new.update_inventory(change.uuid, change.after)
    for change in changes:
        assert content(new)[change.uuid]["inventory"] == {
            rc: full(record) for rc, record in change.after.items()
        }
    # those of one stage are written at once: any may be the first to be done
    for step in chain.from_iterable(stage[::-1] for stage in stages(ordered_changes)):
        carry_out(step, tree)
        for resource_class in CLASSES:
            most = max(capacity(old, resource_class), capacity(new, resource_class))
            assert capacity(tree, resource_class) <= most + 1e-6
