from collections.abc import Iterator

import pytest

from compute_agent import errors
from compute_agent.cmd.screen import looks


def looked_at(*seen: int | errors.PlacementError) -> tuple[Iterator[int], list[str]]:
    """Return the looks at what is there one time after the other, and what is said meanwhile."""
    left, said = list(seen), list[str]()

    def look() -> int:
        present = left.pop(0)
        if isinstance(present, errors.PlacementError):
            raise present
        return present

    return looks(look, lambda _seconds: not left, 1, said.append), said


def test_placement_that_is_away_is_asked_again_and_that_is_said_once() -> None:
    away = errors.PlacementUnavailable("no route")
    seen, said = looked_at(1, away, away, 2)
    assert list(seen) == [1, 2]
    assert [" ".join(line.split()[1:]) for line in said] == [
        "Placement cannot be read, and is asked again. no route",
        "Placement answers again.",
    ]


def test_a_refused_token_ends_the_looks_as_it_does_not_pass_by_itself() -> None:
    seen, said = looked_at(1, errors.PlacementUnauthorized("the token is refused", status=401), 2)
    assert next(seen) == 1
    with pytest.raises(errors.PlacementUnauthorized, match="the token is refused"):
        next(seen)
    assert said == []
