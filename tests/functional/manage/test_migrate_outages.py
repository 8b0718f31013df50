"""`migrate_compute_inventory` while placement goes away: all is as it was, or all is done."""

import json
import threading
from itertools import count
from pathlib import Path

import pytest

from compute_agent import errors
from compute_agent.placement.connection import Clock
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import Request, Response
from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.manage.conftest import Operator, Result
from tests.functional.manage.reshaping_host import occupied, sums, will_report

pytestmark = pytest.mark.waiting

OTHER = {"flat": "nested", "nested": "flat"}


class Outage:
    """Placement in this process, which is not there from a certain request of a command on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lock = threading.Lock()
        self._left: int | None = None
        self._answer_lost = False
        forward = InProcessTransport.send

        def send(transport: InProcessTransport, request: Request) -> Response:
            with self._lock:
                if self._left is None:
                    return forward(transport, request)
                self._left -= 1
                if self._left >= 0 or (self._left == -1 and self._answer_lost):
                    answer = forward(transport, request)
                if self._left >= 0:
                    return answer
            raise errors.PlacementAPIConnectFailure("placement went away")

        monkeypatch.setattr(InProcessTransport, "send", send)

    def begins_after(self, requests: int, *, answer_lost: bool) -> None:
        """Let so many requests through.

        :param answer_lost: the next one still arrives; only its answer does not.
        """
        self._left, self._answer_lost = requests, answer_lost

    def ends(self) -> None:
        self._left = None


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "sleep", lambda _self, _seconds: None)


def migrated_to(operator: Operator, layout: str) -> Result:
    will_report(operator, layout)
    return operator.migrate("--json")


def layout_of(operator: Operator, guests: list[str]) -> str:
    """In which of the layouts placement has the host, which must be one of them in everything."""
    tree = operator.placement.providers(operator.name)
    root, cell = tree[operator.name], tree.get(f"{operator.name}_NUMA0")
    counted = {
        provider["uuid"]
        for provider in (root, cell)
        if provider and "VCPU" in provider["inventories"]
    }
    held = {provider for guest in guests for provider in operator.placement.held(guest)}
    assert held == counted
    return "flat" if held == {root["uuid"]} else "nested"


@pytest.mark.parametrize("extensions", ["never", "auto"], ids=["plain", "whole trees"])
@pytest.mark.parametrize("answer_lost", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("wanted", ["nested", "flat"])
def test_wherever_an_outage_begins_the_next_run_finishes_what_it_interrupted(
    offline: Operator, outage: Outage, wanted: str, answer_lost: bool, extensions: str
) -> None:
    offline.configure(compute_agent={"use_placement_extensions": extensions})
    guests = occupied(offline)
    before = [sums(offline, guest) for guest in guests]
    found = set()
    for requests in count():
        assert migrated_to(offline, OTHER[wanted]).status == 0
        outage.begins_after(requests, answer_lost=answer_lost)
        result = migrated_to(offline, wanted)
        outage.ends()
        if result.status == 0:
            break
        assert result.status == 4, result.err
        assert "placement went away" in result.err
        found.add(layout_of(offline, guests))
        assert migrated_to(offline, wanted).status == 0
        assert layout_of(offline, guests) == wanted
        assert [sums(offline, guest) for guest in guests] == before
    assert migrated_to(offline, wanted).document["nodes"][0]["operations"] == []
    assert found == {"flat", "nested"}, "outages before the reshape and after it"


@pytest.mark.parametrize("arrives", [False, True], ids=["reshape lost", "answer lost"])
def test_a_server_that_is_back_at_once_is_asked_what_became_of_the_reshape(
    online: Operator, placement_url: str, arrives: bool
) -> None:
    guests = occupied(online)
    proxy = LyingProxy(placement_url)
    try:
        online.configure(placement={"endpoint_override": proxy.url})
        proxy.answer("POST", "^/reshaper$", None, after=arrives, times=1)
        result = migrated_to(online, "nested")
    finally:
        proxy.close()
    if arrives:
        assert result.status == 0
        assert result.document["nodes"][0]["reshaped"]
    else:
        assert result.status == 4
        assert "the layout is still the old one" in result.err
    assert layout_of(online, guests) == ("nested" if arrives else "flat")


def test_nodes_that_were_done_before_an_outage_are_told(
    offline: Operator, outage: Outage, tmp_path: Path
) -> None:
    offline.configure(DEFAULT={"compute_driver": "fake.FakeManyNodesDriver"}, fake={"nodes": 2})
    plan = tmp_path / "plan.json"
    for requests in count():
        outage.begins_after(requests, answer_lost=False)
        result = offline.migrate("--json", "--plan", str(plan))
        outage.ends()
        if result.out or result.status == 0:
            break
    assert result.status == 4
    assert "placement went away" in result.err
    (node,) = result.document["nodes"]
    assert offline.placement.providers(node["node"])
    assert node["operations"]
    assert json.loads(plan.read_text()) == result.document
