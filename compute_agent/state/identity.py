"""The identity of this node: one uuid, created once and kept in a file.

The uuid is the root provider's. Losing it registers the host a second time, so a marker that is
written after the first full pass distinguishes a lost identity from a first start. Pure functions
decide about changes of the host's name and takeovers.
"""

from __future__ import annotations

import json
import uuid as uuids
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path

from msgspec import Struct, to_builtins

from compute_agent import errors
from compute_agent.provider_tree.provider import SHARING_TRAIT, provider_name
from compute_agent.provider_tree.trait_names import COMPUTE_NODE, OWNER_NOVA
from compute_agent.state import documents
from compute_agent.state import files as state_files
from compute_agent.state.documents import FileUnusable

COMPUTE_ID = "compute_id"
MARKER = "registered"
MAX_BYTES = 40
OWNER_TRAITS = frozenset({COMPUTE_NODE, OWNER_NOVA})


class Marker(Struct, frozen=True):
    """The node that was last registered from this state directory, and on which machine."""

    uuid: str
    name: str
    machine_id: str


class RootFacts(Struct, frozen=True):
    """The provider that placement has under this host's name or uuid, which should be a root.

    :ivar parent_uuid: `None` for a root.
    :ivar consumers: the uuids of those that have allocations in its tree.
    """

    uuid: str
    name: str
    traits: frozenset[str]
    parent_uuid: str | None = None
    consumers: frozenset[str] = frozenset()

    def why_no_host(self) -> str | None:
        """Return why it is not the root of a host; `None` if it may be one."""
        if self.parent_uuid is not None:
            return f"it has the parent {self.parent_uuid}"
        if SHARING_TRAIT in self.traits:
            return f"it shares its inventory with hosts (trait {SHARING_TRAIT})"
        return None


class Reporter(Struct, frozen=True):
    """The agent that reported a provider last.

    :ivar text: where it runs and when that was, for a message.
    :ivar is_same_machine: it is an agent of this machine, with this state directory.
    """

    text: str
    is_same_machine: bool


class IdentityDecision(Enum):
    """The decision for a host without an identity file."""

    CREATE = "take a new uuid"
    ADOPT = "take over the uuid that placement has for this host"
    REFUSE = "do not start"


class Adoption(Struct, frozen=True):
    """A verdict with the uuid to take over, or the reason of a refusal."""

    verdict: IdentityDecision
    uuid: str | None = None
    reason: str = ""


def directories(config_files: Iterable[str], state_path: Path) -> list[Path]:
    """Return the directories that may hold an identity file, without duplicates."""
    config_directories = [Path(file).resolve().parent for file in config_files]
    return list(dict.fromkeys([*config_directories, state_path.resolve()]))


def read_compute_id(path: Path) -> str:
    """Return the uuid in the file, in canonical form.

    :raises FileNotFoundError: the file does not exist.
    :raises InvalidNodeConfiguration: it cannot be read or does not hold a uuid.
    """
    try:
        raw = documents.read_beginning(path, MAX_BYTES)
    except FileUnusable as error:
        raise errors.InvalidNodeConfiguration(
            f"The identity file {path} {error}. It must be a file with one uuid, that of this "
            "host's root resource provider in placement, and readable for the user that runs the "
            "agent."
        ) from error
    text = raw.decode(errors="replace").strip()
    try:
        parsed_uuid = uuids.UUID(text)
    except ValueError as error:
        raise errors.InvalidNodeConfiguration(
            f"The identity file {path} does not hold a uuid but {text!r}. Restore it from a "
            "backup; the uuid is that of this host's root resource provider in placement."
        ) from error
    return str(parsed_uuid)


def find(places: Sequence[Path]) -> str | None:
    """Return the uuid that all identity files agree on, `None` without a file.

    :raises InvalidNodeConfiguration: a file is unusable, or two disagree.
    """
    uuid_of: dict[Path, str] = {}
    for place in places:
        path = place / COMPUTE_ID
        try:
            uuid_of[path] = read_compute_id(path)
        except FileNotFoundError:
            continue
    if len(set(uuid_of.values())) > 1:
        files = ", ".join(f"{uuid} in {path}" for path, uuid in uuid_of.items())
        raise errors.InvalidNodeConfiguration(
            f"The identity files of this node disagree: {files}. Keep the one that holds the uuid "
            "of this host's root resource provider in placement and remove the others."
        )
    return next(iter(uuid_of.values()), None)


def file_in(places: Sequence[Path]) -> Path | None:
    """Return the first identity file that exists, if any."""
    files = (place / COMPUTE_ID for place in places)
    return next((file for file in files if file.exists()), None)


def write_compute_id(state_path: Path, uuid: str) -> None:
    """Create the identity file with `uuid`, never replacing one.

    :raises InvalidNodeConfiguration: a file appeared meanwhile, or it cannot be written.
    :raises NoSpace: the disk is full.
    """
    path = state_path / COMPUTE_ID
    try:
        state_files.create_exclusively(path, f"{uuid}\n".encode(), 0o644)
    except FileExistsError as error:
        raise errors.InvalidNodeConfiguration(
            f"The identity file {path} appeared while a new one was about to be written. Another "
            "agent may be starting with the same state directory: let only one of them run."
        ) from error
    except OSError as error:
        text = (
            f"The identity file {path} cannot be written: {error.strerror}. Free space or correct "
            "the permissions of the directory."
        )
        if state_files.has_no_space(error):
            raise state_files.NoSpace(text) from error
        raise errors.InvalidNodeConfiguration(text) from error


def read_marker(state_path: Path) -> Marker | None:
    """Return the node that was last registered from this state directory, if any.

    :raises InvalidNodeConfiguration: the marker cannot be read.
    """
    path = state_path / MARKER
    try:
        return documents.parse(documents.read_file(path), Marker)
    except FileNotFoundError:
        return None
    except FileUnusable as error:
        raise errors.InvalidNodeConfiguration(
            f"The file {path}, which names the node that was registered from here, {error}. If "
            f"{COMPUTE_ID} is beside it and right, remove {path}; it is written again."
        ) from error


def write_marker(state_path: Path, marker: Marker) -> None:
    """Remember that the node has been registered in placement, unless that is written already.

    :raises StateUnusable: it cannot be written.
    """
    if read_marker(state_path) == marker:
        return
    path = state_path / MARKER
    content = json.dumps(to_builtins(marker)).encode() + b"\n"
    try:
        state_files.write_atomically(path, content)
    except OSError as error:
        raise state_files.unwritable(
            error,
            f"The file {path}, which names the node that was registered from here, cannot be "
            f"written: {error.strerror}. Free space or correct the permissions of the directory.",
        ) from error


def check_marker(uuid: str | None, marker: Marker | None, state_path: Path) -> None:
    """Refuse a state directory that lost its identity or got another node's.

    :raises InvalidNodeConfiguration: the message has the way to restore the identity.
    """
    if marker is None or uuid == marker.uuid:
        return
    path = state_path / COMPUTE_ID
    if uuid is None:
        raise errors.InvalidNodeConfiguration(
            f"This host was registered before ({state_path / MARKER} exists), but its identity "
            f"file {path} is gone. Write the uuid of the root resource provider named "
            f"{marker.name!r} into it; it was {marker.uuid}."
        )
    raise errors.InvalidNodeConfiguration(
        f"The identity file holds {uuid}, but {marker.uuid} ({marker.name!r}) was registered "
        f"from this state directory. Put {marker.uuid} back into {path}, or, if this is really "
        f"another node, remove {state_path / MARKER}."
    )


def check_root(root: RootFacts, file: Path | None) -> None:
    """Refuse a uuid for this node that placement has for something other than a host.

    A sharing root is accepted when it is marked as a compute node's: a host may share its own
    inventory, and placement has the mark once the host was reported.

    :param file: the source of the uuid; `None` for the driver.
    :raises InvalidNodeConfiguration: the node's inventory would replace that of another provider.
    """
    why = root.why_no_host()
    if why is None or (root.parent_uuid is None and COMPUTE_NODE in root.traits):
        return
    source = "The driver" if file is None else f"The identity file {file}"
    remedy = (
        "This is a defect of the driver."
        if file is None
        else "Write the uuid of this host's own root resource provider into that file; if "
        "placement has none yet, remove the file."
    )
    raise errors.InvalidNodeConfiguration(
        f"{source} has {root.uuid} as the uuid of this node, but that is {root.name!r} in "
        f"placement, which is not a host: {why}. {remedy}"
    )


def decide_adoption(
    root: RootFacts | None,
    *,
    guests: frozenset[str] | None,
    reporter: Reporter | None,
    adopt_asked: bool,
) -> Adoption:
    """Decide what a host without identity file and without marker does.

    A provider is this host's if a guest that runs here has some of it, or if an agent of this
    machine reported it last; else the operator confirms it. A provider below another one, or one
    that is shared, is refused anyway: the host's inventory would replace its own.

    :param root: the provider that placement has under this host's name, if any.
    :param guests: the uuids of the guests that run here; `None` when the driver does not know.
    :param reporter: the agent that reported that provider last, where placement knows.
    :param adopt_asked: the operator set `--adopt`.
    """
    if root is None:
        return Adoption(IdentityDecision.CREATE)
    why = root.why_no_host()
    if why is not None:
        return Adoption(
            IdentityDecision.REFUSE,
            reason=f"The name {root.name!r} of this host belongs to resource provider {root.uuid} "
            f"in placement, which is not a host: {why}. Rename or delete that provider, or give "
            "this host another name.",
        )
    if adopt_asked:
        return Adoption(IdentityDecision.ADOPT, root.uuid)
    finding = (
        f"Placement has a root resource provider named {root.name!r} already, uuid {root.uuid}"
    )
    if not root.traits & OWNER_TRAITS:
        return Adoption(
            IdentityDecision.REFUSE,
            reason=f"{finding}, and it is not marked as a compute node's. If it is this host, "
            "start once with --adopt; otherwise rename or delete that provider.",
        )
    if root.consumers & (guests or frozenset()) or (reporter and reporter.is_same_machine):
        return Adoption(IdentityDecision.ADOPT, root.uuid)
    who = f"An agent reported it {reporter.text}" if reporter else "Who reported it is not known"
    holders = ""
    if root.consumers:
        holders = (
            "; it has allocations, and the driver does not know which instances run here"
            if guests is None
            else "; it has allocations, but of no instance that runs here"
        )
    return Adoption(
        IdentityDecision.REFUSE,
        reason=f"{finding}. {who}{holders}. If another machine has this name, give one of the two "
        "another one ([DEFAULT]host). If the provider is this host's, as after a reinstallation, "
        "start once with --adopt.",
    )


def new_names(names: Mapping[str, str], old_root: str, new_root: str) -> dict[str, str]:
    """Return new names for the providers whose names begin with the host's.

    :param names: uuid to name of every provider in the tree.
    :returns: uuid to new name, the root's included. Names that other services made, such as
        `host:Open vSwitch agent`, follow another rule and are left to them.
    """
    new_names = {}
    for uuid, name in names.items():
        if name == old_root:
            new_names[uuid] = new_root
        elif name.startswith(f"{old_root}_"):
            new_names[uuid] = provider_name(new_root + name[len(old_root) :])
    return new_names
