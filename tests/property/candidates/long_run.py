"""Tens of thousands of problems, each put to every comparison with the brute force.

    python -m tests.property.candidates.long_run --seed 1 --problems 10000

Problem number N of a seed is the same in every run. Ends with status 1 at the first difference,
which names it, and how to see it again: `--seed S --first N --problems 1`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.property.candidates import test_capacity, test_closest, test_make_room, test_search
from tests.property.candidates.strategies import (
    Problem,
    SeededChoices,
    fleet_problem_of,
    hungry,
    known_names,
    problem_of,
)
from tests.property.oracle import answer


def body(test: Any) -> Callable[..., None]:
    """The test below hypothesis."""
    inner: Callable[..., None] = test.hypothesis.inner_test
    return inner


WITHOUT_LIMIT = body(
    test_search.test_without_limit_the_search_finds_exactly_what_the_definitions_say
)
UNAWARE = body(test_search.test_nesting_unaware_versions_drop_two_providers_of_one_tree)
VERSIONS = body(test_search.test_every_microversion_renders_the_same_allocations)
LIMIT = body(test_search.test_a_limit_gives_that_many_of_the_results_spread_over_trees)
MAXIMUM = body(test_search.test_a_maximum_ends_generation_before_the_nesting_filter)
CLOSEST = body(test_closest.test_the_changes_found_are_the_smallest_that_give_a_candidate)
CAPACITY = body(test_capacity.test_claims_until_nothing_fits_are_within_the_bounds)
CAPACITY_OF_FLEETS = body(test_capacity.test_claims_on_fleets_are_within_the_bounds)


def compare(choices: SeededChoices, problem: Problem) -> None:
    """Raise AssertionError where search and brute force differ."""
    WITHOUT_LIMIT(problem)
    UNAWARE(problem)
    VERSIONS(problem, choices.integer(10, 39))
    LIMIT(problem, choices.integer(1, 20), choices.integer(0, 1) == 1)
    MAXIMUM(problem, choices.integer(0, 6), *(choices.integer(0, 1) == 1 for _ in range(2)))
    CLOSEST(hungry(choices, problem), choices.integer(0, 3) > 0)
    CAPACITY(problem)
    CAPACITY_OF_FLEETS(fleet_problem_of(choices))
    test_make_room.check(test_make_room.Question(choices))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after these")
    arguments = parser.parse_args()
    results: Counter[str] = Counter()
    ends, done = time.monotonic() + arguments.seconds, 0
    for number in range(arguments.first, arguments.first + arguments.problems):
        choices = SeededChoices(f"{arguments.seed}/{number}")
        problem = problem_of(choices)
        try:
            compare(choices, problem)
        except BaseException:
            sys.stderr.write(f"--seed {arguments.seed} --first {number} --problems 1\n")
            raise
        count = len(answer(*known_names(problem), nested=True))
        results["none" if not count else "1 to 9" if count < 10 else "10 or more"] += 1
        done += 1
        if time.monotonic() > ends:
            break
    sys.stdout.write(
        f"seed {arguments.seed}, problems {arguments.first} to {arguments.first + done - 1}: "
        f"{done:,} equal; candidates in the answer: {dict(results)}\n"
    )


if __name__ == "__main__":
    main()
