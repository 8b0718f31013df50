"""Tests of the count by which an agent takes another writer for one that undoes what it writes."""

from itertools import chain
from types import SimpleNamespace

import pytest
from msgspec.structs import astuple

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.report.diff import diff
from compute_agent.tracker.place import Place
from compute_agent.tracker.write_contest import WriteContest
from tests.unit.tracker.scripted_pass import UUID


def tree(**totals: int) -> ProviderTree:
    made = ProviderTree()
    made.new_root("host1", UUID, 1)
    made.update_inventory("host1", {name: {"total": total} for name, total in totals.items()})
    return made


OURS = tree(VCPU=8, DISK_GB=20)
FOUND = {
    "v": tree(VCPU=4, DISK_GB=20),
    "d": tree(VCPU=8, DISK_GB=10),
    "b": tree(VCPU=4, DISK_GB=10),
}


@pytest.mark.parametrize(
    ("passes", "is_stopped"),
    [
        ("vvv", True),
        ("vv", False),
        ("v.v.v", True),  # passes of both that fall together
        ("vov.v", True),
        ("vv..v", False),
        ("v..v..v..v", False),  # by hand, now and then
        ("vdv", False),
        ("vbv", True),
        ("vbd", False),
        ("vvddd", True),
    ],
)
def test_an_agent_stops_once_the_same_was_undone_three_times(passes: str, is_stopped: bool) -> None:
    """v, d, b: VCPU, DISK_GB, both were undone; o: the host changed; a dot: nothing did."""
    client = SimpleNamespace(
        placement=SimpleNamespace(trees=SimpleNamespace(agent_reports=lambda _roots: {}))
    )
    place = Place("192.0.2.1", "machine", "boot", "/var/lib/compute-agent")
    contest = WriteContest(client, place)  # type: ignore[arg-type]
    for undone in passes:
        contest.check(UUID)
        if undone == ".":
            contest.rest(UUID)
        elif undone == "o":
            contest.record(UUID, OURS, OURS, chain(*astuple(diff(OURS, tree(VCPU=9, DISK_GB=20)))))
        else:
            contest.record(UUID, OURS, FOUND[undone], chain(*astuple(diff(FOUND[undone], OURS))))
    if not is_stopped:
        contest.check(UUID)
        return
    with pytest.raises(errors.InvalidNodeConfiguration, match=r"undid 3 times in a row"):
        contest.check(UUID)
