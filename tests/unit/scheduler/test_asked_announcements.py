"""Announcements that another process has heard."""

from __future__ import annotations

from compute_agent.scheduler.fleet.announcements import Announcements, AskedAnnouncements


def test_a_host_that_goes_on_announcing_itself_stays_alive_for_a_program_that_runs_long() -> None:
    now = [0.0]
    heard = Announcements(lambda: now[0])
    asked: list[float] = []

    def ask() -> list[dict[str, object]]:
        asked.append(now[0])
        return heard.snapshot()

    kept = AskedAnnouncements(ask, lambda: now[0])
    for second in range(0, 300, 5):
        now[0] = float(second)
        if second < 200:
            heard.receive({"host": "h", "nodes": [{"uuid": "a"}]})
        known = kept.of("a")
        assert known is not None
        assert kept.age(known) <= max(10.0, second - 195.0)
        assert kept.all() == {"a": known}
    assert kept.age(known) == 100.0
    assert len(asked) == 30
