"""Required traits of the unsuffixed group, which any of its providers may have."""

from __future__ import annotations

import numpy as np

from placement_server.candidates.capacity.bounds import Counts
from placement_server.candidates.capacity.rows import Groups, Rows
from placement_server.candidates.index.arrays import BoolArray, IntArray
from placement_server.candidates.query.compiled import Plan
from placement_server.candidates.search.eligible import Eligible


def narrow_to_terms(
    plan: Plan, eligible: Eligible, rows: Rows, counts: Counts, groups: Groups
) -> tuple[list[IntArray], BoolArray]:
    """Leave of each item what meets the terms, where one item alone can meet them.

    :returns: the counts; and by tree, whether it depends on the choice of several providers
        whether the terms are met: then only the most that is counted holds.
    """
    narrowed_counts = list(counts)
    unsure = np.zeros(groups.count, dtype=bool)
    unsuffixed_items = [number for number, item in enumerate(plan.items) if not item.is_suffixed]
    for term in eligible.terms:
        having = term[rows.slot]
        always = np.zeros(groups.count, dtype=bool)
        ways = np.zeros(groups.count, dtype=np.int64)
        meeting: dict[int, BoolArray] = {}
        for item in unsuffixed_items:
            serving = narrowed_counts[item] > 0
            few = groups.total(serving & having)
            meeting[item] = few > 0
            always |= meeting[item] & (few == groups.total(serving))
            ways += meeting[item]
        for item, some in meeting.items():
            # Where no item can, not even this one is left.
            alone = ~always & ((ways == 0) | (ways == 1) & some)
            if alone.any():
                narrowed_counts[item] = np.where(
                    alone[rows.tree] & ~having, 0, narrowed_counts[item]
                )
        unsure |= ~always & (ways > 1)
    return narrowed_counts, unsure
