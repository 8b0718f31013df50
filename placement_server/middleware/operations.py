"""Paths for load balancers and Prometheus: health and metrics.

They are outside of the API's URL space, need no token and exist only where the operator configures
them, because the API itself answers every unknown path with 401 or 404.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from oslo_config import cfg
from oslo_middleware import healthcheck
from oslo_middleware.healthcheck import pluginbase
from prometheus_client.registry import Collector

from placement_server import metrics
from placement_server.inventory_metrics import InventoryCollector
from placement_server.pool_metrics import observe_pools
from placement_server.store.probe import DatabaseProbe
from placement_server.store.store import Store

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


class AtPath:
    """Send one path to another application."""

    def __init__(self, application: WSGIApplication, path: str, elsewhere: WSGIApplication) -> None:
        self._application = application
        self._path = path
        self._elsewhere = elsewhere

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        application = (
            self._elsewhere if environ.get("PATH_INFO") == self._path else self._application
        )
        return application(environ, start_response)


class Health:
    """The checks of ``[healthcheck]``, and whether the database answers."""

    def __init__(self, conf: cfg.ConfigOpts, probe: DatabaseProbe) -> None:
        self._probe = probe
        self._checks = healthcheck.Healthcheck(None, conf)
        self._failure = healthcheck.Healthcheck(None, conf)
        # oslo.middleware loads its checks from entry points and passes them only options.
        failed_check = SimpleNamespace(obj=_DatabaseFailed(conf, {}))
        self._failure._backends = [*self._failure._backends, failed_check]

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        application = self._failure if self._probe.failure() else self._checks
        chunks: Iterable[bytes] = application(environ, start_response)
        return chunks


class _DatabaseFailed(pluginbase.HealthcheckBaseExtension):  # type: ignore[misc]
    def healthcheck(self, server_port: int) -> pluginbase.HealthcheckResult:
        del server_port
        return pluginbase.HealthcheckResult(
            available=False, reason="DATABASE UNAVAILABLE", details="The log has the reason."
        )


class Metrics:
    """The metrics, in the format that Prometheus scrapes.

    :param now: collects what is read at the moment of the scrape.
    """

    def __init__(self, now: Collector) -> None:
        self._now = now

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        del environ
        body = metrics.exposition(self._now)
        start_response(
            "200 OK",
            [("content-type", metrics.CONTENT_TYPE), ("content-length", str(len(body)))],
        )
        return [body]


def wrap(application: WSGIApplication, conf: cfg.ConfigOpts, store: Store) -> WSGIApplication:
    """Put the paths that ``[placement_server]`` names in front of the application."""
    options = conf.placement_server
    if options.metrics_path:
        inventories = InventoryCollector(
            store,
            by_host=options.inventory_metrics == "hosts",
            zones=options.zone_aggregates,
        )
        observe_pools(store)
        application = AtPath(application, options.metrics_path, Metrics(inventories))
    if options.healthcheck_path:
        health = Health(conf, DatabaseProbe.of_store(store))
        application = AtPath(application, options.healthcheck_path, health)
    return application
