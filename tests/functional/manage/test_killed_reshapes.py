"""`migrate_compute_inventory` killed at each step of a reshape, and completed by the next run."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain, cycle

import pytest

from tests.fixtures.databases import fresh_database
from tests.functional import class_changes
from tests.functional.class_changes import PIVOTS, Pivot
from tests.functional.manage import reshaping_host
from tests.functional.manage.conftest import Operator
from tests.functional.manage.reshaping_host import sums

pytestmark = pytest.mark.waiting

CELLS = "cells"
CHANGES = (CELLS, "FPGA", "move and rename", "x1000 to a card", "/2")


@pytest.fixture(params=["sqlite", "whole trees", "postgresql", "mariadb", "published"])
def road(
    request: pytest.FixtureRequest, new_operator: Callable[..., Operator]
) -> Iterator[tuple[Operator, tuple[str, ...]]]:
    """An operator, and the places where the program is killed again and again."""
    if request.param == "published":
        yield new_operator(request.getfixturevalue("published").url), ("1:answer",)
        return
    is_whole = request.param == "whole trees"
    with ExitStack() as opened:
        url = None
        if request.param in ("postgresql", "mariadb"):
            server = request.getfixturevalue(f"{request.param}_server")
            url = opened.enter_context(fresh_database(server, migrated=True))
        operator = new_operator(connection=url)
        extensions = "auto" if is_whole else "never"
        operator.configure(compute_agent={"use_placement_extensions": extensions})
        yield operator, ("1:commit", "1:answer")


def will_report(operator: Operator, change: str, *, after: bool) -> None:
    """Make the next start report the host as it is before or after a change."""
    if change == CELLS:
        reshaping_host.will_report(operator, "nested" if after else "flat")
    else:
        operator.configure(DEFAULT={"compute_driver": class_changes.DRIVER})
        class_changes.will_report(operator.state, PIVOTS[change], after=after)


def occupied(operator: Operator, change: str) -> list[str]:
    """Report the host as it is before, with guests; the guests."""
    if change == CELLS:
        return reshaping_host.occupied(operator)
    will_report(operator, change, after=False)
    assert operator.migrate().status == 0
    root = operator.placement.providers(operator.name)[operator.name]["uuid"]
    claims = [{root: {"VCPU": 1, PIVOTS[change].old: amount}} for amount in (2, 4)]
    return [operator.placement.claim(resources) for resources in claims]


@pytest.mark.parametrize("change", CHANGES)
def test_a_reshape_killed_between_any_two_writes_is_completed_by_the_next_run(
    road: tuple[Operator, tuple[str, ...]], change: str
) -> None:
    operator, places = road
    guests = occupied(operator, change)
    before = [sums(operator, guest) for guest in guests]
    pivot = PIVOTS.get(change, Pivot("", ""))
    after = [
        Counter(
            {
                pivot.new if name == pivot.old else name: int(
                    amount * (pivot.factor if name == pivot.old else 1)
                )
                for name, amount in held.items()
            }
        )
        for held in before
    ]
    kills = 0
    # the first is killed before it wrote anything, and each one then in a write or after one more
    for place in chain(["1"], cycle(places)):
        will_report(operator, change, after=True)
        if operator.run_killed_before_write(place).status != -signal.SIGKILL:
            break
        kills += 1
        assert [sums(operator, guest) for guest in guests] in (before, after)
    assert kills > 1
    assert [sums(operator, guest) for guest in guests] == after
    will_report(operator, change, after=True)
    assert operator.migrate("--json").document["nodes"][0]["operations"] == []
    end = "_NUMA0" if change == CELLS else f"_{pivot.to}" if pivot.to else ""
    holder = operator.placement.providers(operator.name)[f"{operator.name}{end}"]
    assert all(holder["uuid"] in operator.placement.held(guest) for guest in guests)
    if change != CELLS:
        assert holder["inventories"][pivot.new]["total"] == pivot.new_total
