"""Traces of requests across services, by osprofiler."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from placement_server.store.store import Store

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger(__name__)


class Tracing:
    """Send requests that carry a trace through osprofiler, and all others past it."""

    def __init__(self, application: WSGIApplication, traced_application: WSGIApplication) -> None:
        self._application = application
        self._traced_application = traced_application

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        application = (
            self._traced_application if "HTTP_X_TRACE_INFO" in environ else self._application
        )
        return application(environ, start_response)


def wrap(application: WSGIApplication, conf: cfg.ConfigOpts, store: Store) -> WSGIApplication:
    """Trace the application if ``[profiler]enabled`` is set and osprofiler is installed."""
    if not conf.profiler.enabled:
        return application
    try:
        import osprofiler.initializer
        import osprofiler.sqlalchemy
        import osprofiler.web
    except ImportError as error:
        LOG.warning(
            "[profiler]enabled is true, but osprofiler cannot be loaded (%s), so no request is "
            "traced. Install it with: pip install 'compute-agent[profiler]'",
            error,
        )
        return application
    osprofiler.initializer.init_from_conf(
        conf=conf, context={}, project="placement", service="placement", host=socket.gethostname()
    )
    if conf.profiler.trace_sqlalchemy:
        import sqlalchemy

        for engine in store.all_engines():
            osprofiler.sqlalchemy.add_tracing(sqlalchemy, engine, "db")
    traced_application = osprofiler.web.WsgiMiddleware(
        application, hmac_keys=conf.profiler.hmac_keys, enabled=True
    )
    return Tracing(application, traced_application)
