"""A file of instances: one uuid per line, or one JSON object per line with what it needs."""

from __future__ import annotations

import json
import uuid as uuidlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from compute_agent import errors
from compute_agent.drift.instances.instance import (
    Instance,
    Listing,
    Port,
    PortNotWritten,
    instance_of,
)
from compute_agent.placement.provider_directory import ProviderDirectory
from compute_agent.request.errors import InvalidRequest

Line = str | Mapping[str, Any]
"""A bare uuid, or the description of an instance, whose `uuid` is canonical."""


class InstanceFile(Struct, eq=False):
    """A file of instances, and of unfinished migrations by their uuids.

    Empty lines and, after a bare uuid, what follows a `#` are left out.
    """

    name = "file"
    path: Path

    def look(self, directory: ProviderDirectory) -> Listing:  # noqa: ARG002 - as the protocol has it
        """List the uuid of every line: all instances and unfinished migrations of the whole cloud.

        :raises InvalidConfiguration: the file cannot be read, or a line is neither form.
        """
        known_uuids = frozenset(
            line if isinstance(line, str) else str(line["uuid"]) for _number, line in self._lines()
        )
        return Listing(known_uuids, complete=True, knows_migrations=True)

    def is_gone(self, uuid: str) -> bool:  # noqa: ARG002 - as the protocol has it
        """Return True: the file has all there is."""
        return True

    def instances(self, only: str | None = None) -> Iterator[Instance]:
        """Yield the instances that are described; a bare uuid does not describe its needs.

        :raises InvalidConfiguration: the file cannot be read, or a line is not understood.
        """
        # every line is read before the first instance is changed
        described_instances = []
        for number, line in self._lines():
            if isinstance(line, str):
                if line == only:
                    raise errors.InvalidConfiguration(
                        f"The file of instances {self.path}, line {number}, has only the uuid of "
                        f"{only}: describe it with host, project_id, user_id and flavor in JSON."
                    )
                continue
            try:
                described_instances.append(instance_of(line))
            except (InvalidRequest, ValueError, TypeError) as error:
                raise self._wrong(number, str(error)) from error
        yield from (instance for instance in described_instances if only in (None, instance.uuid))

    def _lines(self) -> Iterator[tuple[int, Line]]:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise errors.InvalidConfiguration(
                f"The file of instances {self.path} cannot be read: {error}"
            ) from error
        for number, text in enumerate(lines, 1):
            line = self._line(number, text.strip())
            if line:
                yield number, line

    def _line(self, number: int, text: str) -> Line:
        try:
            if not text.startswith("{"):
                bare = text.partition("#")[0].strip()
                return str(uuidlib.UUID(bare)) if bare else ""
            body = json.loads(text)
            return {**body, "uuid": str(uuidlib.UUID(body["uuid"]))}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # one that is overlooked would lose its allocations
            raise self._wrong(
                number, f"{text!r} is neither a uuid nor a JSON object with one ({error})"
            ) from error

    def _wrong(self, number: int, what: str) -> errors.InvalidConfiguration:
        return errors.InvalidConfiguration(
            f"The file of instances {self.path}, line {number}: {what}. Nothing was changed."
        )


class DescribedPorts:
    """Ports as the source of instances described them, which nobody can write."""

    writable = False

    def of(self, instance: Instance) -> tuple[Port, ...]:
        """Return the ports of the description."""
        return instance.ports

    def bind(self, port: Port, profile: Mapping[str, Any]) -> None:  # noqa: ARG002 - as above
        """Refuse.

        :raises PortNotWritten: always.
        """
        raise PortNotWritten(f"Port {port.uuid} is known from a description only.")
