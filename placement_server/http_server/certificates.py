"""The certificate of the embedded server and its key, watched for renewals."""

from __future__ import annotations

import _ssl
import contextlib
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

    def dates(self) -> tuple[datetime, datetime]:
        """Return the moments between which it is valid."""
        fields = self._fields()
        begin, end = (ssl.cert_time_to_seconds(fields[name]) for name in ("notBefore", "notAfter"))
        return datetime.fromtimestamp(begin, UTC), datetime.fromtimestamp(end, UTC)

    def fault(self, now: float, dates: tuple[datetime, datetime]) -> str | None:
        """Return why clients that check the certificate refuse it at a moment, by its dates."""
        begin, end = dates
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

    def state(self) -> list[tuple[int, int, int]]:
        """Return what differs when the files are replaced."""
        state = []
        for path in (self.path, self.key):
            # it may be removed at any moment, or lie where this user may not look
            with contextlib.suppress(OSError):
                file = path.stat()
                state.append((file.st_ino, file.st_size, file.st_mtime_ns))
        return state


class CertificateWatch:
    """A pair that is served: what is wrong with it, and its renewals.

    :param copy: the copy that is served.
    :param show_fault: called with what is wrong, and with None when that is over.
    """

    def __init__(
        self,
        certificate: Certificate,
        copy: Certificate,
        on_renewal: Callable[[], None],
        show_fault: Callable[[str | None], None],
    ) -> None:
        self._certificate = certificate
        self._on_renewal = on_renewal
        self._show_fault = show_fault
        self._state = certificate.state()
        self._shown_fault: str | None = None
        self._take(copy)

    def run(self) -> None:
        """Look again and again, without end."""
        while True:
            time.sleep(1.0)
            self.look()

    def look(self) -> None:
        """Copy the pair if it has changed and can be used, and show what is wrong."""
        before, self._state = self._state, self._certificate.state()
        # other rights, or room on the disk, do not change the files
        if self._state != before or self._unusable:
            self._renew()
        self._show()

    def _take(self, copy: Certificate) -> None:
        """Read the dates, put the end into the metrics, and show what is wrong."""
        # not at the top: the metrics look for their directory when they are imported
        from placement_server.metrics import metrics

        self._unusable = ""
        self._copy, self._dates = copy, copy.dates()
        file = str(self._certificate.path)
        metrics.TLS_EXPIRY.labels(file).set(self._dates[1].timestamp())
        metrics.CONFIGURATION_READ.labels(file).set(1)
        self._show()

    def _renew(self) -> None:
        from placement_server.metrics import metrics

        pair = self._certificate
        try:
            copy = pair.copy(self._copy.path.parent)
        except OSError as error:
            self._unusable = (
                f"Certificate {pair.path} and key {pair.key} cannot be used: {error}. The old pair "
                "stays in force."
            )
            metrics.CONFIGURATION_READ.labels(str(pair.path)).set(0)
        else:
            self._take(copy)
            self._on_renewal()

    def _show(self) -> None:
        fault = self._unusable or self._certificate.fault(time.time(), self._dates)
        if fault == self._shown_fault:
            return
        self._shown_fault = fault
        if fault:
            LOG.log(logging.ERROR if self._unusable else logging.WARNING, "%s", fault)
        self._show_fault(fault)
