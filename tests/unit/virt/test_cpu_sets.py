"""CPU sets: their syntax, and which CPUs of a machine guests get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute_agent import errors
from compute_agent.discovery import cpu_list
from compute_agent.virt.cpu_sets import CpuSets, guest_cpus, parse_cpu_set


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("4-12,^8,15", {4, 5, 6, 7, 9, 10, 11, 12, 15}),
        ("^8,4-9", {4, 5, 6, 7, 9}),
        (" 0 , 2 - 3 ,", {0, 2, 3}),
        ("0-7,^2-5", {0, 1, 6, 7}),
        ("3", {3}),
    ],
)
def test_a_set_is_ranges_without_exclusions(text: str, cpus: set[int]) -> None:
    assert parse_cpu_set(text, "[compute]cpu_shared_set") == cpus


@pytest.mark.parametrize(
    "text", ["a", "1-", "-1", "1-2-3", "4-2", "^", "1;2", "0x3", "1,^1", "70000"]
)
def test_a_wrong_set_is_refused_naming_the_option_and_the_value(text: str) -> None:
    with pytest.raises(errors.InvalidConfiguration) as caught:
        parse_cpu_set(text, "[compute]cpu_shared_set")
    assert "[compute]cpu_shared_set" in str(caught.value)
    assert repr(text) in str(caught.value)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_a_set_written_out_reads_back_equal(cpus: set[int]) -> None:
    assert parse_cpu_set(cpu_list.write(cpus), "x") == cpus


def test_overlapping_sets_are_refused_naming_the_common_cpus() -> None:
    with pytest.raises(errors.InvalidConfiguration, match=r"2-3"):
        CpuSets(frozenset({1, 2, 3}), frozenset({2, 3, 4}))


SHARED = frozenset({0, 1, 9})
DEDICATED = frozenset({2, 3})


@pytest.mark.parametrize(
    ("sets", "vcpu", "pcpu"),
    [
        (CpuSets(), {0, 1, 2, 3}, set()),
        (CpuSets(shared_cpus=SHARED), {0, 1}, set()),
        (CpuSets(dedicated_cpus=DEDICATED), set(), {2, 3}),
        (CpuSets(SHARED, DEDICATED), {0, 1}, {2, 3}),
    ],
)
def test_the_sets_decide_what_is_shared_and_what_dedicated(
    sets: CpuSets, vcpu: set[int], pcpu: set[int]
) -> None:
    cpus = guest_cpus(sets, online=range(4), present=range(4))
    assert (cpus.shared_cpus, cpus.dedicated_cpus) == (vcpu, pcpu)


def test_a_dedicated_cpu_that_is_offline_is_refused_by_number() -> None:
    with pytest.raises(errors.InvalidConfiguration, match=r"CPUs 3, which are not online"):
        guest_cpus(CpuSets(dedicated_cpus=DEDICATED), online=range(3), present=range(4))


def test_with_power_management_a_dedicated_cpu_may_be_offline_but_must_be_present() -> None:
    sets = CpuSets(dedicated_cpus=DEDICATED)
    cpus = guest_cpus(sets, online=range(2), present=range(4), power_management=True)
    assert cpus.dedicated_cpus == {2, 3}
    with pytest.raises(errors.InvalidConfiguration, match=r"not present"):
        guest_cpus(sets, online=range(2), present=range(3), power_management=True)
