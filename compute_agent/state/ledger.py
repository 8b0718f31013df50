"""The ledger: providers, additions, claims, nodes and faults, remembered over restarts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

from msgspec import Struct

from compute_agent.programs.decoding import Amounts, Value, matching, value_text
from compute_agent.state.claim import Claim
from compute_agent.state.files import StateFile

Additions: TypeAlias = dict[str, dict[str, list[str]]]
"""Provider uuid to the classes (`inventories`) and `traits` that configuration files added."""

_Kind: TypeAlias = Annotated[str, matching("inventories|traits", "inventories or traits")]
_CustomName: TypeAlias = Annotated[
    str, matching("CUSTOM_[A-Z0-9_]+", "a name that starts with CUSTOM_")
]
"""Other names are the driver's: taken back, they would be off the host."""


class Providers(Struct, frozen=True):
    """The providers that the agent created, or took over."""

    created: frozenset[str] = frozenset()


class Claims(Struct, frozen=True):
    """The claims by the consumers that hold them."""

    claims: dict[str, Claim] = {}

    def __post_init__(self) -> None:
        for consumer, claim in self.claims.items():
            if claim.consumer != consumer:
                text = value_text(claim.consumer)
                raise ValueError(f"claims.{consumer}.consumer is {text}, not {consumer}")


class Nodes(Struct, frozen=True):
    """The nodes whose providers the agent maintains, name by uuid."""

    nodes: dict[str, str] = {}


class Faults(Struct, frozen=True):
    """The providers of broken devices.

    :param faults: the boot of the machine that showed the fault; empty when an operator has cleared
        it and no pass has confirmed that yet.
    :param reserves: the amounts reserved before, by class.
    """

    faults: dict[str, str] = {}
    reserves: dict[str, Amounts] = {}


class ServiceState(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether new instances may come to the host, with the reason if not.

    `automatic` is True while it was the agent that disabled it: only then may it enable it again.
    """

    enabled: bool
    reason: str = ""
    automatic: bool = False


class Ledger:
    """The memory of one agent, in files of its state directory. Safe for several threads.

    Only what changes is written, at once: a crash afterwards loses nothing.

    :param read_only: keep changes in this object only, for commands that just look.
    """

    def __init__(self, state_path: Path, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._mutex = threading.Lock()
        self.revision = 0
        """Counts the changes since this object was made."""
        self._providers_file = StateFile(
            state_path / "ledger.json",
            Providers,
            "knowing which providers it made, and deletes only those that carry the trait "
            "OWNER_NOVA",
        )
        self._additions_file = StateFile(
            state_path / "provider-config.json",
            dict[str, dict[_Kind, list[_CustomName]]],
            "knowing what provider config files added, and takes nothing of it back",
        )
        self._service_file = StateFile(
            state_path / "service.json",
            ServiceState,
            "knowing that the host was disabled, as a new one does",
        )
        self._claims_file = StateFile(
            state_path / "claims.json", Claims, "knowing which instance has which CPUs and devices"
        )
        self._nodes_file = StateFile(
            state_path / "nodes.json",
            Nodes,
            "knowing which nodes it had, and leaves the providers of those that went away",
        )
        self._faults_file = StateFile(
            state_path / "faults.json",
            Faults,
            "knowing which devices are broken, and gives no reserve back",
        )
        self._providers = self._providers_file.load() or Providers()
        self._additions: Additions = self._additions_file.load() or {}
        self._service = self._service_file.load()
        self._claims = self._claims_file.load() or Claims()
        self._nodes = self._nodes_file.load() or Nodes()
        self._faults = self._faults_file.load() or Faults()

    @property
    def files(self) -> tuple[StateFile[Any], ...]:
        """The files, each with the failure of its last write."""
        return (
            *(self._providers_file, self._additions_file, self._service_file),
            *(self._claims_file, self._nodes_file, self._faults_file),
        )

    def owns(self, uuid: str) -> bool:
        """Return whether this agent created the provider, or took it over."""
        return uuid in self._providers.created

    def remember_providers(self, additions: Iterable[str], removals: Iterable[str] = ()) -> None:
        """Record providers that are about to be created, and forget those that are gone.

        To be called before they are created: a provider that was never created does no harm here,
        one that is not recorded could never be removed.
        """
        new_uuids, removed_uuids = frozenset(additions), frozenset(removals)
        with self._mutex:
            created_uuids = self._providers.created
            if new_uuids <= created_uuids and removed_uuids.isdisjoint(created_uuids):
                return  # nothing changes in nearly every pass, and there may be many providers
            providers = Providers((created_uuids | new_uuids) - removed_uuids)
            self._providers = self._replace(self._providers_file, providers, self._providers)

    def additions(self) -> Additions:
        """Return the additions of configuration files so far."""
        with self._mutex:
            return {uuid: dict(kinds) for uuid, kinds in self._additions.items()}

    def remember_additions(self, additions: Mapping[str, Mapping[str, Iterable[str]]]) -> None:
        """Replace the additions of configuration files."""
        sorted_additions: Additions = {
            uuid: {kind: sorted(names) for kind, names in sorted(kinds.items())}
            for uuid, kinds in sorted(additions.items())
        }
        with self._mutex:
            self._additions = self._replace(self._additions_file, sorted_additions, self._additions)

    def claims(self) -> dict[str, Claim]:
        """Return the claims by consumer."""
        with self._mutex:
            return dict(self._claims.claims)

    def change_claims(self, *, add: Iterable[Claim] = (), drop: Iterable[str] = ()) -> None:
        """Add and drop claims, all at once or, when they cannot be written, none.

        :raises StateUnusable: it cannot be written.
        """
        with self._mutex:
            dropped_consumers = frozenset(drop)
            claims = {
                consumer: claim
                for consumer, claim in self._claims.claims.items()
                if consumer not in dropped_consumers
            }
            claims |= {claim.consumer: claim for claim in add}
            self._claims = self._replace(self._claims_file, Claims(claims), self._claims)

    def nodes(self) -> dict[str, str]:
        """Return name by uuid of the nodes whose providers this agent maintains."""
        with self._mutex:
            return dict(self._nodes.nodes)

    def remember_nodes(self, nodes: Mapping[str, str]) -> None:
        """Replace the maintained nodes, name by uuid."""
        with self._mutex:
            self._nodes = self._replace(self._nodes_file, Nodes(dict(nodes)), self._nodes)

    def faults(self) -> dict[str, str]:
        """Return providers of broken devices, with the boot of the machine that showed the fault.

        The boot is empty when an operator has cleared the fault and no pass has confirmed it yet.
        """
        with self._mutex:
            return dict(self._faults.faults)

    def reserves(self) -> dict[str, dict[str, int]]:
        """Return providers of broken devices, with the amounts reserved before, by class."""
        with self._mutex:
            return {uuid: dict(amounts) for uuid, amounts in self._faults.reserves.items()}

    def change_faults(
        self,
        *,
        reserved: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
        seen_faults: Mapping[str, str] = MappingProxyType({}),
        cleared_providers: Iterable[str] = (),
        forgotten_providers: Iterable[str] = (),
    ) -> None:
        """Record broken devices that were seen, cleared by an operator, or work again.

        :param reserved: amounts reserved before the fault, by provider and class.
        """
        with self._mutex:
            forgotten_uuids = frozenset(forgotten_providers)
            faults = {
                u: boot for u, boot in self._faults.faults.items() if u not in forgotten_uuids
            }
            faults |= {**seen_faults, **dict.fromkeys(cleared_providers, "")}
            reserves = {
                u: amounts
                for u, amounts in self._faults.reserves.items()
                if u not in forgotten_uuids
            }
            reserves |= {uuid: dict(amounts) for uuid, amounts in reserved.items()}
            self._faults = self._replace(self._faults_file, Faults(faults, reserves), self._faults)

    def service_state(self, *, default_enabled: bool) -> ServiceState:
        """Return whether the host is enabled; a first start takes the default and keeps it."""
        with self._mutex:
            if self._service is None:
                reason = "" if default_enabled else "new hosts start disabled"
                state = ServiceState(default_enabled, reason)
                self._service = self._replace(self._service_file, state, None)
            return self._service

    def set_service_state(self, state: ServiceState) -> None:
        """Record that the host was enabled or disabled."""
        with self._mutex:
            self._service = self._replace(self._service_file, state, self._service)

    def _replace(self, file: StateFile[Value], document: Value, before: Value | None) -> Value:
        """Write a document unless it is the one before, and return it."""
        if document != before:
            self.revision += 1
            if not self._read_only:
                file.save(document)
        return document
