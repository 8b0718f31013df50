"""Who says which instances exist: a file, or the agents that run them."""

from __future__ import annotations

import uuid as uuidlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from compute_agent import errors
from compute_agent.manage.provider_directory import ProviderDirectory


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source knew at one moment.

    :ivar known: consumers that exist.
    :ivar by_host: host to the instances that run there; empty where the source does not tell.
    :ivar roots: host to the root providers it answers for.
    :ivar silent: root providers for which nobody answered: what holds something there may exist.
    :ivar complete: the source knows every consumer there is, wherever it runs.
    :ivar knows_migrations: it also knows the consumers that stand for unfinished migrations.
    """

    known: frozenset[str]
    by_host: Mapping[str, frozenset[str]] = field(default_factory=dict)
    roots: Mapping[str, frozenset[str]] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    complete: bool = False
    knows_migrations: bool = False

    @property
    def answered(self) -> frozenset[str]:
        """Roots for which an agent answered."""
        return frozenset().union(*self.roots.values())


class InstanceSource(Protocol):
    """Asked once for every look."""

    name: str

    def look(self, directory: ProviderDirectory) -> Listing:
        """What exists now.

        :raises ComputeAgentError: the source cannot be used.
        """


class FileSource:
    """A file with one uuid per line: instances and unfinished migrations, of the whole cloud.

    Empty lines and what follows a `#` are left out.
    """

    name = "file"

    def __init__(self, path: Path) -> None:
        self._path = path

    def look(self, directory: ProviderDirectory) -> Listing:  # noqa: ARG002 - as the protocol has it
        """Read the file.

        :raises InvalidConfiguration: it cannot be read, or a line is no uuid.
        """
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise errors.InvalidConfiguration(
                f"The file of instances {self._path} cannot be read: {error}"
            ) from error
        known: set[str] = set()
        for number, line in enumerate(lines, 1):
            text = line.partition("#")[0].strip()
            try:
                known.update([str(uuidlib.UUID(text))] if text else [])
            except ValueError as error:
                # one that is overlooked would lose its allocations
                raise errors.InvalidConfiguration(
                    f"The file of instances {self._path}, line {number}: {text!r} is no uuid. "
                    "Expected one uuid per line."
                ) from error
        return Listing(frozenset(known), complete=True, knows_migrations=True)


class Agents(Protocol):
    """The agents, on whatever bus."""

    def hosts(self, wanted: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Host to its root providers, of all that announce themselves.

        :param wanted: roots that are waited for, within a bound.
        """

    def instances(self, hosts: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Host to the instances that run there; a host that does not answer is left out."""


class AgentsSource:
    """What all hosts list. It knows nothing of migrations, and nothing of hosts that are silent."""

    name = "agents"

    def __init__(self, agents: Agents, say: Callable[[str], None] = lambda _text: None) -> None:
        self._agents = agents
        self._say = say

    def look(self, directory: ProviderDirectory) -> Listing:
        """Find the agents and ask each for its instances."""
        roots = {each.uuid for each in directory.roots if not directory.is_shared(each.uuid)}
        self._say("waiting for the agents to announce themselves")
        announced = self._agents.hosts(directory.hosts)
        self._say(f"asking {len(announced)} agents for their instances")
        by_host = self._agents.instances(sorted(announced))
        answered = {host: announced[host] for host in by_host}
        heard = frozenset().union(*answered.values())
        return Listing(
            known=frozenset().union(*by_host.values()),
            by_host=by_host,
            roots=answered,
            silent=frozenset(roots - heard),
        )
