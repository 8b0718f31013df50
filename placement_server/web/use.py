"""Use of the fleet over time, for the pages: a sample a minute, and the read of them.

Whichever worker answers a first request in a minute takes the sample, beside that request. A minute
without a request has none, and nothing has changed in it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from placement_server.api.request import Request
from placement_server.api.response import Response, json_response
from placement_server.store.errors import StoreError
from placement_server.store.providers import inventory_sums
from placement_server.store.store import Store

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

LOG = logging.getLogger(__name__)

NAME: Final = "use"


class UseSampler:
    """Pass requests on, and take a sample with the first of each further minute."""

    def __init__(self, application: WSGIApplication, store: Store) -> None:
        self._application = application
        self._store = store
        self._minute = int(time.time()) // 60

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        minute = int(time.time()) // 60
        if minute != self._minute:
            self._minute = minute
            sampling = threading.Thread(
                target=self.sample, args=(minute,), name="use-sample", daemon=True
            )
            # of a system that has no thread for it
            with suppress(RuntimeError):
                sampling.start()
        return self._application(environ, start_response)

    def sample(self, minute: int) -> None:
        """Take the sample of a minute, unless another worker has."""
        try:
            if not self._store.read_single(inventory_sums.sample_exists, minute):
                sums = self._store.read_single(inventory_sums.of_fleet)
                self._store.write(inventory_sums.write_sample, minute, sums)
        except StoreError as error:
            # an outage, which requests report, or another worker that was faster
            LOG.debug("There is no sample of minute %d: %s", minute, error)


def show(request: Request) -> Response:
    """Show what was used of a resource class, and its capacity, every ten minutes of a week."""
    [name] = request.all_of("resource_class")[:1] or [""]
    # the first sample of each ten minutes
    amounts_at = {
        minute // inventory_sums.THINNED: (minute, *amounts[name])
        for minute, amounts in reversed(request.store.read_single(inventory_sums.samples))
        if name in amounts
    }
    samples = [amounts_at[tens] for tens in sorted(amounts_at)]
    body = {
        "minutes": [minute for minute, _, _ in samples],
        "used": [used for _, used, _ in samples],
        "capacity": [capacity for _, _, capacity in samples],
    }
    return json_response(body, ("cache-control", "no-store"))
