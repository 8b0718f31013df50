"""The index and its writer."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from msgspec.structs import replace

from placement_server.candidates.index import writer as writers
from placement_server.candidates.index.index import Index
from placement_server.candidates.index.writer import IndexWriter
from placement_server.store.changes.snapshot import InventoryRow, NameRows, ProviderRow, TreeRows
from tests.unit.candidates.forest import (
    WORLD,
    Inventory,
    Provider,
    names_of,
    trees_of,
    writer_of,
)


def test_a_tree_comes_back_as_it_went_in() -> None:
    writer = writer_of(WORLD)
    tree = next(iter(writer.index.trees()))
    assert [row.uuid for row in tree.providers] == ["host", "cell"]
    assert tree.providers[1].parent_id == 1
    assert [(i.capacity, i.used) for i in tree.providers[1].inventories] == [(135, 7)]
    assert tree.providers[0].aggregates == ("agg",)


def test_an_index_stays_what_it_is_while_the_writer_goes_on() -> None:
    writer = writer_of(WORLD)
    before = writer.index
    writer.apply({1: None})
    assert [tree.root_id for tree in before.trees()] == [1, 3]
    assert before.slot_of("cell") is not None
    assert [tree.root_id for tree in writer.index.trees()] == [3]
    assert writer.index.slot_of("cell") is None


def world_with_use(host: int, cell: int, cpu: int, memory: int) -> list[Provider]:
    nic = {"VCPU": Inventory(2, used=cpu), "MEMORY_MB": Inventory(50, used=memory)}
    return [
        Provider("host", None, {"VCPU": Inventory(4, used=host)}, ("CUSTOM_A",), ("agg",)),
        Provider("cell", "host", {"MEMORY_MB": Inventory(100, ratio=1.5, used=cell)}),
        Provider("nic", "host", nic),
        WORLD[2],
    ]


@pytest.mark.parametrize("amount", [0, 3, 200])
def test_other_use_of_a_tree_is_as_if_the_tree_were_read_again(amount: int) -> None:
    world, amounts = world_with_use(0, 7, 0, 3), range(amount, amount + 4)
    writer, reader = writer_of(world), writer_of(world)
    cpu, memory = (writer.index.names.class_ids[name] for name in ("VCPU", "MEMORY_MB"))
    used = dict(zip([(1, cpu), (2, memory), (3, cpu), (3, memory)], amounts, strict=True))
    read_again = reader.apply({1: trees_of(world_with_use(*amounts))[0]})
    tree_use = writer.place(1, used)
    assert tree_use is not None
    before = writer.index
    trees_before = list(before.trees())
    index = writer.apply({}, [tree_use])
    assert list(before.trees()) == trees_before
    assert list(index.trees()) == list(read_again.trees())
    assert index.extent == read_again.extent
    assert [index.columns.uuid[slot] for slot in index.links.anchor] == ["host"]
    assert fits_by_uuid(index) == fits_by_uuid(read_again)


def fits_by_uuid(index: Index) -> dict[tuple[str, int], int]:
    living = set(index.living_slots(np.arange(index.size)).tolist())
    return {
        (index.columns.uuid[slot], class_id): fit
        for class_id, view in index.classes.items()
        for slot, fit in zip(view.slot.tolist(), view.fit.tolist(), strict=True)
        if slot in living
    }


def test_links_follow_a_tree_to_its_new_slots() -> None:
    writer = writer_of(WORLD)
    writer.apply({1: next(iter(writer.index.trees()))})
    index = writer.index
    assert index.links.anchor.tolist() == [index.slot_of("host")]
    assert index.links.share.tolist() == [index.slot_of("pool")]


def test_new_columns_are_made_when_most_slots_are_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_TOLERATED_DEAD", 5)
    writer = writer_of(WORLD)
    first = writer.index
    for _ in range(10):
        writer.apply({1: next(iter(writer.index.trees()))})
        assert writer.index.size <= 3 + 5 + 2
        assert list(writer.index.trees()) == list(first.trees())
        assert len(writer.index.links.share) == 1
    assert writer.index.columns is not first.columns


def test_a_tree_that_does_not_hang_together_is_reported_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    orphan = ProviderRow(id=9, uuid="orphan", parent_id=77, root_id=9)
    trees = [*trees_of(WORLD), TreeRows(9, (orphan,))]
    with caplog.at_level(logging.ERROR):
        writer = IndexWriter(names_of(WORLD), trees)
    assert writer.index.root_ids.tolist() == [1, 3]
    assert "orphan" in caplog.text


def test_a_renamed_class_is_known_by_its_new_name() -> None:
    names = names_of(WORLD)
    writer = writer_of(WORLD)
    renamed = {name: number for name, number in names.class_ids.items() if name != "DISK_GB"}
    renamed["CUSTOM_DISK"] = names.class_ids["DISK_GB"]
    index = writer.rename(NameRows(renamed, names.trait_ids))
    assert index.names.class_names[names.class_ids["DISK_GB"]] == "CUSTOM_DISK"
    assert [tree.root_id for tree in index.trees()] == [1, 3]


def test_an_amount_beyond_32_bits_fits_nowhere() -> None:
    huge = [Provider("host", None, {"VCPU": Inventory(2**31 - 1, ratio=1e30)})]
    view = writer_of(huge).index.classes[0]
    assert view.fits(2**31 - 1).tolist() == [True]
    assert view.fits(2**31).tolist() == [False]


def test_what_no_tree_uses_any_more_goes_with_the_dead_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writers, "_TOLERATED_DEAD", 5)
    stays = ProviderRow(id=1, uuid="stays", parent_id=None, root_id=1)
    child = ProviderRow(id=2, uuid="child", parent_id=1, root_id=1)
    writer = IndexWriter(NameRows({}, {}), [TreeRows(1, (stays, child))])
    for count in range(1, 40):
        stock = (InventoryRow(10_000 + count, 1, 0, 1, 1, 1, 1.0, 1, 0),)
        rows = [ProviderRow(9 + n, f"p{count}-{n}", 9 if n else None, 9) for n in range(count)]
        rows[0] = replace(rows[0], inventories=stock, trait_ids=(count,))
        writer.apply({9: TreeRows(9, tuple(rows))})
    writer.apply({9: None})
    index, columns = writer.index, writer.index.columns
    assert [tree.providers for tree in index.trees()] == [(stays, child)]
    assert [shape.parents for shape in columns.shapes] == [(-1, 0)]
    assert [columns.shapes[number].size for number in index.shape.tolist()] == [2, 2]
    assert columns.classes == {}
    assert columns.trait_sets.members == [()]
