"""Metrics as they are shown: one port for the service, however many processes it has.

Worker processes keep their values in files of one directory, which the process that looks after
them adds up when it is asked. So counters do not go back when a worker is replaced. A port for each
worker would have to be found by Prometheus, and would lose what a dead worker has counted.
prometheus_client uses files if it is imported with the directory in the environment.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from compute_agent.errors import InvalidConfiguration
from compute_agent.programs.metrics_server import MetricsServer
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.service.calls import Calls
from compute_agent.scheduler.service.metrics import CountedCalls, JournalCollector

if TYPE_CHECKING:
    from oslo_config import cfg
    from prometheus_client import CollectorRegistry

OPTION: Final = "[compute_scheduler]metrics_bind"
DIRECTORY_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


def counted_calls(conf: cfg.ConfigOpts) -> Calls:
    """Return calls for a worker process, counted where metrics are configured."""
    if not conf.compute_scheduler.metrics_bind:
        return Calls()
    from prometheus_client import CollectorRegistry

    return CountedCalls(CollectorRegistry())


@contextmanager
def of_this_process(conf: cfg.ConfigOpts) -> Iterator[Calls]:
    """Show the metrics of this process where that is configured; yield the calls to count.

    :raises InvalidConfiguration: the address is malformed or taken.
    """
    bind = conf.compute_scheduler.metrics_bind
    if not bind:
        yield Calls()
        return
    registry = _registry(conf)
    calls = CountedCalls(registry)
    with _serve(bind, registry):
        yield calls


@contextmanager
def of_workers(
    conf: cfg.ConfigOpts,
) -> Iterator[tuple[Mapping[str, str], Callable[[int], None]]]:
    """Show the metrics of workers where that is configured.

    Yields variables of their environment, and what is to be called with the process id of each
    that has ended: it forgets what only the living have, such as calls in progress.

    :raises InvalidConfiguration: the address is malformed or taken.
    """
    bind = conf.compute_scheduler.metrics_bind
    if not bind:
        yield {}, lambda _pid: None
        return
    from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

    with tempfile.TemporaryDirectory(prefix="compute-scheduler-metrics-") as directory:
        registry = _registry(conf)
        MultiProcessCollector(registry, path=directory)  # type: ignore[no-untyped-call]
        with _serve(bind, registry):
            yield (
                {DIRECTORY_VARIABLE: directory},
                lambda pid: mark_process_dead(  # type: ignore[no-untyped-call]
                    pid, directory
                ),
            )


def _registry(conf: cfg.ConfigOpts) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(JournalCollector(Journal(conf.compute_scheduler.journal_path)))
    return registry


@contextmanager
def _serve(bind: str, registry: CollectorRegistry) -> Iterator[None]:
    server = MetricsServer(OPTION, bind, registry, InvalidConfiguration)
    server.start()
    try:
        yield
    finally:
        server.stop()
