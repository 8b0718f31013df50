"""Paths for the machinery around the server: health and metrics.

They lie outside of the API's URL space, need no token and exist only where the operator says so,
because the API itself answers every unknown path with 401 or 404.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from oslo_config import cfg
from oslo_middleware import healthcheck

from placement_server import metrics

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


class AtPath:
    """Send one path to another application."""

    def __init__(self, application: WSGIApplication, path: str, elsewhere: WSGIApplication) -> None:
        self._application = application
        self._path = path
        self._elsewhere = elsewhere

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        there = environ.get("PATH_INFO") == self._path
        return (self._elsewhere if there else self._application)(environ, start_response)


def show_metrics(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """What Prometheus scrapes."""
    del environ
    body = metrics.exposition()
    start_response(
        "200 OK",
        [("content-type", metrics.CONTENT_TYPE), ("content-length", str(len(body)))],
    )
    return [body]


def wrap(application: WSGIApplication, conf: cfg.ConfigOpts) -> WSGIApplication:
    """Put the paths that ``[placement_server]`` names in front of the application."""
    options = conf.placement_server
    if options.metrics_path:
        application = AtPath(application, options.metrics_path, show_metrics)
    if options.healthcheck_path:
        check = healthcheck.Healthcheck(None, conf)
        application = AtPath(application, options.healthcheck_path, check)
    return application
