"""Order of equal hosts for each request: the same everywhere, and stable when hosts change."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.weighers import order
from compute_agent.scheduler.weighers.host_weigher import HostWeigher
from compute_agent.scheduler.weighers.order import WeighingOptions
from tests.unit.scheduler.specs import spec

NAMES = st.lists(st.uuids().map(str), unique=True, max_size=12)


class ByLastDigit(HostWeigher):
    """Weighs a host by its last digit, so that some are equal."""

    option = "last_digit"

    def weigh(self, host: HostState, _spec: RequestSpec) -> float:
        return float(int(host.uuid[-1], 16) // 4)


def ordered(names: list[str], request: str) -> list[str]:
    hosts = [HostState(name, name, {}, ()) for name in names]
    found = order.in_order(
        hosts, spec(), [ByLastDigit()], WeighingOptions(), random.Random(1), request
    )
    return [host.uuid for host in found]


@given(NAMES, st.uuids().map(str), st.randoms(use_true_random=False))
def test_the_order_depends_on_request_and_hosts_and_not_on_that_of_the_answer(
    names: list[str], request: str, chance: random.Random
) -> None:
    shuffled = chance.sample(names, len(names))
    assert ordered(names, request) == ordered(shuffled, request)


@given(NAMES.filter(bool), st.uuids().map(str), st.data())
def test_a_host_that_goes_does_not_reorder_the_others(
    names: list[str], request: str, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(names))
    left = [name for name in names if name != gone]
    assert ordered(left, request) == [name for name in ordered(names, request) if name != gone]


@given(NAMES, st.uuids().map(str))
def test_spreading_never_puts_a_worse_host_before_a_better_one(
    names: list[str], request: str
) -> None:
    weights = [int(name[-1], 16) // 4 for name in ordered(names, request)]
    assert weights == sorted(weights, reverse=True)
