"""Servers that a benchmark compares: the published package, and ours.

The published package is run as a black box: installed from the package index into a virtual
environment of its own below the user's cache directory, served by uWSGI, spoken to over HTTP only.
Everything listens on 127.0.0.1, keeps its state in a temporary directory, and is ended by pid.
"""

import contextlib
import errno
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

from benchmarks.parts.postgresql import create_database, drop_database, free_port

PUBLISHED = "openstack-placement==16.0.0"
START_SECONDS = 600
WORKER_MIB = 6144
CONFIG = "placement.conf"
# The driver that each server is used with.
SCHEMES = {"published": "postgresql+psycopg2", "ours": "postgresql+psycopg"}


@dataclass(frozen=True)
class Server:
    """A placement service that answers at `url`; `pid` is the parent of all its processes."""

    label: str
    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """User and system CPU spent so far by the server and all its workers."""
        return cpu_seconds(self.pid)

    def resident_mib(self) -> float:
        """Proportional set size of the server and its workers, in MiB."""
        return sum(p.memory_full_info().pss for p in family(self.pid)) / 2**20

    @contextlib.contextmanager
    def on_one_cpu(self) -> Iterator[None]:
        """Keep the server on one CPU, where its threads wake each other, its client on others."""
        every = os.sched_getaffinity(0)
        first = {min(every)}
        threads = [thread.id for process in family(self.pid) for thread in process.threads()]
        try:
            os.sched_setaffinity(0, every - first or every)
            _keep(threads, first)
            yield
        finally:
            _keep([0, *threads], every)


def _keep(threads: Sequence[int], cpus: set[int]) -> None:
    for thread in threads:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cpus)


def keeping_bytecode() -> dict[str, str]:
    """An environment in which the first process leaves its bytecode to the ones after it.

    An installed package has its bytecode; a checkout may not.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def family(pid: int) -> list[psutil.Process]:
    """The process and its descendants."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def cpu_seconds(pid: int) -> float:
    """User and system CPU of a process and its descendants, finer than the ticks of /proc."""
    total = 0.0
    for process in family(pid):
        # The clock that counts the CPU time of another process, as clock_getcpuclockid makes it.
        try:
            total += time.clock_gettime(~process.pid << 3 | 2)
        except OSError as error:
            # A session that has ended since it was listed has no clock.
            if error.errno != errno.EINVAL:
                raise
    return total


def create_database_of(cluster: str, label: str, name: str) -> str:
    """Make a database with the empty schema of a server; return its URL for that server.

    The schema is made once for each cluster, which takes the published package seconds.
    """
    create_database(cluster, name, _schema(cluster, label))
    return f"{SCHEMES[label]}:{cluster}/{name}"


@functools.cache
def _schema(cluster: str, label: str) -> str:
    name = f"schema_{label}"
    drop_database(cluster, name)
    create_database(cluster, name)
    connection = f"{SCHEMES[label]}:{cluster}/{name}"
    if label == "ours":
        make_schema(connection)
    else:
        with tempfile.TemporaryDirectory(prefix="schema-") as directory:
            write_config(Path(directory), connection)
            _make_published_schema(Path(directory))
    return name


def make_schema(connection: str) -> None:
    """Bring the schema of ours up to date, with the standard classes and traits."""
    # here, so that benchmarks of other servers do without the import
    from placement_server.store.connection.options import StoreOptions
    from placement_server.store.store import Store

    store = Store.open(connection, options=StoreOptions(sync_on_startup=True))
    store.synchronise_standard_names()
    store.close()


def _make_published_schema(directory: Path) -> None:
    command = [str(published_venv() / "bin" / "placement-manage"), "--config-file"]
    subprocess.run(
        [*command, str(directory / CONFIG), "db", "sync"],
        check=True,
        env={**os.environ, "OS_PLACEMENT_CONFIG_DIR": str(directory)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def published_venv() -> Path:
    """The virtual environment of the published package, made on first use."""
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    venv = Path(os.environ.get("PLACEMENT_REFERENCE_VENV", default / "compute-agent" / "published"))
    if not (venv / "bin" / "uwsgi").exists():
        print(f"installing {PUBLISHED} and uWSGI into {venv}", file=sys.stderr)
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        _install(venv, PUBLISHED, "psycopg2-binary", "uwsgi")
    if not list(venv.glob("lib/*/site-packages/pymysql")):
        _install(venv, "PyMySQL")
    return venv


def _install(venv: Path, *packages: str) -> None:
    subprocess.run([str(venv / "bin" / "pip"), "install", "--quiet", *packages], check=True)


def write_config(directory: Path, connection: str) -> Path:
    """A placement.conf that both servers understand."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / CONFIG
    config.write_text(
        f"[placement_database]\nconnection = {connection}\n"
        "[api]\nauth_strategy = noauth2\n"
        "[oslo_policy]\nenforce_new_defaults = false\n"
    )
    return config


@contextlib.contextmanager
def published_server(
    directory: Path, connection: str, workers: int, extra: str = "", *, synchronise: bool = True
) -> Iterator[Server]:
    """The published package under uWSGI with `workers` processes of one thread.

    :param synchronise: bring the schema up to date first, which takes seconds.
    """
    venv = published_venv()
    config = write_config(directory, connection)
    with config.open("a") as stream:
        stream.write(extra)
    environment = {**os.environ, "OS_PLACEMENT_CONFIG_DIR": str(directory)}
    if synchronise:
        _make_published_schema(directory)
    port = free_port()
    command = [
        *(str(venv / "bin" / "uwsgi"), "--http-socket", f"127.0.0.1:{port}"),
        *("--module", "placement.wsgi.api:application", "--master", "--die-on-term"),
        *("--enable-threads", "--processes", str(workers), "--threads", "1", "--need-app"),
        # Its plain HTTP socket closes after each answer; saying so spares the client a surprise.
        *("--disable-logging", "--add-header", "Connection: close"),
        # A search that generates every combination would take the machine with it.
        *("--limit-as", str(WORKER_MIB)),
    ]
    with running_server("published", command, environment, port, directory / "log") as server:
        yield server


@contextlib.contextmanager
def ours(
    directory: Path,
    connection: str,
    workers: int,
    extra: str = "",
    *,
    threads: int = 1,
    port: int | None = None,
    synchronise: bool = True,
) -> Iterator[Server]:
    """This project's server with `workers` processes of `threads`; `port`: None for a free one.

    :param synchronise: bring the schema up to date first.
    """
    binaries = Path(sys.executable).parent
    config = write_config(directory, connection)
    with config.open("a") as stream:
        stream.write(extra)
    if synchronise:
        make_schema(connection)
    port = port or free_port()
    command = [
        *(str(binaries / "placement-server"), "serve", "--config-file", str(config)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--workers", str(workers), "--threads", str(threads)),
    ]
    with running_server("ours", command, dict(os.environ), port, directory / "log") as server:
        yield server


@contextlib.contextmanager
def running_server(
    label: str, command: Sequence[str], environment: Mapping[str, str], port: int, log: Path
) -> Iterator[Server]:
    url = f"http://127.0.0.1:{port}"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            _wait_until_it_answers(url, process, log)
            yield Server(label, url, process.pid)
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a server and its workers, also those that do not listen because they compute."""
    if process.poll() is not None:
        return
    everyone = family(process.pid)
    process.send_signal(signal.SIGTERM)
    _ended_processes, alive = psutil.wait_procs(everyone, timeout=10)
    for survivor in alive:
        survivor.kill()


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        if process.poll() is not None:
            log_text = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}: {log_text}")
        with contextlib.suppress(requests.ConnectionError, requests.Timeout):
            if requests.get(url, timeout=5).status_code == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"no answer at {url} within {START_SECONDS} s; see {log}")
