"""Machine, boot and state directory of an agent, by which agents are distinguished."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from compute_agent.state import documents
from compute_agent.state.documents import FileUnusable

if TYPE_CHECKING:
    from oslo_config import cfg

LOG = logging.getLogger(__name__)

BOOT_ID_BYTES: Final = 64
MACHINE_ID: Final = Path("/etc/machine-id")
_NO_MACHINE_IDS: Final = ("", "uninitialized")
"""Contents of the file in images, before a first boot (machine-id(5))."""
SHOWN_LENGTH: Final = 255
UNKNOWN: Final = "unknown"


class Place(Struct, frozen=True):
    """Where an agent runs. A cloned machine has the machine id of its original.

    Its texts have at most `SHOWN_LENGTH` characters.
    """

    address: str
    machine_id: str
    boot_id: str
    state_path: str

    def __str__(self) -> str:
        """Return it as a message has it."""
        return (
            f"{self.address} (machine id {self.machine_id}, boot {self.boot_id}, "
            f"state in {self.state_path})"
        )

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Place:
        """Return the place that an agent told of itself.

        :raises KeyError: it lacks something.
        """
        return cls(*(str(document[name])[:SHOWN_LENGTH] for name in cls.__struct_fields__))

    def is_same_machine(self, other: Place) -> bool:
        """Return whether both use one state directory of one machine, or of a clone of it."""
        is_known = self.machine_id != UNKNOWN
        return is_known and (self.machine_id, self.state_path) == (
            other.machine_id,
            other.state_path,
        )

    def is_same(self, other: Place) -> bool:
        """Return whether both are one agent, which may have been started again.

        Without a boot id they are only if all else is equal: clones of a machine have none either.
        """
        if self.boot_id == UNKNOWN:
            return self == other
        return (self.boot_id, self.state_path) == (other.boot_id, other.state_path)


def boot_id(procfs_root: str) -> str:
    """Return what differs from boot to boot of the machine (proc(5), kernel/random/boot_id)."""
    path = Path(procfs_root, "sys/kernel/random/boot_id")
    try:
        text = documents.read_beginning(path, BOOT_ID_BYTES).decode("ascii", "replace")
        return text.strip() or UNKNOWN
    except FileNotFoundError:
        reason = "is not there"
    except FileUnusable as error:
        reason = str(error)
    LOG.info(
        "Devices stay marked as broken after a reboot, as reboots cannot be detected: %s %s.",
        path,
        reason,
    )
    return UNKNOWN


def own_place(conf: cfg.ConfigOpts) -> Place:
    """Return where this agent runs."""
    try:
        machine_id = MACHINE_ID.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        machine_id = ""
    if machine_id in _NO_MACHINE_IDS:
        machine_id = UNKNOWN
    boot = boot_id(conf.host.procfs_root)
    texts = (str(conf.my_ip), machine_id, boot, str(conf.state_path))
    return Place(*(text[:SHOWN_LENGTH] for text in texts))
