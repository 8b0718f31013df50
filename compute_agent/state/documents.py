"""Documents on disk, read from regular files within limits of size, and decoded into values.

A file may be anything by the time it is read: a pipe without a writer, a device without an end, the
remains of a disk's fault. Everything that outlives a process is read through here, so that each of
these is an error that names the file and the place in it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from typing import Any, Final

from compute_agent import errors
from compute_agent.programs.decoding import Misfit, Value, decode

MAX_BYTES: Final = 16 * 1024 * 1024

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class FileUnusable(errors.ComputeAgentError):
    """A file cannot be read, or does not hold what it should.

    The message goes on from the name of the file: `is a pipe, not a regular file`.
    """


class NoJson(FileUnusable):
    """A file is not JSON, such as one that a crash has cut off."""


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor.

    To be read, it may be behind a symbolic link. To be written, it may not: root writes to
    directories of other users, who could make it change any file.

    :param flags: those of open(2).
    :raises FileNotFoundError: the file does not exist.
    :raises FileUnusable: it cannot be opened, or is not a regular file; nothing is waited for.
    """
    all_flags = flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if flags & (os.O_WRONLY | os.O_RDWR):
        all_flags |= os.O_NOFOLLOW
    try:
        descriptor = os.open(path, all_flags, 0o644)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise FileUnusable("is a symbolic link, not a regular file") from error
        raise FileUnusable(f"cannot be opened: {error.strerror}") from error
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    kind_name = next((words for is_kind, words in _KINDS if is_kind(kind)), "something else")
    raise FileUnusable(f"is {kind_name}, not a regular file")


def read_beginning(path: Path, size: int) -> bytes:
    """Return the first bytes of a regular file.

    :param size: bytes at most.
    :raises FileNotFoundError: the file does not exist.
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
    """Return the content of a regular file of 16 MiB at most.

    :raises FileNotFoundError: the file does not exist.
    :raises FileUnusable: it cannot be read, is not a regular file, or is larger.
    """
    return _within_limit(read_beginning(path, MAX_BYTES + 1))


def read_named(name: str) -> bytes:
    """Return what a user's argument names, 16 MiB at most: a file, a pipe, or `-`.

    :raises FileUnusable: it cannot be read, or is larger.
    """
    try:
        if name == "-":
            content = sys.stdin.read(MAX_BYTES + 1).encode()
        else:
            with open(name, "rb") as file:
                content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileUnusable(f"cannot be read: {error.strerror}") from error
    except UnicodeError as error:
        raise FileUnusable(f"cannot be read: {error}") from error
    return _within_limit(content)


def _within_limit(content: bytes) -> bytes:
    if len(content) > MAX_BYTES:
        raise FileUnusable(f"is larger than {MAX_BYTES // 1024**2} MiB")
    return content


def read_yaml(path: Path) -> Any:
    """Return the YAML document in a regular file of 16 MiB at most.

    :raises FileNotFoundError: the file does not exist.
    :raises FileUnusable: it cannot be read, or holds no document that can be used.
    """
    return parse_yaml(read_file(path))


def parse_yaml(content: bytes) -> Any:
    """Return the YAML document in a text.

    :raises FileUnusable: it is not YAML, has too many values, or one that cannot be built.
    """
    from compute_agent.programs import yaml_text

    try:
        return yaml_text.parse_yaml(content)
    except yaml_text.YamlUnusable as error:
        raise FileUnusable(str(error)) from error


def parse(content: bytes, kind: type[Value]) -> Value:
    """Return a JSON document as a value of this type.

    :raises NoJson: it is not JSON.
    :raises FileUnusable: it is nested too deeply, or does not fit the type.
    """
    try:
        return decode(content, kind)
    except Misfit as error:
        raise FileUnusable(f"is damaged: {error}") from error
    except ValueError as error:
        raise NoJson(f"is damaged: it is not JSON ({error})") from error
