"""The kernel's lists of CPUs and nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute_agent.discovery.sysfs import cpu_list


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", ()),
        ("\n", ()),
        ("0", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("8,0-3\n", (0, 1, 2, 3, 8)),
        ("0-1,1-2", (0, 1, 2)),
        ("0-7:2/4", (0, 1, 4, 5)),
    ],
)
def test_reads_every_form_the_kernel_writes(text: str, numbers: tuple[int, ...]) -> None:
    assert cpu_list.parse(text) == numbers


@pytest.mark.parametrize(
    "text", ["a", "3-1", "-1", "1-", "0-99999999", "1;2", "0x3", "\u0663", "1-\uff13"]
)
def test_refuses_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match="is n"):
        cpu_list.parse(text)


@given(st.sets(st.integers(0, 4096)))
def test_reads_back_any_set_written_number_by_number(numbers: set[int]) -> None:
    assert cpu_list.parse(",".join(map(str, numbers))) == tuple(sorted(numbers))


@given(st.sets(st.integers(0, 4096)))
def test_a_mask_has_the_numbers_of_the_list(numbers: set[int]) -> None:
    text = cpu_list.write(numbers)
    assert cpu_list.mask(text) == sum(1 << number for number in numbers)
