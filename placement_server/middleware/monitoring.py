"""Paths for load balancers and Prometheus: health and metrics.

They are outside of the API's URL space, need no token and exist only where the operator configures
them, because the API itself answers every unknown path with 401 or 404.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from oslo_config import cfg
from oslo_middleware import healthcheck
from oslo_middleware.healthcheck import pluginbase

from placement_server.candidates.index.follower import IndexFollower
from placement_server.metrics import metrics
from placement_server.metrics.inventories import InventoryCollector
from placement_server.middleware.observation import ANSWERS
from placement_server.store.errors import StoreError
from placement_server.store.probe import DatabaseProbe
from placement_server.store.store import Store

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


LOG = logging.getLogger(__name__)

LOADING_SECONDS: Final = 1.0
"""Seconds that a check waits for an index which is being loaded."""

_LOG_SECONDS: Final = 1.0
"""Seconds that a scrape waits for answers which are being logged and counted."""


class Health:
    """The checks of `[healthcheck]`, and whether the database answers and the index is loaded.

    :param application: the API, for clients that the options exclude.
    """

    def __init__(
        self,
        application: WSGIApplication,
        conf: cfg.ConfigOpts,
        probe: DatabaseProbe,
        follower: IndexFollower,
    ) -> None:
        self._probe = probe
        self._index = _IndexLoading(follower)
        self._checks = _checks(application, conf)
        self._database_failed = _checks(
            application, conf, "DATABASE UNAVAILABLE", "The log has the reason."
        )
        self._not_loaded = _checks(
            application, conf, "INDEX LOADING", "All provider trees are being read."
        )

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if self._probe.failure():
            application = self._database_failed
        elif not self._index.is_done():
            application = self._not_loaded
        else:
            application = self._checks
        chunks: Iterable[bytes] = application(environ, start_response)
        return chunks


class _IndexLoading:
    """The first loading of the index, which the first check begins.

    Not the start of the application, which some servers do before they fork. A search that needs
    the index meanwhile waits for the same loading.
    """

    def __init__(self, follower: IndexFollower) -> None:
        self._follower = follower
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def is_done(self) -> bool:
        """Return whether the index is loaded, after a moment in which a small one will be."""
        if self._follower.is_loaded:
            return True
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._load, name="index", daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(LOADING_SECONDS)
        return self._follower.is_loaded

    def _load(self) -> None:
        try:
            self._follower.index()
        except StoreError as error:
            LOG.warning("The health check reports 503, because the index is not loaded: %s", error)


def _checks(
    application: WSGIApplication, conf: cfg.ConfigOpts, reason: str = "", details: str = ""
) -> healthcheck.Healthcheck:
    """Return the checks, with another that fails where a reason is given."""
    checks = healthcheck.Healthcheck(application, conf)
    # before 8.0 oslo.middleware compares the path with an option of its own
    vars(checks)["_ignore_path"] = True
    if reason:
        # oslo.middleware loads its checks from entry points and passes them only options.
        failed_check = SimpleNamespace(
            obj=_FailedCheck(conf, {"reason": reason, "details": details})
        )
        checks._backends = [*checks._backends, failed_check]
    return checks


class _FailedCheck(pluginbase.HealthcheckBaseExtension):  # type: ignore[misc]
    def __init__(self, oslo_conf: cfg.ConfigOpts, conf: dict[str, str]) -> None:
        super().__init__(oslo_conf, conf)
        self._result = pluginbase.HealthcheckResult(available=False, **conf)

    def healthcheck(self, server_port: int) -> pluginbase.HealthcheckResult:
        del server_port
        return self._result


def wrap(
    application: WSGIApplication, conf: cfg.ConfigOpts, store: Store, follower: IndexFollower
) -> WSGIApplication:
    """Put the paths that `[placement_server]` names in front of the application.

    :param follower: what loads the index.
    """
    options = conf.placement_server
    paths: dict[str, WSGIApplication] = {}
    if options.metrics_path:
        inventories = InventoryCollector(
            store,
            by_host=options.inventory_metrics == "hosts",
            zones=options.zone_aggregates,
        )
        metrics.observe_pools(store)

        def scrape(_environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
            ANSWERS.record_all(_LOG_SECONDS)
            body = metrics.exposition(inventories)
            length = ("content-length", str(len(body)))
            start_response("200 OK", [("content-type", metrics.CONTENT_TYPE), length])
            return [body]

        paths[options.metrics_path] = scrape
    if options.healthcheck_path:
        probe = DatabaseProbe.of_store(store)
        paths[options.healthcheck_path] = Health(application, conf, probe, follower)

    def by_path(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        return paths.get(environ.get("PATH_INFO", ""), application)(environ, start_response)

    return by_path if paths else application
