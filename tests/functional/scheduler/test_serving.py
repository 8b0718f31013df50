"""`compute-scheduler serve`: its start, workers, signals and end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.fixtures import programs
from tests.fixtures.ports import free_port
from tests.functional.agent.processes import eventually, read_url
from tests.functional.scheduler.conftest import Command, write_config


def test_serving_without_a_bus_says_how_to_have_one(command: Command) -> None:
    done = command("serve")
    assert done.returncode == 2
    assert "transport_url is not set" in done.stderr


@pytest.mark.parametrize(("placement_is_up", "workers"), [(True, 1), (False, 1), (True, 2)])
def test_serving_goes_on_until_sigterm_also_while_placement_is_down(
    placement_url: str, tmp_path: Path, placement_is_up: bool, workers: int
) -> None:
    url = placement_url if placement_is_up else f"http://127.0.0.1:{free_port()}"
    with serving(write_config(tmp_path / "serve.conf", url), workers) as service:
        said = read_until(service, "Serving topic scheduler", times=workers)
        service.process.terminate()
        status, rest = service.ended()
    said += rest
    assert status == 0, said
    assert ("Placement cannot be reached" in said) is not placement_is_up
    assert said.count("INFO compute_agent.scheduler.service.life [-] Stopping") == workers
    assert "Traceback" not in said


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("debug", [True, False])
def test_serving_logs_debugging_where_that_is_asked_for(
    placement_url: str, tmp_path: Path, workers: int, debug: bool
) -> None:
    file = write_config(tmp_path / "serve.conf", placement_url)
    options = ("--debug",) if debug else ()
    with serving(file, workers, options=options) as service:
        said = read_until(service, "Serving topic scheduler", times=workers)
        service.process.terminate()
        said += service.ended()[1]
    assert (" DEBUG " in said) is debug


@dataclass
class SchedulerProcess:
    """A scheduler that serves, and its output and errors as it writes them."""

    process: programs.Process
    output: IO[str]

    def ended(self) -> tuple[int, str]:
        """Wait until all of its processes have ended; its status and the rest of its output."""
        rest = self.output.read()
        return self.process.wait(60), rest


@contextlib.contextmanager
def serving(
    file: Path, workers: int, extra: str = "", options: Sequence[str] = ()
) -> Iterator[SchedulerProcess]:
    """A scheduler that serves a bus in memory with so many workers; its output is to be read."""
    file.write_text(
        "[DEFAULT]\ntransport_url = fake://\n"
        + file.read_text()
        + f"[scheduler]\nworkers = {workers}\n{extra}"
    )
    reader, writer = os.pipe()
    with open(reader) as output:
        with open(writer) as theirs:
            arguments = ("--config-file", str(file), *options, "serve")
            process = programs.start("compute-scheduler", *arguments, output=theirs)
        try:
            yield SchedulerProcess(process, output)
        finally:
            process.terminate()
            process.wait(60)


def read_until(service: SchedulerProcess, text: str, times: int = 1) -> str:
    """The output up to the line that has `text` for the so many-th time."""
    said = ""
    for line in service.output:
        said += line
        if said.count(text) == times:
            return said
    raise AssertionError(f"{text} was said {said.count(text)} times: {said}")


def worker_of(said: str) -> int:
    match = re.search(r"Worker (\d+) was started", said)
    assert match, said
    return int(match[1])


def test_a_worker_that_cannot_work_ends_them_all(placement_url: str, tmp_path: Path) -> None:
    with serving(write_config(tmp_path / "serve.conf", placement_url), 2) as service:
        # at once: one that ends after some seconds is started again
        said = read_until(service, "was started")
        os.kill(worker_of(said), signal.SIGKILL)
        status, rest = service.ended()
    assert status == 255
    assert "all workers are stopped" in said + rest


def test_workers_end_with_the_process_that_started_them(placement_url: str, tmp_path: Path) -> None:
    with serving(write_config(tmp_path / "serve.conf", placement_url), 2) as service:
        read_until(service, "Serving topic scheduler", times=2)
        service.process.kill()
        # the pipe of the output closes when the last process that writes to it has ended
        said = service.ended()[1]
    assert said.count("Stopping") == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_hangup_reads_the_aggregates_again_and_a_failure_is_shown_until_one_succeeds(
    placement_url: str, tmp_path: Path, workers: int
) -> None:
    aggregates, bind = tmp_path / "aggregates.yaml", f"127.0.0.1:{free_port()}"
    aggregates.write_text("[]")
    extra = f"[compute_scheduler]\naggregate_source = {aggregates}\nmetrics_bind = {bind}\n"

    def configuration_read() -> bool:
        return "compute_scheduler_configuration_read 1.0" in read_url(f"http://{bind}/metrics")

    with serving(write_config(tmp_path / "serve.conf", placement_url), workers, extra) as service:
        read_until(service, "Serving topic scheduler", times=workers)
        assert configuration_read()
        aggregates.write_text("- nothing")
        service.process.send_signal(signal.SIGHUP)
        refused = read_until(service, "The reload failed", times=workers)
        assert "aggregate 0" in refused
        eventually(lambda: not configuration_read(), "the failure in the metrics")
        service.process.send_signal(signal.SIGUSR2)
        dump = read_until(service, "state of compute-scheduler: end", times=workers)
        assert dump.count('"what": "not reloaded"') == workers
        aggregates.write_text("[]")
        service.process.send_signal(signal.SIGHUP)
        read_until(service, "Reloaded configuration", times=workers)
        eventually(configuration_read, "the end of the trouble")
        service.process.terminate()
        assert service.process.wait(60) == 0


def test_serving_ends_when_placement_refuses_the_scheduler(
    command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "refused.conf"
    file.write_text("[DEFAULT]\ntransport_url = fake://\n[placement]\nauth_type = nonsense\n")
    done = command("serve", config_file=file)
    assert done.returncode == 3
    assert "nonsense" in done.stderr
