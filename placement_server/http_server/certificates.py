"""The certificate of the embedded server and its key, watched for renewals."""

from __future__ import annotations

import _ssl
import logging
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

LOG = logging.getLogger(__name__)


class Certificate(Struct, frozen=True):
    """A pair of files."""

    path: Path
    key: Path

    def check(self) -> None:
        """Check that the files can be used together; raise OSError where they cannot."""
        if (version := self._fields()["version"]) < 3:
            # granian's workers end as soon as they read it
            raise OSError(f"the certificate is of X.509 version {version}, and 3 is needed")
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.path, self.key)

    def fault(self, now: float) -> str | None:
        """Return why clients that check the certificate refuse it at a moment, by its dates."""
        begin, end = self._moment("notBefore"), self._moment("notAfter")
        if now < begin.timestamp():
            return (
                f"The certificate {self.path} is not valid before {begin}, and clients refuse it "
                "until then. Check the clock of this machine, or replace the certificate."
            )
        if now > end.timestamp():
            return (
                f"The certificate {self.path} expired at {end}, and clients refuse it. Renew it "
                "and its key; the server takes the new pair without a restart."
            )
        return None

    def show(self) -> None:
        """Log what is wrong with its dates, and put its end into the metrics."""
        # not at the top: the metrics look for their directory when they are imported
        from placement_server.metrics import metrics

        if (fault := self.fault(time.time())) is not None:
            LOG.warning("%s", fault)
        metrics.TLS_EXPIRY.labels(str(self.path)).set(self._moment("notAfter").timestamp())
        metrics.CONFIGURATION_READ.labels(str(self.path)).set(1)

    def _moment(self, field: str) -> datetime:
        return datetime.fromtimestamp(ssl.cert_time_to_seconds(self._fields()[field]), UTC)

    def _fields(self) -> dict[str, Any]:
        # SSLContext.get_ca_certs leaves out what is not of an authority, and there is no other way
        fields: dict[str, Any] = _ssl._test_decode_cert(str(self.path))  # type: ignore[attr-defined]
        return fields

    def copy(self, directory: Path) -> Certificate:
        """Copy the pair if it can be used; raise OSError, with the copy as it was, otherwise."""
        contents = {"cert": self.path.read_bytes(), "key": self.key.read_bytes()}
        for name, content in contents.items():
            (directory / f"new-{name}").write_bytes(content)
        Certificate(directory / "new-cert", directory / "new-key").check()
        return Certificate(*((directory / f"new-{n}").rename(directory / n) for n in contents))

    def watch(self, directory: Path, on_renewal: Callable[[], None]) -> None:
        """Copy the pair whenever it has changed and can be used, without end."""
        from placement_server.metrics import metrics

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
                metrics.CONFIGURATION_READ.labels(str(self.path)).set(0)
            else:
                self.show()
                on_renewal()

    def _state(self) -> list[tuple[int, int, int]]:
        files = [file.stat() for file in (self.path, self.key) if file.exists()]
        return [(file.st_ino, file.st_size, file.st_mtime_ns) for file in files]
