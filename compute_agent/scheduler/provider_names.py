"""Names of resource providers, kept for some minutes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from compute_agent.placement.providers import Providers
from compute_agent.programs.kept_values import KeptValues
from compute_agent.provider_tree.trait_names import COMPUTE_NODE

_KEPT_SECONDS: Final = 300.0
_ASKED_ONE_BY_ONE: Final = 8
"""Names up to which each is asked for; beyond, one list of all compute roots is cheaper."""


class ProviderNames:
    """Safe in several threads.

    :param clock: seconds that only grow, for how long names are kept.
    """

    def __init__(self, providers: Providers, clock: Callable[[], float]) -> None:
        self._providers = providers
        self._names: KeptValues[str, str] = KeptValues(_KEPT_SECONDS, clock)

    def of(self, uuids: Collection[str]) -> Mapping[str, str]:
        """Return the names by uuid, without providers that do not exist.

        :raises PlacementError: placement cannot be read.
        """
        names = {uuid: name for uuid in uuids if (name := self._names.get(uuid)) is not None}
        unknown_uuids = [uuid for uuid in uuids if uuid not in names]
        if len(unknown_uuids) > _ASKED_ONE_BY_ONE:
            hosts = self._providers.find(f"required={COMPUTE_NODE}", "Reading the names of hosts")
            names |= self._keep(hosts)
            unknown_uuids = [uuid for uuid in unknown_uuids if uuid not in names]
        for uuid in unknown_uuids:
            provider = self._providers.get(uuid)
            if provider is not None:
                names |= self._keep([provider])
        return {uuid: names[uuid] for uuid in uuids if uuid in names}

    def _keep(self, providers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        return {
            provider["uuid"]: self._names.keep(provider["uuid"], provider["name"])
            for provider in providers
        }
