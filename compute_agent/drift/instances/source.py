"""Sources of the instances that exist: a file, or the agents that run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from compute_agent.drift.instances.file import InstanceFile
from compute_agent.placement.provider_directory import ProviderDirectory

if TYPE_CHECKING:
    from compute_agent.drift.instances.agents import AgentsOnBus


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source knew at one moment.

    :ivar known_consumers: consumers that exist.
    :ivar by_host: host to the instances that run there; empty where the source does not know.
    :ivar roots: host to the root providers it answers for.
    :ivar silent: root providers for which nobody answered: what holds something there may exist.
    :ivar untold: of these, the ones whose agent is there and does not list instances, and why.
    :ivar complete: the source knows every consumer there is, wherever it runs.
    :ivar knows_migrations: it also knows the consumers that stand for unfinished migrations.
    """

    known_consumers: frozenset[str]
    by_host: Mapping[str, frozenset[str]] = field(default_factory=dict)
    roots: Mapping[str, frozenset[str]] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    untold: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False
    knows_migrations: bool = False

    @property
    def answered_roots(self) -> frozenset[str]:
        """Roots for which an agent answered."""
        return frozenset().union(*self.roots.values())


class InstanceSource(Protocol):
    """Asked once for every look."""

    name: str

    def look(self, directory: ProviderDirectory) -> Listing:
        """Return what exists now.

        :raises ComputeAgentError: the source cannot be used.
        """

    def is_gone(self, uuid: str) -> bool:
        """Whether a consumer that was not listed does not exist, asked for it alone.

        :raises ComputeAgentError: it is not known.
        """


class FileSource:
    """A file of all instances and unfinished migrations of the whole cloud."""

    name = "file"

    def __init__(self, path: Path) -> None:
        self._path = path

    def look(self, directory: ProviderDirectory) -> Listing:  # noqa: ARG002 - as the protocol has it
        """Read the file.

        :raises InvalidConfiguration: it cannot be read, or a line is not understood.
        """
        known_uuids = InstanceFile(self._path).uuids()
        return Listing(known_uuids, complete=True, knows_migrations=True)

    def is_gone(self, uuid: str) -> bool:  # noqa: ARG002 - as the protocol has it
        """Return True: the file has all there is."""
        return True


class AgentsSource:
    """What all hosts list, and what schedulers claimed for lately: it may be on its way.

    It knows nothing of migrations, and nothing of hosts that are silent.
    """

    name = "agents"

    def __init__(
        self, agents: AgentsOnBus, say: Callable[[str], None] = lambda _text: None
    ) -> None:
        self._agents = agents
        self._say = say

    def look(self, directory: ProviderDirectory) -> Listing:
        """Find the agents and ask each for its instances."""
        roots = {
            provider.uuid for provider in directory.roots if not directory.is_shared(provider.uuid)
        }
        self._agents.ask_schedulers()
        self._say("waiting for the agents to announce themselves")
        roots_of_host = self._agents.hosts(directory.hosts)
        self._say(f"asking {len(roots_of_host)} agents for their instances")
        answers = self._agents.instances(sorted(roots_of_host))
        by_host = answers.instances
        answered_hosts = {host: roots_of_host[host] for host in by_host}
        heard_roots = frozenset().union(*answered_hosts.values())
        untold = {
            root: why
            for host, why in sorted(answers.refusals.items())
            for root in roots_of_host[host] - heard_roots
        }
        return Listing(
            known_consumers=self._agents.recent_claims().union(*by_host.values()),
            by_host=by_host,
            roots=answered_hosts,
            silent=frozenset(roots - heard_roots),
            untold=untold,
        )

    def is_gone(self, uuid: str) -> bool:  # noqa: ARG002 - as the protocol has it
        """Every agent lists all it runs."""
        return True
