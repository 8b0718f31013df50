"""Metrics over HTTP, for Prometheus, on a port of their own."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from compute_agent.programs.whole_numbers import whole_number

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric


class MetricsServer:
    """Serves a registry of metrics over HTTP.

    :param option: the option that `bind` is the value of, for errors.
    :param bind: `ADDRESS:PORT`; port 0 takes a free one.
    :param refusal: the error of the program for options that cannot be used.
    """

    def __init__(
        self, option: str, bind: str, registry: CollectorRegistry, refusal: type[Exception]
    ) -> None:
        self._option = option
        self._bind = bind
        self._registry = registry
        self._refusal = refusal
        self._server: Any = None
        self.port = 0

    def start(self) -> None:
        """Begin to listen.

        :raises Exception: `refusal`: the address is malformed or taken.
        """
        from prometheus_client import start_http_server

        address, _, text = self._bind.rpartition(":")
        port = whole_number(text, 65535)
        if not address or port is None:
            raise self._refusal(
                f"{self._option} is {self._bind!r}, expected ADDRESS:PORT such as 127.0.0.1:9101."
            )
        try:
            self._server, _ = start_http_server(
                port, addr=address.strip("[]"), registry=self._registry
            )
        except OSError as error:
            raise self._refusal(
                f"Metrics cannot be served on {self._bind}: {error}. Change {self._option} or end "
                "what uses that port."
            ) from error
        self.port = self._server.server_port

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def build_info(program: str, version: str) -> Metric:
    """Return the metric.

    :param program: the beginning of the names of its metrics.
    """
    from prometheus_client.core import GaugeMetricFamily

    labels = {"version": version, "python": platform.python_version()}
    family = GaugeMetricFamily(f"{program}_build_info", "1, with versions.", labels=list(labels))
    family.add_metric(list(labels.values()), 1)
    return family
