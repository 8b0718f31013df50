"""Provider config files: read, refused, merged into a tree, taken back out."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.provider_config.additions import MergeResult, ProviderConfigException, merge
from compute_agent.provider_config.merger import ProviderConfigMerger, load
from compute_agent.provider_tree import ProviderTree
from compute_agent.state.ledger import Ledger

NODE = "5a0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11"
CHILD = "7e0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11"
POOL = "8e0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11"

META = "meta: {schema_version: '1.0'}\n"


def write(directory: Path, *entries: str, name: str = "a.yaml", meta: str = META) -> None:
    text = "".join(f"  - {entry}\n" for entry in entries)
    (directory / name).write_text(f"{meta}providers:\n{text}" if entries else meta)


def entry(identification: str, inventories: str = "", traits: str = "") -> str:
    return (
        f"{{identification: {{{identification}}}, "
        f"inventories: {{additional: [{inventories}]}}, traits: {{additional: [{traits}]}}}}"
    )


def tree() -> ProviderTree:
    wanted = ProviderTree()
    wanted.new_root("host1", NODE, 1)
    wanted.add_traits(NODE, "COMPUTE_NODE")
    wanted.update_inventory(NODE, {"VCPU": {"total": 4}})
    wanted.new_child("host1_NUMA0", NODE, CHILD, 1)
    wanted.new_root("pool", POOL, 1)
    wanted.add_traits(POOL, "MISC_SHARES_VIA_AGGREGATE")
    return wanted


def merged(
    wanted: ProviderTree, directory: Path, remembered: Any = None, **more: Any
) -> MergeResult:
    return merge(load(directory), wanted, remembered_additions=remembered or {}, **more)


def endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


class TestLoading:
    def test_files_are_read_in_the_order_of_their_names_and_others_are_not(
        self, tmp_path: Path
    ) -> None:
        write(tmp_path, entry("name: b", traits="CUSTOM_B"), name="20.yaml")
        write(tmp_path, entry("name: a", traits="CUSTOM_A"), name="10.yaml")
        (tmp_path / "notes.txt").write_text("]")
        # an editor's lock and its copy
        (tmp_path / ".#10.yaml").symlink_to("root@host1.1234:567")
        write(tmp_path, entry("name: old", traits="CUSTOM_OLD"), name=".10.yaml")
        (tmp_path / "below").mkdir()
        write(tmp_path / "below", entry("name: c", traits="CUSTOM_C"))
        assert [p.name for p in load(tmp_path)] == ["a", "b"]

    @pytest.mark.parametrize("existing", [True, False])
    def test_without_files_there_are_no_configs(
        self, tmp_path: Path, existing: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        assert load(tmp_path if existing else tmp_path / "none") == ()
        assert [record.levelname for record in caplog.records] == ["INFO"]

    def test_a_record_is_completed_with_placements_defaults(self, tmp_path: Path) -> None:
        write(tmp_path, entry("name: a", "{CUSTOM_X: {total: 20, max_unit: 8}}"))
        (config,) = load(tmp_path)
        assert config.inventories["CUSTOM_X"] == {
            "total": 20,
            "reserved": 0,
            "min_unit": 1,
            "max_unit": 8,
            "step_size": 1,
            "allocation_ratio": 1.0,
        }

    def test_unknown_keys_are_allowed_where_a_later_version_may_have_new_ones(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "a.yaml").write_text(
            """
            meta: {schema_version: '1.0', author: me}
            future: 1
            providers:
              - identification: {name: a}
                future: 1
                inventories: {future: 1}
                traits: {additional: [CUSTOM_A], future: 1}
            """
        )
        assert load(tmp_path)[0].traits == ("CUSTOM_A",)

    def test_a_newer_minor_version_is_read_with_a_warning(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        write(tmp_path, entry("name: a", traits="CUSTOM_A"), meta="meta: {schema_version: '1.4'}\n")
        assert load(tmp_path)
        assert "1.4" in caplog.text

    def test_an_entry_that_adds_nothing_is_ignored_with_a_warning(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        write(tmp_path, entry("name: a"))
        assert load(tmp_path) == ()
        assert "name a" in caplog.text

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("meta: {schema_version: '1.0'\n", r"not YAML, line 2, column 1"),
            ("", "schema_version"),
            ("- 1", "schema_version"),
            ("meta: {}", "no schema_version"),
            ("meta: {schema_version: 1.0}", "is not a string"),
            ("meta: {schema_version: '2.0'}", r"only 1\.x"),
            ("meta: {schema_version: '1.01'}", r"meta\.schema_version is \"1\.01\", not a version"),
            (META + "providers: 3", "providers is 3, not a list"),
            (META + "providers: [{}]", r"providers\[0\]\.identification is missing"),
            (META + "providers: [{identification: {}}]", "needs exactly one of uuid and name"),
            (
                META + "providers: [{identification: {name: a, uuid: $COMPUTE_NODE}}]",
                "needs exactly one of uuid and name",
            ),
            (
                META + "providers: [{identification: {uuid: zzz}}]",
                r"identification\.uuid is \"zzz\", not a uuid",
            ),
            (META + "providers: [{identification: {name: a}, __source_file: x}]", "reserved"),
            (META + "__source_file: x", "reserved"),
        ],
    )
    def test_a_wrong_file_is_refused_with_its_name_and_the_reason(
        self, tmp_path: Path, text: str, reason: str
    ) -> None:
        (tmp_path / "wrong.yaml").write_text(text)
        with pytest.raises(ProviderConfigException, match=reason) as caught:
            load(tmp_path)
        assert str(tmp_path / "wrong.yaml") in str(caught.value)

    @pytest.mark.parametrize(
        ("inventories", "traits", "reason"),
        [
            ("{VCPU: {total: 1}}", "", "CUSTOM_"),
            ("", "HW_CPU_X86_AVX", "CUSTOM_"),
            ("{custom_x: {total: 1}}", "", 'the key is "custom_x", not 1 to 255 of A-Z'),
            ("{1: {total: 1}}", "", r"additional\[0\]: the key is 1, not"),
            ("{CUSTOM_X: {reserved: 1}}", "", r"CUSTOM_X\.total is missing"),
            ("{CUSTOM_X: {total: 1, more: 1}}", "", r"CUSTOM_X\.more is not known"),
            ("{CUSTOM_X: {total: many}}", "", 'total is "many", not a whole number'),
            ("{CUSTOM_X: {total: 2024-02-30}}", "", "a value that cannot be read: day"),
            ("{CUSTOM_X: {total: !!bool 2}}", "", "a value that cannot be read: '2'"),
            ("{CUSTOM_X: {total: !!int ''}}", "", "a value that cannot be read: string index"),
            ("{CUSTOM_X: {total: !!timestamp 2}}", "", "a value that cannot be read: 'NoneType'"),
            ("{CUSTOM_X: {total: 2024-02-03}}", "", 'total is "2024-02-03", not'),
            ("{CUSTOM_X: {total: 1.5}}", "", "total is 1.5, not a number that's a multiple of 1"),
            ("{CUSTOM_X: &x {total: *x}}", "", "it has an alias inside its own anchor"),
            (
                "{CUSTOM_X: {total: 1, allocation_ratio: .nan}}",
                "",
                "allocation_ratio is NaN, not a number >= 0",
            ),
            ("{CUSTOM_X: {total: 0}}", "", "total is 0, not a whole number >= 1"),
            ("{CUSTOM_X: {total: 1}}, {CUSTOM_X: {total: 2}}", "", "twice"),
        ],
    )
    def test_a_wrong_addition_is_refused(
        self, tmp_path: Path, inventories: str, traits: str, reason: str
    ) -> None:
        write(tmp_path, entry("name: a", inventories, traits))
        with pytest.raises(ProviderConfigException, match=reason):
            load(tmp_path)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("name: a", "name: a"),
            (f"uuid: {NODE}", f"uuid: {NODE.upper().replace('-', '')}"),
            ("uuid: $COMPUTE_NODE", "uuid: $COMPUTE_NODE"),
        ],
    )
    def test_a_provider_named_twice_is_refused_with_both_files(
        self, tmp_path: Path, one: str, other: str
    ) -> None:
        write(tmp_path, entry(one, traits="CUSTOM_A"), name="1.yaml")
        write(tmp_path, entry(other, traits="CUSTOM_B"), name="2.yaml")
        with pytest.raises(ProviderConfigException, match=r"1\.yaml and .*2\.yaml"):
            load(tmp_path)

    def test_a_provider_named_twice_in_one_file_is_refused(self, tmp_path: Path) -> None:
        write(tmp_path, entry("name: a", traits="CUSTOM_A"), entry("name: a", traits="CUSTOM_B"))
        with pytest.raises(ProviderConfigException, match="name a"):
            load(tmp_path)

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (Path.mkdir, "it is a directory, not a regular file"),
            (os.mkfifo, "it is a pipe, not a regular file"),
            (endless, "it is larger than 16 MiB"),
        ],
    )
    def test_what_is_no_file_of_usual_size_is_refused_and_not_waited_for(
        self, tmp_path: Path, make: Callable[[Path], None], reason: str
    ) -> None:
        make(tmp_path / "a.yaml")
        with pytest.raises(ProviderConfigException, match=reason):
            load(tmp_path)


class TestMerging:
    def test_classes_and_traits_are_added_to_the_provider_named(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            entry("uuid: $COMPUTE_NODE", "{CUSTOM_X: {total: 2}}", "CUSTOM_A"),
            entry("name: host1_NUMA0", traits="CUSTOM_B"),
        )
        wanted = tree()
        result = merged(wanted, tmp_path)
        assert wanted.data(NODE).inventory.keys() == {"VCPU", "CUSTOM_X"}
        assert "CUSTOM_A" in wanted.data(NODE).traits
        assert wanted.data(CHILD).traits == {"CUSTOM_B"}
        assert result.additions == {
            NODE: {"inventories": ["CUSTOM_X"], "traits": ["CUSTOM_A"]},
            CHILD: {"inventories": [], "traits": ["CUSTOM_B"]},
        }
        assert not result.problems

    def test_a_name_may_be_a_uuid(self, tmp_path: Path) -> None:
        write(tmp_path, entry(f"name: {CHILD.upper()}", traits="CUSTOM_A"))
        wanted = tree()
        assert merged(wanted, tmp_path).absent_providers == ()
        assert "CUSTOM_A" in wanted.data(CHILD).traits

    @pytest.mark.parametrize("key", ["uuid", "name"])
    def test_only_compute_nodes_are_meant_by_that_name(self, tmp_path: Path, key: str) -> None:
        write(tmp_path, entry(f"{key}: $COMPUTE_NODE", traits="CUSTOM_A"))
        wanted = tree()
        before = wanted.data(POOL)
        merged(wanted, tmp_path)
        assert wanted.data(POOL) == before
        assert "CUSTOM_A" in wanted.data(NODE).traits

    def test_a_node_with_an_entry_of_its_own_ignores_the_one_for_all(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            entry("uuid: $COMPUTE_NODE", traits="CUSTOM_ALL"),
            entry("name: host1", traits="CUSTOM_OWN"),
        )
        wanted = tree()
        merged(wanted, tmp_path)
        assert wanted.data(NODE).traits == {"COMPUTE_NODE", "CUSTOM_OWN"}

    def test_a_class_the_driver_reports_is_refused_and_the_rest_is_added(
        self, tmp_path: Path
    ) -> None:
        asked = (f"{{CUSTOM_{name}: {{total: 1}}}}" for name in "XYZ")
        write(tmp_path, entry("name: host1", ", ".join(asked)))
        wanted = tree()
        wanted.update_inventory(NODE, {"CUSTOM_X": {"total": 9}, "CUSTOM_Z": {"total": 9}})
        result = merged(wanted, tmp_path)
        assert [type(p) for p in result.problems] == [errors.ProviderConfigConflict] * 2
        assert "CUSTOM_X" in str(result.problems[0])
        inventory = wanted.data(NODE).inventory
        totals = {rc: record["total"] for rc, record in inventory.items()}
        assert totals == {"CUSTOM_X": 9, "CUSTOM_Y": 1, "CUSTOM_Z": 9}

    def test_one_provider_reached_by_uuid_and_by_name_is_refused(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            entry(f"uuid: {NODE}", traits="CUSTOM_A"),
            entry("name: host1", traits="CUSTOM_B"),
        )
        result = merged(tree(), tmp_path)
        assert "Join the two entries" in str(result.problems[0])

    def test_what_the_file_says_replaces_what_placement_has(self, tmp_path: Path) -> None:
        write(tmp_path, entry("name: host1_NUMA0", "{CUSTOM_X: {total: 3}}"))
        wanted = tree()
        wanted.update_inventory(CHILD, {"CUSTOM_X": {"total": 9, "reserved": 2}})
        remembered = {CHILD: {"inventories": ["CUSTOM_X"], "traits": []}}
        result = merged(wanted, tmp_path, remembered)
        assert not result.problems
        record = wanted.data(CHILD).inventory["CUSTOM_X"]
        assert (record["total"], record["reserved"]) == (3, 0)

    def test_a_second_merge_changes_nothing(self, tmp_path: Path) -> None:
        write(tmp_path, entry("name: host1_NUMA0", "{CUSTOM_X: {total: 3}}", "CUSTOM_A"))
        wanted = tree()
        first = merged(wanted, tmp_path)
        before = wanted.data(CHILD)
        assert merged(wanted, tmp_path, first.additions) == first
        assert wanted.data(CHILD) == before

    def test_providers_that_are_not_there_are_told(self, tmp_path: Path) -> None:
        write(tmp_path, entry("name: elsewhere", traits="CUSTOM_A"))
        assert merged(tree(), tmp_path).absent_providers == ("name elsewhere",)


REMEMBERED = {CHILD: {"inventories": ["CUSTOM_X"], "traits": ["CUSTOM_A"]}}


class TestTakingBack:
    def before(self) -> ProviderTree:
        base = tree()
        base.update_inventory(CHILD, {"CUSTOM_X": {"total": 3}, "CUSTOM_OTHER": {"total": 1}})
        base.add_traits(CHILD, "CUSTOM_A", "CUSTOM_OPERATORS")
        return base

    def test_what_left_the_files_is_taken_out_and_nothing_else(self, tmp_path: Path) -> None:
        wanted = self.before()
        result = merged(wanted, tmp_path, REMEMBERED, held_amounts=lambda _uuid: {})
        assert wanted.data(CHILD).inventory.keys() == {"CUSTOM_OTHER"}
        assert wanted.data(CHILD).traits == {"CUSTOM_OPERATORS"}
        assert result.additions == {}

    def test_a_class_that_is_held_stays_and_is_still_remembered(self, tmp_path: Path) -> None:
        base = self.before()
        wanted = base.snapshot()
        wanted.update_inventory(CHILD, {})
        result = merged(
            wanted, tmp_path, REMEMBERED, base=base, held_amounts=lambda _uuid: {"CUSTOM_X": 2}
        )
        assert wanted.data(CHILD).inventory == {"CUSTOM_X": base.data(CHILD).inventory["CUSTOM_X"]}
        assert result.additions == {CHILD: {"inventories": ["CUSTOM_X"], "traits": []}}
        assert "2 of it are allocated" in result.kept_sentences[0]

    def test_nobody_is_asked_while_nothing_left_the_files(self, tmp_path: Path) -> None:
        write(tmp_path, entry("name: host1_NUMA0", "{CUSTOM_X: {total: 3}}", "CUSTOM_A"))

        def refuse(uuid: str) -> dict[str, int]:
            raise AssertionError(uuid)

        merged(self.before(), tmp_path, REMEMBERED, held_amounts=refuse)

    def test_what_was_added_to_a_provider_of_another_tree_stays_remembered(
        self, tmp_path: Path
    ) -> None:
        remembered = {"elsewhere": {"inventories": [], "traits": ["CUSTOM_A"]}}
        assert merged(tree(), tmp_path, remembered).additions == remembered


def test_what_lasts_is_logged_once_and_again_after_it_was_otherwise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(tmp_path)
    ledger.remember_additions({NODE: {"inventories": ["CUSTOM_X"], "traits": []}})
    base = tree()
    base.update_inventory(NODE, {"CUSTOM_X": {"total": 3}})
    merger = ProviderConfigMerger(tmp_path, ledger, lambda _uuid: {"CUSTOM_X": 1})
    write(tmp_path, entry("name: pool-a", traits="CUSTOM_A"))
    merger.load()
    for is_there in (False, False, True, False):
        wanted = base.snapshot()
        if is_there:
            wanted.new_root("pool-a", "b4a3f8fc-7b1c-4f2a-8f6e-3f3f3c8d9f00")
        merger.merge(base, wanted, NODE)
    assert caplog.text.count("name pool-a") == 2
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
