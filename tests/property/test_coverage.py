"""Setting allocations against a need loses nothing and counts nothing twice."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.drift.healing.coverage import cover
from compute_agent.placement.allocations.amounts import Amounts, add, without_zeros
from compute_agent.request.candidate_request import RequestGroup
from tests.unit.manage.needs import need

CLASSES = st.sampled_from(["VCPU", "VGPU", "DISK_GB"])
AMOUNTS = st.dictionaries(CLASSES, st.integers(1, 4), max_size=3)
HOLDINGS = st.dictionaries(st.sampled_from(["a", "b", "c"]), AMOUNTS, max_size=3)
GROUPS = st.dictionaries(
    st.sampled_from(["_A", "_B"]),
    st.dictionaries(CLASSES, st.integers(1, 3), min_size=1, max_size=2).map(
        lambda resources: RequestGroup(resources)
    ),
)


def by_class(held: Amounts) -> Counter[str]:
    sums: Counter[str] = Counter()
    for amounts in held.values():
        sums.update(amounts)
    return sums


@given(AMOUNTS, GROUPS, HOLDINGS)
def test_what_is_kept_and_what_is_missing_make_the_need_and_nothing_held_is_lost(
    unsuffixed: dict[str, int], groups: dict[str, RequestGroup], held: dict[str, dict[str, int]]
) -> None:
    wanted = need(unsuffixed, **groups)
    covered = cover(wanted, held)
    assert add(covered.kept_amounts, covered.surplus) == without_zeros(held)
    lacking = covered.missing_request.resources if covered.missing_request is not None else {}
    assert by_class(covered.kept_amounts) + Counter(lacking) == Counter(wanted.resources)
    for suffix, provider in covered.mappings.items():
        kept = covered.kept_amounts[provider]
        assert all(kept[name] >= n for name, n in wanted.groups[suffix].resources.items())
    if not groups:
        assert cover(wanted, add(covered.kept_amounts, {"new": lacking})).missing_request is None
