"""JSON documents on the disk, read from regular files within limits of size, depth and shape.

A file may be anything by the time it is read: a pipe that nobody writes to, a device without an
end, the rest of a disk's fault. Everything that outlives a process is read through here, so that
each of these is an error that names the file and the place in it.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

from compute_agent import errors
from compute_agent.state.shapes import Shape

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_DEPTH: Final = 32
"""Objects and lists inside one another; what is written here has seven at most."""

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class FileUnusable(errors.ComputeAgentError):
    """A file cannot be read, or does not hold what it should.

    The message goes on from the name of the file: ``is a pipe, not a regular file``.
    """


class NoJson(FileUnusable):
    """What was read is not JSON, as what a crash has cut off."""


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o644) -> int:
    """Open a regular file, behind symbolic links too, and return its descriptor.

    :param flags: those of open(2).
    :param mode: of a file that is created.
    :raises FileNotFoundError: there is none.
    :raises FileUnusable: it cannot be opened, or is something else, which is not waited for.
    """
    wanted = flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, wanted, mode)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileUnusable(f"cannot be opened: {error.strerror}") from error
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    named = next((words for is_kind, words in _KINDS if is_kind(kind)), "something else")
    raise FileUnusable(f"is {named}, not a regular file")


def read_beginning(path: Path, size: int) -> bytes:
    """Return the first bytes of a regular file.

    :param size: bytes at most.
    :raises FileNotFoundError: there is none.
    :raises FileUnusable: it cannot be read, or is not a regular file.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(size)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileUnusable(f"cannot be read: {error.strerror}") from error


def read_file(path: Path) -> bytes:
    """Return what is in a regular file of 16 MiB at most.

    :raises FileNotFoundError: there is none.
    :raises FileUnusable: it cannot be read, is not a regular file, or is larger.
    """
    content = read_beginning(path, MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise FileUnusable(f"is larger than {MAX_BYTES // 1024**2} MiB")
    return content


def parse(content: bytes, shape: Shape) -> Any:
    """Return the document that is all that `shape` says.

    :raises NoJson: it is not JSON.
    :raises FileUnusable: it is nested too deeply, or something in it is not as it must be.
    """
    try:
        document = json.loads(content)
    except RecursionError:
        raise FileUnusable("is damaged: it is nested too deeply") from None
    except ValueError as error:
        raise NoJson(f"is damaged: it is not JSON ({error})") from error
    if _depth(document) > MAX_DEPTH:
        raise FileUnusable("is damaged: it is nested too deeply")
    check(document, shape)
    return document


def check(document: Any, shape: Shape) -> None:
    """Check that a document is all that `shape` says.

    :raises FileUnusable: names the first place where it is not.
    """
    misfit = shape.misfit(document)
    if misfit is not None:
        raise FileUnusable(f"is damaged: {misfit}")


def _depth(document: Any) -> int:
    """How far containers go inside one another, looked at no further than is permitted."""
    level = [document] if isinstance(document, dict | list) else []
    depth = 0
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            member
            for container in level
            for member in (container.values() if isinstance(container, dict) else container)
            if isinstance(member, dict | list)
        ]
    return depth
