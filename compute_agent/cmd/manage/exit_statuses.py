"""Exit statuses of the commands whose statuses are given from elsewhere, and of their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from compute_agent import errors
from compute_agent.programs.exit_status import Exit, ExitStatus, exit_table


class MigrateExit(ExitStatus):
    """Exit status of `migrate_compute_inventory`."""

    FINE = 0, "done, or nothing to do"
    CONFIGURATION = 1, "configuration error"
    AGENT_RUNNING = 2, "the agent is running"
    NOT_MIGRATED = 3, "a node was not migrated; the others were"
    PLACEMENT = 4, "placement or its database cannot be used"
    DRIVER_NOT_READY = 5, "the driver is not ready"
    WOULD_CHANGE = 6, "--dry-run, and something would be done"

    @staticmethod
    def of(error: errors.ComputeAgentError) -> MigrateExit:
        """Return the exit status of an error."""
        from compute_agent.state.files import AgentRunning

        if isinstance(error, AgentRunning):
            return MigrateExit.AGENT_RUNNING
        if isinstance(error, errors.VirtDriverNotReady | errors.HypervisorUnavailable):
            return MigrateExit.DRIVER_NOT_READY
        if isinstance(error, errors.PlacementError):
            return MigrateExit.PLACEMENT
        return MigrateExit.CONFIGURATION


class HealExit(ExitStatus):
    """Exit status of `heal_allocations`."""

    HEALED = 0, "instances were healed"
    MORE = 1, "--max-count was reached, and there is more to heal"
    NO_NODE = 2, "an instance has no compute node"
    FAILED = 3, "allocations could not be created or updated, or placement cannot be used"
    NOTHING = 4, "nothing needed healing"
    PORTS_UNREADABLE = 5, "the ports of an instance could not be read"
    PORT_FAILED = 6, "a port could not be updated; with --dry-run: there is something to heal"
    ROLL_BACK_FAILED = 7, "ports were updated, and the update could not be undone"
    ACCELERATORS = 8, "an instance needs accelerators, which cannot be healed"
    BAD_ARGUMENTS = 127, "bad arguments or configuration"


class AuditExit(ExitStatus):
    """Exit status of `audit`. Orphans count for more than consumers that could not be judged."""

    NONE = 0, "no orphan"
    ERROR = 1, "error; the output lists what was deleted before"
    FOUND = 3, "orphans found, and not all of them deleted"
    DELETED = 4, "orphans found, and all of them deleted"
    NOT_JUDGED = 5, "no orphan found, but some consumers could not be judged"


class SyncExit(ExitStatus):
    """Exit status of `sync_aggregates`; of several problems the first of this list counts."""

    DONE = 0, "success, also with --dry-run"
    UNEXPECTED_ANSWER = 2, "placement cannot be used, or gave an unexpected answer"
    WRITE_FAILED = 3, "the aggregates of a provider could not be written"
    SEVERAL_NODES = 1, "a host has more than one node"
    UNKNOWN_HOST = 4, "a host of an aggregate is unknown"
    NO_NODE = 5, "a host has no node"
    NO_PROVIDER = 6, "a node has no resource provider"
    BAD_ARGUMENTS = 127, "bad arguments or configuration"


def of_placement(status: ExitStatus) -> Callable[[errors.ComputeAgentError], int]:
    """Return what gives errors of placement a status; none is free for the configuration."""
    return lambda e: status if isinstance(e, errors.PlacementError) else Exit.BAD_ARGUMENTS


MIGRATE_TABLE: Final = exit_table(statuses=[*MigrateExit, Exit.BAD_ARGUMENTS])
HEAL_TABLE: Final = exit_table(
    "A failure of one instance does not stop the others. After several kinds of failure,",
    "the exit status is the first of 7, 6, 3, 2, 5, 8.",
    statuses=HealExit,
)
AUDIT_TABLE: Final = exit_table(statuses=[*AuditExit, Exit.BAD_ARGUMENTS])
SYNC_TABLE: Final = exit_table(
    "A problem of one host does not stop the others. After several kinds of problems, the",
    "exit status is the first of 3, 1, 4, 5, 6.",
    statuses=SyncExit,
)
