"""One development run: placement-server, agent and scheduler, and their output."""

from __future__ import annotations

import json
import logging
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from compute_agent.cmd.dev.child import Child
from compute_agent.cmd.dev.claim_view import print_claim
from compute_agent.cmd.dev.errors import DevFailed, DevInterrupted
from compute_agent.cmd.dev.next_steps import next_steps
from compute_agent.cmd.dev.ready_socket import ReadySocket
from compute_agent.cmd.dev.sample import sample_resources
from compute_agent.cmd.dev.state_directory import WEB_PATH, StateDirectory
from compute_agent.cmd.trees.full_view import provider_tree
from compute_agent.manage.tree_reading import ProviderLines, read_tree
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Request

LISTENING = re.compile(r"^placement-server: listening on (\S+)$", re.MULTILINE)
START_SECONDS = 120.0
"""Limit for a slow or busy machine; a start takes a few seconds."""
_OWNER = "compute-agent-dev"
_WATCH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class DevOptions:
    """Options of a run."""

    state: StateDirectory
    port: int
    interval: int
    once: bool
    nested: bool


class DevRun:
    """A run that starts everything, shows it, and stays up until it is stopped."""

    def __init__(self, options: DevOptions, console: Console, stop: threading.Event) -> None:
        self._options = options
        self._state = options.state
        self._console = console
        self._stop = stop
        self._children: list[Child] = []

    def run(self) -> None:
        """Run until `stop` is set; with ``once`` only through the demonstration.

        :raises DevFailed: something did not start, or ended by itself.
        :raises DevInterrupted: `stop` was set before everything was shown.
        :raises ComputeAgentError: the sample claim failed.
        """
        with ExitStack() as stack:
            self._state.prepare()
            stack.enter_context(self._state.locked())
            # the agent goes first, so that it does not see placement vanish
            stack.callback(self._stop_children)
            url = self._start_placement()
            self._state.write_agent_config(url, self._options.interval, nested=self._options.nested)
            self._start_agent()
            connection = Connection(KeystoneTransport.to_endpoint(url))
            root = self._root()
            providers = self._tree(connection, root)
            self._show(Text.assemble("Placement API  ", (url, "bold")))
            self._console.print(provider_tree(providers))
            self._show(Text.assemble("Pages to look at in a browser  ", (url + WEB_PATH, "bold")))
            self._check_interrupted()
            resources = sample_resources(providers)
            self._demonstrate(connection, root, resources)
            self._check_interrupted()
            self._print_next_steps(url, root, resources)
            if not self._options.once:
                self._stay()

    def _start_placement(self) -> str:
        self._state.write_placement_config()
        serve = ["placement_server.cmd.serve", "serve", "--workers", "1", "--host", "127.0.0.1"]
        serve += ["--port", str(self._options.port)]
        serve += ["--config-file", str(self._state.placement_config)]
        with self._progress("placement-server: SQLite database and HTTP API"):
            server = self._start("placement-server", serve)
            server.wait_until(
                lambda: LISTENING.search(_text(server)) is not None,
                "listen",
                START_SECONDS,
                self._stop,
            )
            listening = LISTENING.search(_text(server))
            assert listening is not None
            url = listening[1]
            server.wait_until(lambda: _answers(url), "answer", START_SECONDS, self._stop)
        return url

    def _start_agent(self) -> None:
        with (
            self._progress("compute-agent: looking at this machine and reporting it"),
            ReadySocket() as ready,
        ):
            agent = self._start(
                "compute-agent",
                [
                    "compute_agent.cmd.agent.main",
                    "run",
                    "--config-file",
                    str(self._state.agent_config),
                ],
                {"NOTIFY_SOCKET": ready.address},
            )
            agent.wait_until(ready.ready, "report this machine", START_SECONDS, self._stop)

    def _start(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Child:
        child = Child(name, arguments, self._state.log(name), environment)
        self._children.append(child)
        return child

    def _root(self) -> str:
        try:
            return self._state.node_uuid_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise DevFailed(
                f"The agent reported, but left no identity in {self._state.node_uuid_file}: "
                f"{error.strerror}. See {self._state.log('compute-agent')}."
            ) from error

    def _tree(self, connection: Connection, root: str) -> tuple[ProviderLines, ...]:
        providers = read_tree(connection, root)
        if not providers:
            raise DevFailed(
                f"The agent reported nothing: placement has no provider {root}. See "
                f"{self._state.log('compute-agent')}."
            )
        return providers

    def _demonstrate(self, connection: Connection, root: str, resources: Mapping[str, int]) -> None:
        """Claim through the scheduler, show the tree, release, and show the tree again."""
        if not resources:
            self._print("Nothing is free on this machine, so there is no sample claim.")
            return
        from compute_agent.cmd.dev.bus import scheduler_on_bus

        requested = " ".join(f"{name}={amount}" for name, amount in resources.items())
        consumer = str(uuid.uuid4())
        with (
            self._progress("compute-scheduler: serving on a message bus in memory"),
            ExitStack() as starting,
        ):
            bus = starting.enter_context(scheduler_on_bus(self._state.agent_config))
            stopping = starting.pop_all()
        with stopping:
            self._show(Text(f"A sample claim: {requested}"))
            [[selection]] = bus.scheduler.select_destinations(_spec(resources), [consumer])
            request = json.loads(selection["allocation_request"])
            try:
                providers = self._tree(connection, root)
                names = {provider.uuid: provider.name for provider in providers}
                print_claim(_document(consumer, selection, request, names), self._console)
                self._console.print()
                used = request["allocations"].keys()
                self._console.print(provider_tree(providers, traits=False, only=used))
            finally:
                released = bus.placement.release(consumer)
        self._show(Text(f"Released {consumer}" if released else f"{consumer} held nothing"))
        after = self._tree(connection, root)
        self._console.print(provider_tree(after, traits=False, only=used))

    def _print_next_steps(self, url: str, root: str, resources: Mapping[str, int]) -> None:
        if self._options.once:
            self._print(f"State is kept in {self._state.path}")
            return
        self._show(Text("What to type next, in another terminal"))
        for what, typed in next_steps(self._state, url, root, resources):
            self._console.print(Text(f"# {what}", style="dim"), soft_wrap=True)
            self._console.print(Text(typed), soft_wrap=True)

    def _stay(self) -> None:
        self._console.print()
        self._print(
            f"Up, with state in {self._state.path}. The agent looks again every "
            f"{self._options.interval} s. Ctrl-C ends it."
        )
        while not self._stop.wait(_WATCH_SECONDS):
            for child in self._children:
                child.check()
        self._print("Stopping")

    def _check_interrupted(self) -> None:
        if self._stop.is_set():
            raise DevInterrupted("interrupted while starting")

    def _stop_children(self) -> None:
        while self._children:
            self._children.pop().stop()

    @contextmanager
    def _progress(self, text: str) -> Iterator[None]:
        with self._console.status(text):
            yield
        self._print(f"✓ {text}" if self._console.encoding.startswith("utf") else f"ok: {text}")

    def _print(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _show(self, title: Text) -> None:
        self._console.print()
        self._console.print(Rule(title, align="left", style="dim"))


def _spec(resources: Mapping[str, int]) -> dict[str, Any]:
    extra_specs = {f"resources:{name}": str(amount) for name, amount in resources.items()}
    return {"project_id": _OWNER, "user_id": _OWNER, "flavor": {"extra_specs": extra_specs}}


def _document(
    consumer: str,
    selection: Mapping[str, Any],
    request: Mapping[str, Any],
    names: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "consumer": consumer,
        "host": selection["nodename"],
        "root_provider": selection["compute_node_uuid"],
        "allocations": {
            provider: {"name": names.get(provider, provider), **entry}
            for provider, entry in request["allocations"].items()
        },
        "mappings": request["mappings"],
    }


def _text(child: Child) -> str:
    return child.log.read_text(encoding="utf-8", errors="replace")


def _answers(url: str) -> bool:
    from compute_agent.errors import PlacementUnavailable

    try:
        KeystoneTransport.to_endpoint(url).send(Request("GET", "/", (1, 0), timeout=(2.0, 5.0)))
    except PlacementUnavailable as error:
        logging.getLogger(__name__).debug("Not yet: %s", error)
        return False
    return True
