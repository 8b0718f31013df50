"""The length of the ways through the code: modules of a pass, frames of a call to placement."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

import compute_agent
from compute_agent.placement.connection import Connection
from compute_agent.placement.providers import Providers
from compute_agent.placement.transports.keystone import KeystoneTransport
from tests.functional.agent.in_process import Node
from tests.functional.either_placement import ours
from tests.functional.executed_modules import executed_modules

AGENT = {True: 24, False: 26}
"""With whole trees, and without; the server reads bodies by a module of the agent."""
SERVER = 25
FRAMES = 4


@pytest.mark.parametrize("whole_trees", [True, False], ids=["whole trees", "plain"])
def test_a_quiet_pass_runs_through_few_modules(tmp_path: Path, whole_trees: bool) -> None:
    node = Node(ours(tmp_path), tmp_path, whole_trees=whole_trees)
    node.gain_a_gpu()
    for _ in range(4):
        assert node.run().completed
    with executed_modules() as modules:
        assert node.run().completed
    node.parts.close()
    agent, server = modules.of("compute_agent"), modules.of("placement_server")
    assert len(agent) <= AGENT[whole_trees], "\n".join(agent)
    assert len(server) <= SERVER, "\n".join(server)


class Answer:
    """What the HTTP library answers to a write of traits."""

    status_code = 200
    headers: ClassVar[dict[str, str]] = {}
    content = b'{"traits": [], "resource_provider_generation": 1}'


class Wire:
    """The HTTP library, which notes how deep in the project it is called."""

    depth = 0

    def request(self, *_arguments: Any, **_options: Any) -> Answer:
        frame, project = sys._getframe(1), str(Path(compute_agent.__file__).parent)
        while frame.f_code.co_filename.startswith(project) and frame.f_back is not None:
            self.depth += 1
            frame = frame.f_back
        return Answer()


def test_a_write_is_on_the_wire_within_four_frames() -> None:
    wire = Wire()
    providers = Providers(Connection(KeystoneTransport(lambda: wire)))
    providers.put_traits("u", "host", 0, ["CUSTOM_A"])
    assert 0 < wire.depth <= FRAMES
