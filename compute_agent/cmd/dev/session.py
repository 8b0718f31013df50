"""One development run: placement-server, agent and scheduler, and their output."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import re
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from compute_agent.cmd.dev import machine
from compute_agent.cmd.dev.child import Child, DevFailed, DevInterrupted
from compute_agent.cmd.dev.machine import ReportedMachine
from compute_agent.cmd.dev.sample import Sample, next_steps, sample_of
from compute_agent.cmd.dev.state_directory import WEB_PATH, StateDirectory
from compute_agent.cmd.scheduler.configured import claim_document
from compute_agent.cmd.scheduler.views import explanation_lines, print_claim
from compute_agent.cmd.trees.drawing import drawing
from compute_agent.cmd.trees.form import TreeForm
from compute_agent.manage.tree_reading import ProviderLines, read_tree
from compute_agent.placement.allocations.amounts import of_record
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Request
from compute_agent.programs.systemd import NoticeSocket
from compute_agent.request import spec_reader
from compute_agent.scheduler.life_cycle.life_cycle import Claim

if TYPE_CHECKING:
    from compute_agent.cmd.dev.bus import Bus

LISTENING = re.compile(r"^placement-server: listening on (\S+)$", re.MULTILINE)
START_SECONDS = 120.0
"""Limit for a slow or busy machine; a start takes a few seconds."""
_OWNER = "compute-agent-dev"
_WATCH_SECONDS = 1.0
_GUESTS = 2
"""Guests that stay while the run is up, so that tree and pages have something to show."""


class DevRun:
    """A run that starts everything, shows it, and stays up until it is stopped.

    :param options: those of the command.
    :param machine: name of what is reported instead of this machine.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        machine: str | None,
        state: StateDirectory,
        console: Console,
        stop: threading.Event,
    ) -> None:
        self._options = options
        self._machine_name = machine
        self._state = state
        self._console = console
        self._stop = stop
        self._children: list[Child] = []

    def run(self) -> None:
        """Run until `stop` is set; with `once` only through the demonstration.

        :raises DevFailed: something did not start, or ended by itself.
        :raises DevInterrupted: `stop` was set before everything was shown.
        :raises ComputeAgentError: the sample claim failed.
        """
        with ExitStack() as stack:
            self._state.prepare(self._options.hosts)
            stack.enter_context(self._state.lock())
            # the agent goes first, so that it does not see placement vanish
            stack.callback(self._stop_children)
            url = self._start_placement()
            machine = self._machine()
            names = [
                machine.host_name(number, self._options.hosts)
                for number in range(1, self._options.hosts + 1)
            ]
            for number, name in enumerate(names, 1):
                self._state.write_agent_config(
                    number,
                    url,
                    self._options.interval,
                    is_nested=not self._options.flat,
                    options=machine.options,
                    host=name,
                )
            self._state.write_environment(url, Path(sys.executable).parent)
            self._start_agents(machine)
            connection = Connection(KeystoneTransport.to_endpoint(url))
            roots = [self._root(number) for number in range(1, self._options.hosts + 1)]
            trees = [self._tree(connection, root) for root in roots]
            self._show(Text.assemble("Placement API  ", (url, "bold")))
            self._console.print(drawing(trees[0], self._form))
            if others := [tree[0].name for tree in trees[1:]]:
                self._print(f"The same machine is reported by {' and '.join(others)}")
            self._show(Text.assemble("Pages to look at in a browser  ", (url + WEB_PATH, "bold")))
            self._check_interrupted()
            sample = sample_of(trees[0], most_of_a_cell=machine.name is not None)
            small_sample = sample_of(trees[0])
            guests = self._demonstrate(connection, sample, small_sample)
            stack.callback(self._remove, connection, guests)
            self._check_interrupted()
            self._print_next_steps([tree[0].name for tree in trees], sample)
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

    def _machine(self) -> ReportedMachine:
        name = self._machine_name
        if name is None:
            return ReportedMachine()
        return machine.fake() if name == machine.FAKE else machine.unpack(name, self._state.machine)

    def _start_agents(self, machine: ReportedMachine) -> None:
        machine_text = "this machine" if machine.name is None else f"the machine {machine.name}"
        hosts = self._options.hosts
        of_hosts = f" as {hosts} hosts" if hosts > 1 else ""
        with (
            self._progress(f"compute-agent: looking at {machine_text} and reporting it{of_hosts}"),
            ExitStack() as sockets,
        ):
            processes = []
            for number in range(1, hosts + 1):
                ready = sockets.enter_context(NoticeSocket())
                place = self._state.agent(number)
                words = ["compute_agent.cmd.agent.main", "run", f"--config-file={place.config}"]
                notify = {"NOTIFY_SOCKET": ready.address}
                agent = self._start("compute-agent", words, notify, place.log)
                processes.append((agent, ready))
            for agent, ready in processes:
                agent.wait_until(ready.ready, f"report {machine_text}", START_SECONDS, self._stop)

    def _start(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> Child:
        child = Child(name, arguments, log or self._state.log(name), environment)
        self._children.append(child)
        return child

    def _root(self, number: int) -> str:
        place = self._state.agent(number)
        try:
            return place.node_uuid_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise DevFailed(
                f"The agent reported, but left no identity in {place.node_uuid_file}: "
                f"{error.strerror}. See {place.log}."
            ) from error

    def _tree(self, connection: Connection, root: str) -> tuple[ProviderLines, ...]:
        providers = read_tree(connection, root)
        if not providers:
            raise DevFailed(
                f"The agent reported nothing: placement has no provider {root}. See "
                f"{self._state.log('compute-agent')}."
            )
        return providers

    def _demonstrate(
        self,
        connection: Connection,
        sample: Sample | None,
        small_sample: Sample | None,
    ) -> Sequence[str]:
        """Claim through the scheduler, show the tree, release, and show the tree again.

        A request for devices of one cell is repeated until none fits, which is explained.

        :returns: guests that stay for people to look at while this runs.
        """
        if sample is None or small_sample is None:
            self._print("Nothing is free on this machine, so there is no sample claim.")
            return ()
        from compute_agent.cmd.dev.bus import scheduler_on_bus

        with (
            self._progress("compute-scheduler: serving on a message bus in memory"),
            ExitStack() as starting,
        ):
            bus = starting.enter_context(scheduler_on_bus(self._state.agent().config))
            stopping = starting.pop_all()
        consumers: list[str] = []
        guests: list[str] = []
        with stopping:
            try:
                root = self._claim(bus, connection, sample, consumers)
                while self._machine_name and self._fits_again(bus, sample, len(consumers)):
                    self._check_interrupted()
                    self._claim(bus, connection, sample, consumers)
            finally:
                released_consumers = [
                    consumer for consumer in consumers if bus.placement.release(consumer)
                ]
            named_consumers = (
                released_consumers[0] if len(released_consumers) == 1 else "all of them"
            )
            self._show(Text(f"Released {named_consumers}"))
            tree = self._tree(connection, root)
            self._console.print(drawing(tree, self._form._replace(only_used=True)))
            while not self._options.once and len(guests) < _GUESTS:
                guests.append(str(uuid.uuid4()))
                bus.scheduler.select_destinations(_spec(small_sample), guests[-1:])
                # what the next steps claim has to fit beside them
                if not bus.explainer.explain(spec_reader.read_spec(_spec(sample))).hosts:
                    bus.placement.release(guests.pop())
                    break
        if guests:
            self._print(f"To look at, until this ends: guests {' and '.join(guests)}")
        return guests

    def _remove(self, connection: Connection, guests: Sequence[str]) -> None:
        for guest in guests:
            connection.call(Request("DELETE", f"/allocations/{guest}", doing="Removing a guest"))

    def _claim(self, bus: Bus, connection: Connection, sample: Sample, consumers: list[str]) -> str:
        """Make the claim for one more consumer, show it, and return the root of its host."""
        if not consumers:
            close = " of one NUMA cell" if sample.is_close else ""
            self._show(Text(f"A sample claim: {sample}{close}"))
        consumer = str(uuid.uuid4())
        consumers.append(consumer)
        [[selection]] = bus.scheduler.select_destinations(_spec(sample), [consumer])
        request = json.loads(selection["allocation_request"])
        root: str = selection["compute_node_uuid"]
        providers = self._tree(connection, root)
        names = {provider.uuid: provider.name for provider in providers}
        used_providers = request["allocations"].keys()
        if len(consumers) > 1:
            provider_names = ", ".join(
                sorted(names.get(provider, provider) for provider in used_providers)
            )
            self._print(f"Claim {len(consumers)} of the same has {provider_names}")
            return root
        claim = Claim(
            consumer,
            selection["nodename"],
            root,
            of_record(request),
            request["mappings"],
        )
        print_claim(claim_document(claim, bus.placement), self._console)
        self._console.print()
        form = self._form._replace(only_used=True, traits=False, tables=used_providers)
        self._console.print(drawing(providers, form))
        return root

    def _fits_again(self, bus: Bus, sample: Sample, claim_count: int) -> bool:
        """Ask whether the claim would fit once more; show why if it would not."""
        explanation = bus.explainer.explain(spec_reader.read_spec(_spec(sample)))
        if not explanation.hosts:
            self._show(Text(f"Claim {claim_count + 1} of the same does not fit"))
            self._print(explanation.causes.sentence())
            for line in explanation_lines(explanation.causes):
                self._print(line)
        return bool(explanation.hosts)

    @property
    def _form(self) -> TreeForm:
        """The form of a whole tree: the trees of captured machines are large."""
        return TreeForm(bars=True) if self._machine_name else TreeForm(full=True, traits=True)

    def _print_next_steps(self, hosts: Sequence[str], sample: Sample | None) -> None:
        if self._options.once:
            self._print(f"State is kept in {self._state.path}")
            return
        self._show(Text("What to type next, in another terminal"))
        steps = next_steps(
            self._state.environment,
            os.environ.get("HOME", ""),
            hosts,
            sample,
            answers=bool(self._state.agent().status_socket),
        )
        for what, command_line in steps:
            self._console.print(Text(f"# {what}", style="dim"), soft_wrap=True)
            self._console.print(Text(command_line), soft_wrap=True)

    def _stay(self) -> None:
        self._console.print()
        self._print(
            f"Up, with state in {self._state.path}. The agent looks again every "
            f"{self._options.interval} s. Ctrl-C ends it."
        )
        # otherwise Python walks all of it once more when this process ends, which delays a stop
        gc.collect()
        gc.freeze()
        while not self._stop.wait(_WATCH_SECONDS):
            for child in self._children:
                child.check()
        self._print("Stopping")

    def _check_interrupted(self) -> None:
        if self._stop.is_set():
            raise DevInterrupted("interrupted while starting")

    def _stop_children(self) -> None:
        # all agents at the same time; placement-server, which was started first, ends after them
        for agent in self._children[1:]:
            agent.terminate()
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


def _spec(sample: Sample) -> dict[str, Any]:
    flavor = {"extra_specs": sample.extra_specs()}
    return {"project_id": _OWNER, "user_id": _OWNER, "flavor": flavor}


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
