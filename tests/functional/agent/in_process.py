"""One agent without its process: all real parts but the network between it and placement."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from oslo_config import cfg

from compute_agent.agent import assembly
from compute_agent.agent.assembly import AgentParts
from compute_agent.conf import new_config
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import Request, Response, Transport
from compute_agent.tracker.pass_attempt import PassResult
from compute_agent.virt.fake.topology import MachineSize, fake_topology

SMALL = MachineSize(cells=1, gpus=0, nics=0)


class LyingTransport:
    """Passes requests on, but for those whose answer a test takes away.

    `before` is told method and path of every request that is passed on, before it is; `after` gets
    method, path and the answer, and may raise in its place.
    """

    def __init__(self, behind: Transport) -> None:
        self._behind = behind
        self._lie: tuple[str, str, Callable[[], Response]] | None = None
        self.told = 0
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        self.after: Callable[[str, str, Response], None] = lambda _method, _path, _answer: None

    def lie(self, method: str, path: str, answer: Callable[[], Response]) -> None:
        self._lie, self.told = (method, path, answer), 0

    def honest(self) -> None:
        self._lie = None

    def send(self, request: Request) -> Response:
        method, path = request.method, request.path
        if self._lie is not None:
            lied_method, pattern, answer = self._lie
            if re.fullmatch(lied_method, method) and re.search(pattern, path):
                self.told += 1
                return answer()
        self.before(method, path)
        answer = self._behind.send(request)
        self.after(method, path, answer)
        return answer


def assembled(
    directory: Path, transport: Transport, defaults: str, *, compute: str = ""
) -> tuple[cfg.ConfigOpts, AgentParts]:
    """The options and the parts of an agent whose state is below a directory.

    :param defaults: lines of [DEFAULT], and more sections if need be.
    :param compute: lines of [compute], likewise.
    """
    path = directory / "agent.conf"
    path.write_text(
        f"[DEFAULT]\nstate_path = {directory}/state\n{defaults}"
        f"[compute]\nprovider_config_location = {directory}/none\n{compute}"
    )
    conf = new_config([f"--config-file={path}"], default_config_dirs=[])
    return conf, assembly.build(conf, transport=transport)


class Node:
    """One agent without its process: a start is the first pass, a period any later one.

    :param app: the placement, in this process or behind a transport.
    :param whole_trees: it reads whole trees, else it speaks the plain API.
    """

    def __init__(
        self,
        app: Any,
        directory: Path,
        *,
        name: str | None = None,
        extra: str = "",
        whole_trees: bool = False,
    ) -> None:
        self.name = name or f"host-{uuid.uuid4().hex[:8]}"
        self.state = directory / "state"
        self.transport = LyingTransport(app if hasattr(app, "send") else InProcessTransport(app))
        _, self.parts = assembled(
            directory,
            self.transport,
            f"host = {self.name}\n"
            "compute_driver = fake.FakeMisbehavingDriver\nperiodic_fuzzy_delay = 0\n"
            "[fake]\nfailing_method = nothing\ngpus = 0\nnics = 0\ncells = 1\n"
            f"[compute_agent]\nuse_placement_extensions = {'auto' if whole_trees else 'never'}\n",
            compute=extra,
        )
        self.driver: Any = self.parts.driver
        self.tracker = self.parts.tracker(wait=lambda _seconds: False)
        ((name, self.uuid),) = self.parts.setup.nodes().items()
        self.tracker.add_node(name, self.uuid)

    def run(self) -> PassResult:
        return self.tracker.run_pass(self.name)

    def start_again(self) -> None:
        """What is known of placement and of earlier passes is forgotten, as in a new process."""
        self.parts.report.drop_cache()
        self.tracker = self.parts.tracker(wait=lambda _seconds: False)
        self.tracker.add_node(self.name, self.uuid)

    @property
    def is_starting(self) -> bool:
        return bool(self.tracker.in_startup())

    def gain_a_gpu(self) -> None:
        """Let a pass have something to create, an inventory and traits to write."""
        self.driver.machine = fake_topology(self.name, replace(SMALL, gpus=1))

    def has_a_gpu(self) -> bool:
        tree = self.parts.report.get_provider_tree(self.uuid, fresh=True)
        return any("VGPU" in tree.data(uuid).inventory for uuid in tree.get_provider_uuids())

    def is_made_good(self) -> bool:
        """Whether the next pass, with nothing in its way, completes."""
        self.transport.honest()
        self.driver.misbehave()
        return self.run().completed and self.has_a_gpu() and not self.is_starting
