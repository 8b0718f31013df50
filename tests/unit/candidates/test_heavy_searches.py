"""Heavy searches run a few at a time; light ones never wait."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from urllib.parse import parse_qsl

import pytest

from placement_server.candidates.errors import TooManyHeavySearches
from placement_server.candidates.limits import Deadline, HeavySearches, SearchEffort
from placement_server.candidates.query.parser import parse
from placement_server.candidates.search.search import Search
from tests.fixtures.clocks import ManualClock

from .forest import Provider, writer_of


@pytest.fixture(autouse=True)
def _usual_switch_interval() -> Iterator[None]:
    usual = sys.getswitchinterval()
    yield
    sys.setswitchinterval(usual)


def heavy_effort(places: HeavySearches, cpu: ManualClock) -> SearchEffort:
    """A search that has used its time and has a place."""
    effort = SearchEffort(places)
    cpu.now += places.seconds
    effort.look(seconds_left=0)
    return effort


def test_a_search_is_heavy_once_it_has_used_the_processor_for_a_while() -> None:
    cpu = ManualClock()
    calls: list[int] = []
    places = HeavySearches(1, 0.1, cpu)
    effort = SearchEffort(places, lambda: calls.append(1))
    cpu.now = 0.09
    effort.look(30)
    assert (effort.heavy, calls) == (False, [])
    cpu.now = 0.1
    effort.look(30)
    effort.look(30)
    assert (effort.heavy, calls) == (True, [1])


def test_a_light_search_goes_on_while_all_places_are_taken() -> None:
    cpu = ManualClock()
    places = HeavySearches(1, 0.1, cpu)
    heavy_effort(places, cpu)
    light = SearchEffort(places)
    light.look(seconds_left=0)
    assert not light.heavy


def test_a_heavy_search_without_a_place_gives_up_at_its_deadline() -> None:
    cpu = ManualClock()
    places = HeavySearches(2, 0.1, cpu)
    first, _second = heavy_effort(places, cpu), heavy_effort(places, cpu)
    with pytest.raises(TooManyHeavySearches, match="2 such searches at a time") as caught:
        heavy_effort(places, cpu)
    assert caught.value.retry_after
    first.end()
    first.end()
    assert heavy_effort(places, cpu).heavy
    with pytest.raises(TooManyHeavySearches):
        heavy_effort(places, cpu)


def test_a_heavy_search_waits_for_a_place_and_lets_others_know_before() -> None:
    cpu = ManualClock()
    places = HeavySearches(1, 0.1, cpu)
    running = heavy_effort(places, cpu)
    about_to_wait = threading.Event()
    waiting = SearchEffort(places, about_to_wait.set)
    cpu.now += 0.1
    thread = threading.Thread(target=waiting.look, args=(60,))
    thread.start()
    assert about_to_wait.wait(60)
    assert not waiting.heavy
    running.end()
    thread.join(60)
    assert waiting.heavy


def test_other_threads_get_the_interpreter_sooner_while_a_heavy_search_runs() -> None:
    cpu, usual = ManualClock(), sys.getswitchinterval()
    places = HeavySearches(2, 0.1, cpu)
    efforts = [heavy_effort(places, cpu), heavy_effort(places, cpu)]
    assert sys.getswitchinterval() < usual
    efforts[0].end()
    assert sys.getswitchinterval() < usual
    efforts[1].end()
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_a_search_looks_at_its_effort_and_a_small_one_has_no_place_to_wait_for() -> None:
    world = [Provider("host"), *(Provider(f"gpu{n}", "host", {"VGPU": 1}) for n in range(8))]
    index = writer_of(world).index
    groups = "&".join(f"resources_{number}=VGPU:1" for number in range(8))
    query = parse(parse_qsl(groups + "&group_policy=isolate"), (1, 39))
    cpu = ManualClock()
    places = HeavySearches(1, 0.1, cpu)
    heavy_effort(places, cpu)
    search = Search(query, index, effort=SearchEffort(places))
    assert len(list(itertools.islice(search.candidates(), 1000))) == 1000
    beginning = SearchEffort(places)
    cpu.now += 0.1
    search = Search(query, index, effort=beginning, deadline=Deadline(0.0, lambda: 0.0))
    with pytest.raises(TooManyHeavySearches):
        list(search.candidates())
