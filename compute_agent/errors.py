"""Errors that the agent and the scheduler raise on purpose, in one tree.

Every message names what was being done, to what, what came back, and, where there is one, the way
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from msgspec import Struct

from compute_agent.programs.exit_status import Exit


class ComputeAgentError(Exception):
    """Root of everything raised on purpose.

    :cvar exit_status: of a command that fails because of the error.
    """

    exit_status: ClassVar[Exit] = Exit.USAGE


class InvalidConfiguration(ComputeAgentError):
    """An option, a file or a combination of them that the operator must change."""


class InvalidNodeConfiguration(InvalidConfiguration):
    """The identity of this node is contradictory, unreadable or lost."""


class ProviderConfigConflict(InvalidConfiguration):
    """A provider config file names something that it may not change."""


class InvalidInput(ComputeAgentError):
    """A driver's answer lacks something mandatory or holds something impossible."""


class VirtDriverNotReady(ComputeAgentError):
    """The hypervisor cannot be asked yet; the pass is repeated next period."""


class HypervisorUnavailable(ComputeAgentError):
    """The connection to the hypervisor is lost."""


class InstancesUnknown(ComputeAgentError):
    """The driver cannot list the guests that run here, which is not the same as none."""


class ComputeHostNotFound(ComputeAgentError):
    """The driver does not know a node of this name."""


class ComputeNodeBusy(ComputeAgentError):
    """A pass of the node named does not end, so that nothing else can be done on it now."""


class ComputeResourcesUnavailable(ComputeAgentError):
    """The requested resources cannot be given on this host."""


class FitUndecided(ComputeResourcesUnavailable):
    """Whether a guest fits on a node was not decided within the steps that this may cost."""


class AssignedResourceNotFound(ComputeAgentError):
    """A named resource that was assigned to a guest no longer exists on the host."""


class ReshapeNeeded(ComputeAgentError):
    """A driver's signal: inventory in use lives where it no longer belongs."""


class PlacementError(ComputeAgentError):
    """Placement answered something that cannot be used.

    :param message: a full sentence.
    :param status: HTTP status of the answer, `None` without one.
    :param code: placement's error code (`placement.concurrent_update` ...), where the answer
        had one.
    :param detail: placement's own explanation, or the beginning of a body that was not a placement
        error.
    :param request_id: placement's id of the request, to be found in its log.
    :param retry_after: seconds the answer asked to wait, `None` if it did not.
    """

    exit_status = Exit.PLACEMENT

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        detail: str = "",
        request_id: str | None = None,
        method: str | None = None,
        path: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.detail = detail
        self.request_id = request_id
        self.method = method
        self.path = path
        self.retry_after = retry_after

    def of_answer(self, other: PlacementError) -> Self:
        """Take over what another error has of its answer, and return this one."""
        for name in ("status", "code", "detail", "request_id", "method", "path", "retry_after"):
            setattr(self, name, getattr(other, name))
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self).__new__, (type(self), *self.args), self.__dict__)


class PlacementUnavailable(PlacementError):
    """Placement, or what stands before it, cannot answer now: no connection, 429, 5xx."""


class PlacementAPIConnectFailure(PlacementUnavailable):
    """No connection, or the connection broke or timed out before the answer was complete."""


class PlacementAnswerRefused(PlacementAPIConnectFailure):
    """An answer breaks a bound and was not taken: its sender is not placement as it should be.

    Whether the request was carried out is not known.
    """


class PlacementUnauthorized(PlacementError):
    """Credentials, role, catalogue or auth options are wrong: 401, 403, or no endpoint."""


class ResourceProviderUpdateFailed(PlacementError):
    """Placement could not be updated to the state of the host; base of all that a flush may raise.

    `name_conflict_uuid` is the uuid of the provider that holds the name, where that is why.
    """

    name_conflict_uuid: str | None = None


class SyncFailure(Struct, frozen=True):
    """One part of a flush that failed.

    `aspect` is one of create, reparent, rename, inventories, aggregates, traits, delete.
    """

    uuid: str
    name: str
    aspect: str
    error: ComputeAgentError


class ResourceProviderSyncFailed(ResourceProviderUpdateFailed):
    """One or more providers could not be brought up to date; the others were."""

    def __init__(self, failures: Sequence[SyncFailure]) -> None:
        self.failures: tuple[SyncFailure, ...] = tuple(failures)
        shown_failures = "; ".join(
            f"{f.aspect} of {f.name} ({f.uuid}): {f.error}" for f in self.failures
        )
        first = self.failures[0].error if self.failures else None
        super().__init__(
            f"{len(self.failures)} change(s) could not be written to placement: {shown_failures}"
        )
        if isinstance(first, PlacementError):
            self.of_answer(first)


class ResourceProviderCreationFailed(ResourceProviderUpdateFailed):
    """A provider could not be created."""


class ResourceProviderDeletionFailed(ResourceProviderUpdateFailed):
    """A provider could not be deleted."""


class ResourceProviderInUse(ResourceProviderUpdateFailed):
    """A provider has allocations or children and so stays."""


class InventoryInUse(ResourceProviderUpdateFailed):
    """An inventory that would go has allocations."""


class InvalidResourceClass(ResourceProviderUpdateFailed):
    """Placement refuses the name of a resource class."""


class InvalidInventory(ResourceProviderUpdateFailed):
    """Placement refuses an inventory record."""


class TraitCreationFailed(ResourceProviderUpdateFailed):
    """Placement refuses the name of a trait."""


class TraitRetrievalFailed(ResourceProviderUpdateFailed):
    """The known traits could not be read."""


class ResourceProviderRetrievalFailed(ResourceProviderUpdateFailed):
    """A provider or a tree could not be read."""


class ResourceProviderAggregateRetrievalFailed(ResourceProviderUpdateFailed):
    """The aggregates of a provider could not be read."""


class ResourceProviderTraitRetrievalFailed(ResourceProviderUpdateFailed):
    """The traits of a provider could not be read."""


class ResourceProviderInventoryRetrievalFailed(ResourceProviderUpdateFailed):
    """The inventories of a provider could not be read."""


class ResourceProviderUpdateConflict(PlacementError):
    """Somebody else wrote to the provider first: re-read it, compute again, repeat."""


class PlacementReshapeConflict(PlacementError):
    """Somebody else wrote to a provider or consumer of the reshape first."""


class ReshapeFailed(PlacementError):
    """Inventory and its allocations cannot be moved to their new place.

    :param error: what went wrong, naming consumer and provider where they are known.
    :param answer: as `PlacementError` has it.
    """

    def __init__(self, error: str, **answer: Any) -> None:
        super().__init__(f"The reshape failed: {error}", **answer)
        self.error = error


class ResourceProviderAllocationRetrievalFailed(PlacementError):
    """The allocations on a provider could not be read."""


class ConsumerAllocationRetrievalFailed(PlacementError):
    """The allocations of a consumer could not be read."""


class AllocationUpdateFailed(PlacementError):
    """The allocations of a consumer could not be written."""

    exit_status = Exit.REFUSED


class HoldsAnother(AllocationUpdateFailed):
    """A consumer that must hold nothing before a claim holds something else than is claimed.

    :param record: what it holds, as placement wrote it.
    """

    def __init__(self, consumer: str, record: Mapping[str, Any]) -> None:
        super().__init__(
            f"Consumer {consumer} holds allocations already, on "
            f"{', '.join(sorted(record['allocations']))}: release it first, or claim "
            "for another consumer."
        )
        self.record = record


class AllocationMoveFailed(PlacementError):
    """The allocations of one consumer could not be given to another."""

    exit_status = Exit.REFUSED


class AllocationDeleteFailed(PlacementError):
    """The allocations of a consumer could not be removed."""

    exit_status = Exit.REFUSED


class ResourceProviderNotFound(PlacementError):
    """Placement has no such provider."""


class AllocationCandidateRetrievalFailed(PlacementError):
    """Placement refused the question about candidates (not the same as having none)."""


class UsageRetrievalFailed(PlacementError):
    """The usage of a project could not be read."""


class ChangesPruned(PlacementError):
    """Placement has deleted changes that were asked for: what they changed must be read again."""


class ChangesNotOffered(PlacementError):
    """This placement has no feed of changes."""


class PlacementTooOld(ResourceProviderUpdateFailed):
    """Placement does not offer a microversion that is needed."""
