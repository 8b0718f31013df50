"""Every row of the table of a start and a period, with all real parts but the network between.

A driver that misbehaves as told, and a placement whose answers are taken away, at a start and in a
period: what is fatal where, what is waited for, and that the next pass makes it good.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compute_agent import agent_parts, errors
from compute_agent.conf import new_config
from compute_agent.report.retries import SystemClock
from compute_agent.report.transport import InProcessTransport, Response, make_response
from compute_agent.tracker.decisions import ExitCode
from compute_agent.tracker.resource_tracker import PassResult
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from compute_agent.virt.fake.topology_drivers import Misdeed
from placement_server.app import build_app
from placement_server.conf import new_config as new_server_config

SMALL = MachineSize(cells=1, gpus=0, nics=0)


class LyingTransport:
    """Passes requests on, but for those whose answer a test takes away."""

    def __init__(self, behind: InProcessTransport) -> None:
        self._behind = behind
        self._lie: tuple[str, str, Callable[[], Response]] | None = None
        self.told = 0

    def lie(self, method: str, path: str, answer: Callable[[], Response]) -> None:
        self._lie, self.told = (method, path, answer), 0

    def honest(self) -> None:
        self._lie = None

    def request(self, method: str, path: str, *arguments: Any, **named: Any) -> Response:
        if self._lie is not None:
            lied_method, pattern, answer = self._lie
            if method == lied_method and re.search(pattern, path):
                self.told += 1
                return answer()
        return self._behind.request(method, path, *arguments, **named)


class Node:
    """One agent without its process: a start is the first pass, a period any later one."""

    def __init__(self, app: Any, directory: Path) -> None:
        self.name = f"host-{uuid.uuid4().hex[:8]}"
        path = directory / "agent.conf"
        path.write_text(
            f"[DEFAULT]\nhost = {self.name}\nstate_path = {directory}/state\n"
            "compute_driver = fake.FakeMisbehavingDriver\nperiodic_fuzzy_delay = 0\n"
            "[fake]\nfailing_call = 1000000\ngpus = 0\nnics = 0\ncells = 1\n"
            f"[compute]\nprovider_config_location = {directory}/none\n"
        )
        self.transport = LyingTransport(InProcessTransport(app))
        conf = new_config([f"--config-file={path}"], default_config_dirs=[])
        self.parts = agent_parts.build(conf, transport=self.transport)
        self.driver: Any = self.parts.driver
        self.tracker = self.parts.tracker(is_enabled=lambda: True, wait=lambda _seconds: False)
        ((name, self.uuid),) = self.parts.setup.nodes().items()
        self.tracker.add_node(name, self.uuid)

    def run(self) -> PassResult:
        return self.tracker.run_pass(self.name)

    @property
    def is_starting(self) -> bool:
        return self.tracker.in_startup()

    def gain_a_gpu(self) -> None:
        """Let a pass have something to create, an inventory and traits to write."""
        self.driver.machine = fake_topology(self.name, replace(SMALL, gpus=1))

    def has_a_gpu(self) -> bool:
        tree = self.parts.report.get_provider_tree(self.uuid, fresh=True)
        return any("VGPU" in tree.data(each).inventory for each in tree.get_provider_uuids())

    def is_made_good(self) -> bool:
        """Whether the next pass, with nothing in its way, completes."""
        self.transport.honest()
        self.driver.misbehave()
        return self.run().completed and self.has_a_gpu() and not self.is_starting


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    conf = new_server_config(config_files=[])
    for name, value in {
        "connection": f"sqlite:///{tmp_path_factory.mktemp('rows')}/placement.db",
        "sync_on_startup": True,
        "sqlite_synchronous": False,
    }.items():
        conf.set_override(name, value, group="placement_database")
    return build_app(conf, auth_strategy="noauth2")


@pytest.fixture
def node(app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(SystemClock, "sleep", lambda _self, _seconds: None)
    made = Node(app, tmp_path)
    yield made
    made.parts.close()


# -- the driver ----------------------------------------------------------------------------------

DRIVER_ROWS = [
    # what it raises, how often, exit status at a start (None: it stays a start), level in a period
    (errors.ReshapeNeeded("VGPU moved"), 0, ExitCode.RESHAPE_FAILED, logging.ERROR),
    (errors.ReshapeFailed("consumer x"), 0, ExitCode.RESHAPE_FAILED, logging.ERROR),
    (errors.InvalidConfiguration("bad"), 0, ExitCode.CONFIGURATION, logging.ERROR),
    (errors.PciConfigurationConflict("bad"), 0, ExitCode.CONFIGURATION, logging.ERROR),
    (errors.ProviderConfigConflict("bad"), 0, ExitCode.CONFIGURATION, logging.ERROR),
    (errors.InvalidNodeConfiguration("bad"), 0, ExitCode.IDENTITY, logging.ERROR),
    (RuntimeError("broken"), 0, ExitCode.DRIVER_FAILED, logging.ERROR),
    (errors.InvalidInput("broken"), 0, ExitCode.DRIVER_FAILED, logging.ERROR),
    (errors.VirtDriverNotReady("wait"), 0, None, logging.WARNING),
    (errors.HypervisorUnavailable("wait"), 0, None, logging.WARNING),
    (errors.ComputeHostNotFound("who"), 0, None, logging.WARNING),
]
driver_rows = pytest.mark.parametrize(
    ("error", "calls", "code", "level"),
    DRIVER_ROWS,
    ids=[type(error).__name__ for error, *_rest in DRIVER_ROWS],
)


@driver_rows
def test_a_driver_that_misbehaves_at_a_start(node, error, calls, code, level):
    node.gain_a_gpu()
    node.driver.misbehave(Misdeed("update_provider_tree", error, calls=calls))
    result = node.run()
    assert result.exit_code == code
    assert node.is_starting
    assert not node.has_a_gpu(), "nothing of a tree half edited is flushed"
    assert node.is_made_good()


@driver_rows
def test_a_driver_that_misbehaves_in_a_period(node, error, calls, code, level, caplog):
    assert node.run().completed
    node.gain_a_gpu()
    node.driver.misbehave(Misdeed("update_provider_tree", error, calls=calls))
    for _ in range(2):
        result = node.run()
        assert result.exit_code is None
        assert not result.completed
        assert not node.has_a_gpu()
    told = [r for r in caplog.records if r.levelno >= logging.WARNING and node.name in r.message]
    assert [record.levelno for record in told] == [level], "once, though it lasts"
    pending = isinstance(error, errors.ReshapeNeeded)
    assert node.parts.board.node(node.name).reshape_pending is pending
    assert node.is_made_good()
    assert not node.parts.board.node(node.name).reshape_pending


def test_a_reshape_asked_for_by_the_first_call_of_a_start_is_done_with_the_second(node, caplog):
    caplog.set_level(logging.INFO)
    node.driver.misbehave(Misdeed("update_provider_tree", errors.ReshapeNeeded("VGPU"), calls=1))
    assert node.run().completed
    assert not node.is_starting
    assert "being migrated to a new layout" in caplog.text


def test_a_reshape_asked_for_in_a_reload_is_none_of_a_start(node):
    assert node.run().completed
    node.parts.reload()
    node.driver.misbehave(Misdeed("update_provider_tree", errors.ReshapeNeeded("VGPU"), calls=1))
    assert not node.run().completed
    assert node.parts.board.node(node.name).reshape_pending


# -- placement -----------------------------------------------------------------------------------


def refusal(status: int, code: str = "placement.undefined_code") -> Callable[[], Response]:
    entry = {"status": status, "title": "t", "detail": "scripted", "code": code, "request_id": "r"}
    return lambda: make_response(status, [], json.dumps({"errors": [entry]}))


def silence() -> Response:
    raise errors.PlacementAPIConnectFailure("the connection was closed without an answer")


ANSWERS = {
    "400": (refusal(400), ExitCode.PLACEMENT_REJECTED),
    "401": (refusal(401), ExitCode.PLACEMENT_REJECTED),
    "403": (refusal(403), ExitCode.PLACEMENT_REJECTED),
    "404": (refusal(404), ExitCode.PLACEMENT_REJECTED),
    "409": (refusal(409), ExitCode.PLACEMENT_REJECTED),
    "409 conflict": (refusal(409, "placement.concurrent_update"), ExitCode.PLACEMENT_REJECTED),
    "500": (refusal(500), None),
    "503": (refusal(503), None),
    "500 of a proxy": (lambda: make_response(500, [], "<html>"), None),
    "garbage": (lambda: make_response(200, [], "<html>log in</html>"), 3),
    "empty": (lambda: make_response(200, [], ""), 3),
    "nothing": (silence, None),
}
CALLS = {
    "the probe": ("GET", "in_tree="),
    "a new provider": ("POST", "^/resource_providers$"),
    "inventories": ("PUT", "/inventories$"),
    "traits": ("PUT", "/traits$"),
}
placement_rows = pytest.mark.parametrize(
    ("answer", "call"), [(answer, call) for answer in ANSWERS for call in CALLS]
)


@placement_rows
def test_a_placement_that_answers_so_at_a_start(node, answer, call):
    node.gain_a_gpu()
    given, code = ANSWERS[answer]
    node.transport.lie(*CALLS[call], given)
    result = node.run()
    assert node.transport.told
    assert result.exit_code == code
    assert not result.completed
    assert node.is_starting
    if code is None:
        assert result.next_in <= 60.0, "it is waited for"
    assert node.is_made_good()


@placement_rows
def test_a_placement_that_answers_so_in_a_period(node, answer, call):
    assert node.run().completed
    node.gain_a_gpu()
    given, _code = ANSWERS[answer]
    node.transport.lie(*CALLS[call], given)
    result = node.run()
    assert node.transport.told
    assert result.exit_code is None
    assert not result.completed
    assert not node.is_starting
    assert node.parts.board.node(node.name).trouble is not None
    assert node.is_made_good()
    assert node.parts.board.node(node.name).trouble is None
