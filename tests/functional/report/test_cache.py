"""The cache that survives a restart: a hint, never believed against placement."""

import json
import uuid as uuidlib

import pytest

from compute_agent.provider_tree import child_uuid
from tests.functional.report.claims import claim
from tests.functional.report.layouts import also, small

pytestmark = pytest.mark.parametrize("placement", ["ours"], indirect=True)


@pytest.fixture
def stopped(host):
    """A host that reported and whose agent is gone."""
    host.report(small(host.name))
    host.client.close()
    return host


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "",
        lambda text: text[:-30],
        lambda _: "[]",
        lambda text: text.replace('"format":1', '"format":99'),
        lambda text: text.replace('"generation"', '"gen"'),
        lambda text: text.replace('"total"', '"sum"'),
        # not a tree, and not that of the root
        lambda text: text.replace('"parent_provider_uuid":"', '"parent_provider_uuid":"0'),
        lambda text: text.replace('"trees":{"', '"trees":{"0'),
    ],
)
def test_a_file_that_cannot_be_used_costs_reads_and_nothing_else(stopped, damage):
    text = stopped.cache_path.read_text()
    assert json.loads(text)["trees"]
    stopped.cache_path.write_text(damage(text))
    stopped.restart()
    stopped.report(small(stopped.name))
    assert stopped.tally.requests == 1 + 2 * 3
    assert stopped.tally.writes == 0
    # one of another version is no damage
    is_damaged = '"format":99' not in damage(text)
    assert len(list(stopped.cache_path.parent.glob("*.broken"))) == is_damaged


def test_a_file_that_cannot_be_read_is_no_reason_not_to_start(stopped):
    stopped.cache_path.unlink()
    stopped.cache_path.mkdir()
    stopped.restart()
    stopped.report(small(stopped.name))
    assert stopped.tally.requests == 7


def test_a_file_that_cannot_be_written_is_a_warning_that_names_it(host, caplog):
    host.cache_path = host.cache_path.parent / "missing" / "cache.json"
    host.report(small(host.name))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings
    assert all(w.startswith(f"The cache {host.cache_path} was not written: ") for w in warnings)


def test_a_tree_deleted_meanwhile_is_made_again(stopped, other):
    other.delete_resource_provider(stopped.root)
    stopped.restart()
    stopped.report(small(stopped.name))
    assert len(other.get_provider_tree(stopped.root)) == 2


def test_only_what_moved_is_read_again(stopped, other):
    gpu = other.get_provider_tree(stopped.root).data(f"{stopped.name}_GPU0").uuid
    claim(other, gpu, {"VGPU": 1})
    stopped.restart()
    stopped.report(small(stopped.name))
    assert sorted(r.rsplit("/", 2)[1] for r in stopped.requests[1:]) == [gpu] * 3


def test_a_provider_known_to_be_stale_is_not_read_again_just_for_a_restart(stopped, other):
    stopped.restart()
    claim(other, stopped.root, {"VCPU": 1})
    stopped.report(small(stopped.name))
    claim(other, stopped.root, {"VCPU": 1})
    stopped.report(small(stopped.name))
    assert stopped.tally.requests == 1
    stopped.restart()
    stopped.report(small(stopped.name))
    assert stopped.tally.requests == 1 + 1, "the aggregates of its root"


def test_a_fresh_read_reads_what_is_stale(stopped, other):
    stopped.restart()
    stopped.report(small(stopped.name))
    claim(other, stopped.root, {"VCPU": 1})
    stopped.report(small(stopped.name))
    stopped.report(small(stopped.name), fresh=True)
    assert stopped.tally.requests == 1 + 3
    stopped.report(small(stopped.name), fresh=True)
    assert stopped.tally.requests == 1


def test_the_file_is_not_rewritten_by_a_quiet_pass(stopped):
    stopped.restart()
    stopped.report(small(stopped.name))
    before = stopped.cache_path.stat()
    stopped.report(small(stopped.name))
    after = stopped.cache_path.stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_nothing_temporary_is_left_beside_the_file(stopped):
    assert [path.name for path in stopped.cache_path.parent.iterdir()] == [stopped.cache_path.name]


def test_dropping_the_cache_reads_everything_anew(stopped):
    stopped.restart()
    stopped.report(small(stopped.name))
    stopped.client.drop_cache()
    stopped.report(small(stopped.name))
    assert stopped.tally.requests == 7


def test_an_agent_of_many_nodes_writes_its_file_once_a_minute_and_at_the_end(
    stopped, new_host, clock
):
    client = stopped.restart()
    for _ in range(9):
        node = new_host()
        client.get_provider_tree_and_ensure_root(node.root, node.name)
    written = json.loads(stopped.cache_path.read_text())["trees"]
    assert len(written) < 10
    clock.now += 61
    late = new_host()
    client.get_provider_tree_and_ensure_root(late.root, late.name)
    assert len(json.loads(stopped.cache_path.read_text())["trees"]) == 11
    node = new_host()
    client.get_provider_tree_and_ensure_root(node.root, node.name)
    client.close()
    assert len(json.loads(stopped.cache_path.read_text())["trees"]) == 12


def test_a_foreign_provider_that_stays_does_not_make_the_file_be_rewritten(stopped, other):
    theirs = child_uuid(stopped.root, "theirs")
    other.placement.providers.create(theirs, f"{stopped.name}:theirs", stopped.root)
    stopped.restart()

    without = also(small(stopped.name), lambda tree: tree.remove(theirs))
    stopped.report(without)
    before = stopped.cache_path.stat()
    stopped.report(without)
    assert stopped.cache_path.stat().st_ino == before.st_ino


@pytest.mark.parametrize("whole_trees", [False, True], ids=["plain", "whole trees"])
def test_a_trait_that_is_changed_alone_is_known_and_hides_nothing_that_others_wrote(
    new_host, other, whole_trees
):
    host = new_host()
    host.whole_trees = whole_trees
    for _ in range(2):
        host.report(small(host.name))
    host.client.get_provider_tree(str(uuidlib.uuid4()))
    disabled = "COMPUTE_STATUS_DISABLED"
    host.client.change_traits(host.root, add=[disabled])
    host.transport.clear()
    host.client.change_traits(host.root, add=[disabled], remove=["CUSTOM_OF_NOBODY"])
    assert host.writes == []
    assert disabled in host.client.known_tree(host.root).data(host.root).traits
    assert host.report(small(host.name)).steps == ()
    assert host.tally.requests == 1
    generation = other.find_provider(host.root).generation
    inventory = {"VCPU": {"total": 5}}
    other.placement.providers.put_inventories(host.root, host.name, generation, inventory)
    host.client.change_traits(host.root, remove=[disabled])
    tree = host.client.get_provider_tree(host.root, fresh=True)
    assert tree.data(host.root).inventory["VCPU"]["total"] == 5
    assert disabled not in tree.data(host.root).traits
