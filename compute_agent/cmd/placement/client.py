"""Requests to placement for the commands, and the transport that the options name."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlencode

from compute_agent import errors
from compute_agent.cmd import program
from compute_agent.cmd.placement.arguments import BadInput
from compute_agent.placement import responses
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.transport import (
    EXTENSIONS_VERSION,
    Request,
    Timeout,
    Transport,
)
from compute_agent.programs.exit_status import Exit

_CONFLICTS: Final = frozenset({405, 409, 410, 413, 415})


class NamedThingMissing(errors.PlacementError):
    """Something that was named does not exist."""

    exit_status = Exit.FAILED


class RequestInvalid(errors.PlacementError):
    """What was asked is nothing that placement could do, whatever its state."""

    exit_status = Exit.USAGE


class RequestRefused(errors.PlacementError):
    """Placement refused what was asked."""

    exit_status = Exit.REFUSED


class Client:
    """One conversation with placement, at the newest version that both sides know."""

    def __init__(self, transport: Transport) -> None:
        self.connection = Connection(transport, use_extensions=True)

    def ask(
        self,
        method: str,
        path: str,
        doing: str,
        body: object = None,
        timeout: Timeout | None = None,
    ) -> Any:
        """Send a request and return the body of the answer; None where it has none.

        :param doing: what this is for, as the beginning of a sentence.
        :raises NamedThingMissing: what the path names does not exist.
        :raises Refused: placement refused.
        :raises errors.PlacementError: placement cannot be used.
        """
        request = Request(
            method,
            path,
            self.connection.newest(),
            body,
            timeout=timeout,
            extensions=EXTENSIONS_VERSION if self.has_extensions else None,
            doing=doing,
        )
        response = self.connection.call(request)
        if response.status < 400:
            return responses.document_of(request, response) if response.content else None
        kind: type[errors.PlacementError] = errors.PlacementError
        if response.status == 404:
            kind = NamedThingMissing
        elif response.status == HTTPStatus.BAD_REQUEST:
            kind = RequestInvalid
        elif response.status in _CONFLICTS:
            kind = RequestRefused
        raise responses.failure(kind, request, response)

    def get(self, path: str, doing: str) -> Any:
        """Read something."""
        return self.ask("GET", path, doing)

    @property
    def has_extensions(self) -> bool:
        """Whether placement announces the extensions that some commands need."""
        return self.connection.understands_extensions()

    def require_extensions(self, what: str) -> None:
        """Check that placement has the extensions.

        :param what: the subject of the error's sentence.
        :raises errors.PlacementTooOld: it does not.
        """
        if not self.has_extensions:
            raise errors.PlacementTooOld(
                f"{what} needs placement-ext 1.1, which this placement does not announce: only "
                "placement-server has it."
            )

    def provider(self, name: str) -> Mapping[str, Any]:
        """Return the provider with a uuid or a name.

        :raises NamedThingMissing: there is none.
        """
        if is_uuid(name):
            path = f"/resource_providers/{name}"
            provider_body: Mapping[str, Any] = self.get(path, f"Looking for provider {name}")
            return provider_body
        query = urlencode({"name": name})
        providers = self.get(f"/resource_providers?{query}", f"Looking for provider {name!r}")
        # placement takes an empty name for no condition, and returns all providers
        if not name or not providers["resource_providers"]:
            raise NamedThingMissing(f"There is no resource provider {name!r}.")
        [provider] = providers["resource_providers"]
        return dict(provider)

    def part(self, provider: Mapping[str, Any], part: str) -> Any:
        """Read a part of a provider: its inventories, traits, aggregates, usages, allocations."""
        return self.get(part_path(provider, part), f"Reading the {part} of {provider['name']}")

    def replace(
        self, provider: Mapping[str, Any], part: str, read: Mapping[str, Any], content: object
    ) -> None:
        """Replace a part of a provider.

        :param read: the part as it was read, whose generation the provider must still have.
        """
        body = {**read, part: content}
        doing = f"Replacing the {part} of {provider['name']}"
        self.ask("PUT", part_path(provider, part), doing, body)


def part_path(provider: Mapping[str, Any], part: str) -> str:
    """Return the path of a part of a provider."""
    return f"/resource_providers/{provider['uuid']}/{part}"


def path_segment(name: str) -> str:
    """Return a name as a segment of a path."""
    return quote(name, safe="")


def is_uuid(text: str) -> bool:
    """Check whether a text is a uuid with its dashes."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def connect(namespace: argparse.Namespace) -> Client:
    """Return a client of the placement that the options name.

    :raises BadInput: they contradict each other, or name none.
    :raises errors.InvalidConfiguration: a file that they name cannot be used.
    """
    if namespace.transport:
        return Client(namespace.transport)
    url = namespace.url
    if not url or namespace.placement_config:
        return Client(program.transport(namespace))
    from compute_agent.conf import services
    from compute_agent.placement.transports.keystone import KeystoneTransport

    if fault := services.url_fault(url):
        raise BadInput(f"--url {fault}.")
    return Client(KeystoneTransport.to_endpoint(url, namespace.token))
