"""Disks of a few MiB, which can be filled."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_CLONE_NEWNS = 0x20000
_PIECE = 1 << 16


def mounts_of_our_own() -> bool:
    """Let this process and its children see mounts that end with them; False without the right."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        return False
    done = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)
    return done.returncode == 0


class SmallDisk:
    """A tmpfs at a new directory, which everybody may write to."""

    def __init__(self, path: Path, mebibytes: int) -> None:
        self.path = path
        path.mkdir(parents=True)
        options = f"size={mebibytes}m,mode=0777"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=False)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Leave not a byte; what others free is not taken."""
        filler = self.path / "filler"
        try:
            with filler.open("wb", buffering=0) as file:
                for piece in (_PIECE, 512, 1):
                    try:
                        while file.write(bytes(piece)):
                            pass
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(filler)
