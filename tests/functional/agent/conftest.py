"""Fixtures of the agent's functional tests: one placement for all of them, agents of their own."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compute_agent.placement.connection import Clock
from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.agent.nodes_scene import NodesScene
from tests.functional.agent.processes import AgentProcess, PlacementProcess, running_placement
from tests.functional.either_placement import ours


@pytest.fixture(scope="session")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementProcess]:
    """A placement-server that nobody kills; name what you create so that it is yours alone."""
    with running_placement(tmp_path_factory.mktemp("placement")) as server:
        yield server


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A placement in this process."""
    return ours(tmp_path_factory.mktemp("app"))


@pytest.fixture
def nodes() -> dict[str, str]:
    """Names and uuids of two nodes that no other test uses."""
    return {f"host-{uuid.uuid4().hex[:8]}": str(uuid.uuid4()) for _ in range(2)}


@pytest.fixture
def new_scene(
    app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., NodesScene]]:
    """Makes agents of several nodes in this process, one after the other, with one state."""
    scenes: list[NodesScene] = []

    def make(*options: str) -> NodesScene:
        for scene in scenes:
            scene.parts.close()
        scenes[:] = [NodesScene(app, tmp_path, *options)]
        monkeypatch.setenv("SCRIPTED_DRIVER", str(scenes[0].script_path))
        return scenes[0]

    yield make
    for scene in scenes:
        scene.parts.close()


@pytest.fixture
def scene(new_scene: Callable[..., NodesScene]) -> NodesScene:
    return new_scene()


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are repeated are not waited for."""
    monkeypatch.setattr(Clock, "sleep", lambda _self, _seconds: None)


@pytest.fixture
def node() -> str:
    """A host name that no other test uses."""
    return f"host-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def proxy(placement: PlacementProcess) -> Iterator[LyingProxy]:
    """A way to placement that can be made to lie."""
    between = LyingProxy(placement.url)
    yield between
    between.close()


@pytest.fixture
def new_agent(tmp_path: Path, node: str) -> Iterator[Callable[..., AgentProcess]]:
    """Makes agents that report `node` by the scripted driver; all are killed in the end."""
    made: list[AgentProcess] = []

    def make(placement_url: str, **options: Any) -> AgentProcess:
        directory = tmp_path / f"agent{len(made)}"
        directory.mkdir()
        agent = AgentProcess(directory, placement_url, **options)
        agent.script(nodes=[node])
        made.append(agent)
        return agent

    yield make
    for agent in made:
        agent.cleanup()
