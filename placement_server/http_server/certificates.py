"""The certificate of the embedded server and its key, watched for renewals."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

LOG = logging.getLogger(__name__)


class Certificate(Struct, frozen=True):
    """A pair of files."""

    path: Path
    key: Path

    def check(self) -> None:
        """Check that the files can be used together; raise OSError where they cannot."""
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.path, self.key)

    def copy(self, directory: Path) -> Certificate:
        """Copy the pair if it can be used; raise OSError, with the copy as it was, otherwise."""
        contents = {"cert": self.path.read_bytes(), "key": self.key.read_bytes()}
        for name, content in contents.items():
            (directory / f"new-{name}").write_bytes(content)
        Certificate(directory / "new-cert", directory / "new-key").check()
        return Certificate(*((directory / f"new-{n}").rename(directory / n) for n in contents))

    def watch(self, directory: Path, on_renewal: Callable[[], None]) -> None:
        """Copy the pair whenever it has changed and can be used, without end."""
        state = self._state()
        while True:
            time.sleep(1.0)
            before, state = state, self._state()
            if state == before:
                continue
            try:
                self.copy(directory)
            except OSError as error:
                text = "Certificate %s and key %s cannot be used: %s. The old pair stays in force."
                LOG.error(text, self.path, self.key, error)
            else:
                on_renewal()

    def _state(self) -> list[tuple[int, int, int]]:
        files = [file.stat() for file in (self.path, self.key) if file.exists()]
        return [(file.st_ino, file.st_size, file.st_mtime_ns) for file in files]
