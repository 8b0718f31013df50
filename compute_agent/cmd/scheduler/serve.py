"""The command `compute-scheduler serve`: answers on the message bus, in one process or several."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from typing import TYPE_CHECKING, Final

from compute_agent import __version__, errors
from compute_agent import conf as agent_conf
from compute_agent.cmd import program
from compute_agent.daemon import logs, message_bus, signals, tracing
from compute_agent.programs.systemd import ServiceManager
from compute_agent.scheduler import assembly
from compute_agent.scheduler.service import metrics
from compute_agent.scheduler.service.life import SchedulerLife, check_placement
from compute_agent.scheduler.service.workers import Workers, when_abandoned

if TYPE_CHECKING:
    from oslo_config import cfg

LOG = logging.getLogger(__name__)

_PROGRAM: Final = "compute-scheduler"
MODULE: Final = "compute_agent.cmd.scheduler.main"


def serve(namespace: argparse.Namespace) -> int:
    """Answer requests until stopped."""
    if namespace.os_cloud is not None:
        raise errors.InvalidConfiguration(
            "serve takes no --os-cloud: set [placement]auth_type and its options in the file."
        )
    with signals.deferred():
        return _serve(namespace, program.configuration(namespace))


def _serve(namespace: argparse.Namespace, conf: cfg.ConfigOpts) -> int:
    logs.set_up(conf, _PROGRAM)
    if not namespace.worker:
        LOG.info(
            "compute-scheduler %s starts: %d worker(s), host %s, placement %s, message bus %s",
            __version__,
            max(conf.scheduler.workers, 1),
            conf.DEFAULT.host,
            conf.placement.endpoint_override or "by the catalogue of keystone",
            message_bus.shown_address(conf),
        )
        agent_conf.warn_of_useless(conf)

        # a filter or weigher that does not exist ends the start here, instead of every worker
        assembly.search_options(conf)
        assembly.claim_options(conf)
    if namespace.worker or conf.scheduler.workers <= 1:
        tracing.start(conf, _PROGRAM)
    manager = ServiceManager()
    if namespace.worker:
        calls = metrics.counted_calls(conf)
        life = SchedulerLife(conf, program.transport(namespace, conf), manager, calls)
        when_abandoned(sys.stdin.buffer, life.stop)
        return life.run()
    if conf.scheduler.workers <= 1:
        with metrics.of_this_process(conf) as calls:
            return SchedulerLife(conf, program.transport(namespace, conf), manager, calls).run()
    message_bus.open_transport(conf).cleanup()
    check_placement(conf, program.transport(namespace, conf))
    files = [f"--config-file={file}" for file in namespace.config_file]
    files += [f"--config-dir={directory}" for directory in namespace.config_dir]
    files += ["--debug"] if namespace.debug else []
    command = [sys.executable, "-m", MODULE, *files, "serve", "--worker"]
    # otherwise Python walks all of it once more when this process ends, which delays a stop
    gc.collect()
    gc.freeze()
    with metrics.of_workers(conf) as (variables, on_end):
        workers = Workers(
            command, conf.scheduler.workers, manager, variables=variables, on_end=on_end
        )
        return workers.run()
