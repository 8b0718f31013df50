"""The total of a shared pool: when it is written, and what of the record stays the operator's."""

import random
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from compute_agent import errors
from compute_agent.placement.providers import AtGeneration
from compute_agent.provider_tree import SHARING_TRAIT, ProviderTree
from compute_agent.provider_tree.inventory import complete_record
from compute_agent.tracker.shared_disk import SharedDisk, differs, with_total

ROOT, POOL = "00000000-0000-4000-8000-00000000aaaa", "00000000-0000-4000-8000-00000000bbbb"
AGGREGATE = "00000000-0000-4000-8000-00000000cccc"


@pytest.mark.parametrize(
    ("measured", "total", "is_written"),
    [
        (1000, 1000, False),
        (1010, 1000, False),
        (990, 1000, False),
        (1011, 1000, True),
        (989, 1000, True),
        (99, 99, False),
        (100, 99, True),
        (5, None, True),
    ],
)
def test_a_total_is_written_only_when_it_differs_by_more_than_a_hundredth(
    measured, total, is_written
):
    assert differs(measured, total) is is_written


def test_only_the_total_changes_and_a_greatest_unit_that_was_all_of_it():
    record = complete_record({"total": 10, "reserved": 2, "allocation_ratio": 1.5, "step_size": 2})
    assert with_total(record, 20) == {**record, "total": 20}
    assert with_total({**record, "max_unit": 10}, 20)["max_unit"] == 20
    assert with_total(None, 20) == complete_record({"total": 20})


class Placement:
    """One provider; tells trees as old as a test wants them."""

    def __init__(self, total=100):
        self.generation, self.inventory, self.requests = 7, {}, []
        if total is not None:
            self.inventory = {"DISK_GB": complete_record({"total": total})}
        self.before_write = lambda: None
        providers = SimpleNamespace(inventories=self._read, put_inventories=self._write)
        self.placement = SimpleNamespace(providers=providers)
        self.shares, self.connected = True, True
        self.refresh()

    def refresh(self):
        tree = ProviderTree()
        tree.new_root("host", ROOT, 1)
        tree.new_root("pool", POOL, self.generation)
        tree.update_aggregates(ROOT, {AGGREGATE})
        tree.update_aggregates(POOL, {AGGREGATE} if self.connected else set())
        tree.update_traits(POOL, {SHARING_TRAIT} if self.shares else set())
        tree.update_inventory(POOL, self.inventory)
        self.tree = tree

    def known_tree(self, _root):
        return self.tree

    def tracing(self):
        return nullcontext()

    def set(self, total):
        self.generation += 1
        self.inventory = {"DISK_GB": complete_record({"total": total})}

    def _read(self, uuid, _name):
        assert uuid == POOL
        self.requests.append("GET")
        return AtGeneration(self.generation, self.inventory)

    def _write(self, uuid, _name, generation, inventory):
        self.requests.append("PUT")
        self.before_write()
        if generation != self.generation:
            raise errors.ResourceProviderUpdateConflict("somebody was first")
        self.generation, self.inventory = generation + 1, inventory
        return AtGeneration(self.generation, None)


class Host:
    """A host whose passes and delays a test makes happen."""

    def __init__(self, placement, measured=200):
        self.planned = []
        self.disk = SharedDisk(
            placement,
            POOL,
            spread=60.0,
            later=lambda seconds, call: self.planned.append((seconds, call)),
            rng=random.Random(1),
        )
        self.measured = measured

    def runs_a_pass(self):
        self.disk.after_pass("host", ROOT, {"local_gb": self.measured})

    def time_passes(self):
        planned, self.planned = self.planned, []
        for _seconds, call in planned:
            call()


def test_a_look_that_could_not_be_planned_is_planned_by_the_next_pass():
    def fail(_seconds, _call):
        raise RuntimeError("can't start new thread")

    host = Host(Placement())
    later, host.disk.later = host.disk.later, fail
    with pytest.raises(RuntimeError):
        host.runs_a_pass()
    host.disk.later = later
    host.runs_a_pass()
    assert len(host.planned) == 1


def test_of_two_hosts_one_writes_and_the_other_finds_it_right():
    placement = Placement()
    one, two = Host(placement), Host(placement, measured=201)
    for host in (one, two):
        host.runs_a_pass()
        host.runs_a_pass()
        assert len(host.planned) == 1, "one look at a time"
    assert placement.requests == []
    one.time_passes()
    assert placement.requests == ["GET", "PUT"]
    two.time_passes()
    assert placement.requests == ["GET", "PUT", "GET"]
    for host in (one, two):
        host.runs_a_pass()
        assert not host.planned, "although its tree is as old as before"
    placement.refresh()
    one.runs_a_pass()
    assert not one.planned
    assert placement.inventory["DISK_GB"]["total"] == 200


def test_whoever_is_beaten_to_it_looks_again():
    placement = Placement()
    host = Host(placement)

    def first():
        placement.before_write = lambda: None
        placement.set(200)

    placement.before_write = first
    host.runs_a_pass()
    host.time_passes()
    assert placement.requests == ["GET", "PUT", "GET"]
    assert placement.generation == 8


def test_a_pool_that_grows_later_is_written_again_and_so_is_one_that_others_changed():
    placement = Placement()
    host = Host(placement)
    host.runs_a_pass()
    host.time_passes()
    host.measured = 300
    host.runs_a_pass()
    host.time_passes()
    assert placement.inventory["DISK_GB"]["total"] == 300
    placement.set(5)
    placement.refresh()
    host.runs_a_pass()
    host.time_passes()
    assert placement.inventory["DISK_GB"]["total"] == 300


def test_a_pool_that_is_not_mounted_here_or_is_right_costs_nothing():
    placement = Placement()
    for measured in (0, 100, 101):
        host = Host(placement, measured)
        host.runs_a_pass()
        assert not host.planned
    assert placement.requests == []


def test_a_provider_without_record_gets_one():
    placement = Placement(total=None)
    host = Host(placement)
    host.runs_a_pass()
    host.time_passes()
    assert placement.inventory["DISK_GB"] == complete_record({"total": 200})


@pytest.mark.parametrize("lacking", ["shares", "connected"])
def test_a_provider_that_shares_nothing_with_the_host_is_told_once_and_left_alone(caplog, lacking):
    placement = Placement()
    setattr(placement, lacking, False)
    placement.refresh()
    host = Host(placement)
    for _ in range(3):
        host.runs_a_pass()
    assert not host.planned
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert SHARING_TRAIT in caplog.text


def test_a_look_that_fails_is_told_once_and_made_again(caplog):
    placement = Placement()
    host = Host(placement)

    def broken():
        raise errors.PlacementUnavailable("nobody answers")

    placement.before_write = broken
    for _ in range(2):
        host.runs_a_pass()
        host.time_passes()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    placement.before_write = lambda: None
    host.runs_a_pass()
    host.time_passes()
    assert placement.inventory["DISK_GB"]["total"] == 200
