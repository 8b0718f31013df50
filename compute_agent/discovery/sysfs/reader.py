"""The only place where files are opened: below a movable root, with errors that name the path.

`Machine` is one machine for the length of one discovery: the trees /sys and /proc, wherever they
lie, and the warnings gathered on the way.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable

from compute_agent.discovery.bounded_calls import step
from compute_agent.discovery.errors import FactMalformed, FactUnreadable

SYSFS = "/sys"
PROCFS = "/proc"

ATTRIBUTE_LIMIT = 65536
"""Bytes. A sysfs attribute has one page; of the larger files of /proc only the start is wanted."""

PIECE = 65536
"""Bytes of one read: the kernel allocates as much for a sysctl, and refuses a few MiB."""

NO_VALUE = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EINVAL,  # `speed` of an interface that is down
        errno.ENODEV,
        errno.ENXIO,
        errno.EOPNOTSUPP,  # `phys_port_name`, `phys_switch_id` of drivers without them
        errno.ENODATA,
    }
)
"""Errors that mean "this has no value (now)" from the kernel: not worth a warning."""

_COUNT = re.compile(r"[0-9]{1,19}")
_HEXADECIMAL = re.compile(r"(?:0[xX])?([0-9a-fA-F]+)")

_SURROUNDING = " \t\r\n\v\f\0"
"""Some kernels end lists in NUL."""

ReadFile = Callable[[str, int], bytes]


def read_file(path: str, limit: int) -> bytes:
    """Up to `limit` bytes of a file. Raises OSError.

    Files of /sys and /proc have no size and may come in pieces; unbuffered reads until the end
    cost half of what `open()` does, which counts with thousands of files a pass.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = piece = os.read(descriptor, min(limit, PIECE))
        while piece and len(data) < limit:
            piece = os.read(descriptor, min(limit - len(data), PIECE))
            data += piece
        return data
    finally:
        os.close(descriptor)


class FileTree:
    """Files below one root. Paths are relative to it; errors and warnings name whole ones."""

    def __init__(self, root: str, warn: Callable[[str], None], read: ReadFile = read_file) -> None:
        self.root = root.rstrip("/") or "/"
        self._warn = warn
        self._read = read

    def path(self, relative: str) -> str:
        return f"{self.root}/{relative}"

    # -- what must be there ---------------------------------------------------------------

    def text(self, relative: str, limit: int = ATTRIBUTE_LIMIT) -> str:
        """Read the file's text without surrounding white space and NULs.

        :raises FactUnreadable: as `data`.
        """
        return self.data(relative, limit).decode("utf-8", "replace").strip(_SURROUNDING)

    def data(self, relative: str, limit: int = ATTRIBUTE_LIMIT) -> bytes:
        """Read the file's bytes; raises FactUnreadable."""
        path = f"{self.root}/{relative}"
        step(path)
        try:
            return self._read(path, limit)
        except OSError as error:
            raise FactUnreadable(path, error) from error

    def count(self, relative: str) -> int:
        """Read the file's number, 0 or more; raises as `text`, and FactMalformed."""
        text = self.text(relative)
        if not _COUNT.fullmatch(text):
            raise FactMalformed(self.path(relative), text, "a number that is not negative")
        return int(text)

    def hexadecimal(self, relative: str, digits: int) -> str:
        """Read a number written 0x..., as lower-case hex of that many digits without the 0x.

        :raises FactUnreadable: as `data`.
        :raises FactMalformed: the text is not such a number.
        """
        text = self.text(relative)
        match = _HEXADECIMAL.fullmatch(text)
        if match is None or len(match[1]) > digits:
            raise FactMalformed(self.path(relative), text, f"0x and up to {digits} digits")
        return match[1].lower().rjust(digits, "0")

    # -- what may be there ----------------------------------------------------------------

    def optional_text(self, relative: str, limit: int = ATTRIBUTE_LIMIT) -> str | None:
        """Read the file's text; None when it has none, with a warning if the reason is unusual."""
        try:
            return self.text(relative, limit) or None
        except FactUnreadable as error:
            if error.errno not in NO_VALUE:
                self._warn(f"{error}; treated as unknown")
            return None

    def optional_integer(self, relative: str) -> int | None:
        """Like `optional_text`, for a number."""
        text = self.optional_text(relative)
        if text is None:
            return None
        try:
            return int(text, 0)
        except ValueError:
            error = FactMalformed(self.path(relative), text, "a number")
            self._warn(f"{error}; treated as unknown")
            return None

    def names(self, relative: str) -> tuple[str, ...]:
        """List a directory, sorted; () when it does not exist, or with a warning cannot be read."""
        path = f"{self.root}/{relative}"
        step(path)
        try:
            return tuple(sorted(os.listdir(path)))
        except OSError as error:
            if error.errno not in NO_VALUE:
                self._warn(f"{FactUnreadable(path, error)}; treated as empty")
            return ()

    def link(self, relative: str) -> str | None:
        """Where a symbolic link points to, as it is written; None when there is none."""
        path = f"{self.root}/{relative}"
        step(path)
        try:
            return os.readlink(path)
        except OSError as error:
            if error.errno not in NO_VALUE:
                self._warn(f"{FactUnreadable(path, error)}; treated as unknown")
            return None

    def link_name(self, relative: str) -> str | None:
        """Last part of where a link points to: a driver's name, a group's number, an address."""
        target = self.link(relative)
        return None if target is None else target.rpartition("/")[2]


class Machine:
    """The two trees of one machine, and the warnings of one discovery of it."""

    def __init__(
        self,
        sysfs_root: str = SYSFS,
        procfs_root: str = PROCFS,
        read: ReadFile = read_file,
    ) -> None:
        self._warnings: list[str] = []
        self.sys = FileTree(sysfs_root, self.warn, read)
        self.proc = FileTree(procfs_root, self.warn, read)

    def warn(self, sentence: str) -> None:
        """Note what was left out or guessed: the path and the reason, in one sentence."""
        self._warnings.append(sentence)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Every warning once, in the order in which they came up."""
        return tuple(dict.fromkeys(self._warnings))
