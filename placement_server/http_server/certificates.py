"""The certificate of the embedded server and its key, read again when their files change."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from dataclasses import dataclass, field
from typing import Any

LOG = logging.getLogger(__name__)


@dataclass
class Certificate:
    """A pair of files, and the TLS of connections that begin now. Thread safe.

    A pair that cannot be used, as while one of the files is still the old one, leaves the pair in
    force that was read before.
    """

    path: str
    key: str
    _context: ssl.SSLContext | None = None
    _state: tuple[object, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def context(self) -> ssl.SSLContext:
        """Return what a new connection is secured with.

        :raises OSError: the files cannot be used, and none were read before.
        """
        with self._lock:
            state = (_state_of(self.path), _state_of(self.key))
            if self._context is None or state != self._state:
                self._context = self._read(self._context)
                self._state = state
            return self._context

    def _read(self, before: ssl.SSLContext | None) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.path, self.key)
        except OSError as error:
            if before is None:
                raise
            LOG.error(
                "The certificate %s and its key %s have changed and cannot be used: %s. The pair "
                "read before stays in force until they are corrected.",
                *(self.path, self.key, error),
            )
            return before
        return context


def _state_of(path: str) -> Any:
    """Return what changes when a file does; None while there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
