"""Use of the fleet over the last day and week, and when it is full."""

from __future__ import annotations

from typing import Any

import pytest

from .accessibility import violations
from .conftest import OpenPage

DAY = 24 * 60


def rising(days: int, per_day: float, noise: float = 0) -> tuple[list[int], list[float], list[int]]:
    """Points every hour of some days, of a class whose use grows to 500 of 1000."""
    minutes = list(range(0, days * DAY + 1, 60))
    used = [
        500 - (minutes[-1] - minute) / DAY * per_day + noise * (-1) ** place
        for place, minute in enumerate(minutes)
    ]
    return minutes, used, [1000] * len(minutes)


@pytest.mark.parametrize(
    ("points", "days"),
    [
        (rising(7, 50), 10),
        (rising(7, 50, noise=20), 10),
        (rising(7, 50, noise=2000), None),
        (rising(7, -50), None),
        (rising(7, 0), None),
        (rising(7, 0.001), None),
        (([0, 60, 120], [1, 2, 3], [9, 9, 9]), None),
        (([], [], []), None),
    ],
)
def test_the_days_until_a_class_is_full_follow_a_line_where_one_fits(
    modules: Any, points: tuple[Any, ...], days: int | None
) -> None:
    found = modules("fleet/history.js", "daysUntilFull", *points)
    assert found == days if days is None else abs(found - days) <= 1


def test_the_fleet_shows_day_and_week_of_the_class(open_page: OpenPage) -> None:
    minutes, used, capacity = rising(7, 50)
    asked: list[str] = []

    def prepare(page: Any) -> None:
        def use(route: Any) -> None:
            asked.append(route.request.url)
            route.fulfill(json={"minutes": minutes, "used": used, "capacity": capacity})

        page.route("**/use?*", use)

    page = open_page("#/fleet", prepare=prepare)
    history = page.get_by_role("region", name="Use over time")
    history.get_by_text("Full in about 10 days").wait_for()
    assert history.get_by_role("img").count() == 2
    assert "Last day: 45 % to 50 % in use" in history.inner_text()
    assert violations(page) == []
    assert asked[0].endswith("resource_class=VCPU")
