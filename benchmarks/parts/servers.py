"""Servers that a benchmark compares: a private PostgreSQL, the published package, and ours.

The published package is run as a black box: installed from the package index into a virtual
environment of its own below the user's cache directory, served by uWSGI, spoken to over HTTP only.
Everything listens on 127.0.0.1, keeps its state in a temporary directory, and is ended by pid.
"""

import contextlib
import errno
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import requests

PUBLISHED = "openstack-placement==16.0.0"
START_SECONDS = 240
WORKER_MIB = 6144


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


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def postmaster_pid(directory: Path) -> int:
    """The process of a private PostgreSQL from which its sessions descend."""
    return int((directory / "data" / "postmaster.pid").read_text().split()[0])


@contextlib.contextmanager
def postgresql(directory: Path) -> Iterator[str]:
    """A private PostgreSQL; yields a URL without driver and database: `//user@host:port`.

    A directory that exists already is that of an earlier run, whose databases are kept.
    Raises `RuntimeError` naming the Debian package when there is no server on this machine.
    """
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not candidates:
        raise RuntimeError("no PostgreSQL server found: apt-get install postgresql")
    binaries = candidates[-1].parent
    kept = (directory / "data").exists()
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    as_user: list[str] = []
    if os.geteuid() == 0:
        # PostgreSQL refuses to run as root.
        account = pwd.getpwnam("postgres")
        os.chown(directory, account.pw_uid, account.pw_gid)
        for parent in directory.parents:
            if parent == Path("/tmp"):
                break
            parent.chmod(0o755)
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def run(*command: str) -> None:
        subprocess.run([*as_user, *command], cwd=directory, check=True, stdout=subprocess.DEVNULL)

    data = str(directory / "data")
    access = ("-A", "trust", "-U", "root", "--no-sync", "-E", "UTF8")
    if not kept:
        run(str(binaries / "initdb"), "-D", data, *access)
    options = (
        f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={directory}"
        " -c fsync=off -c max_connections=200"
    )
    control = str(binaries / "pg_ctl")
    log = str(directory / "log")
    run(control, "-D", data, "-w", "-l", log, "-o", options, "start")
    try:
        url = f"//root@127.0.0.1:{port}"
        if not kept:
            for name in ("published", "ours"):
                create_database(url, name)
        yield url
    finally:
        run(control, "-D", data, "-m", "fast", "-w", "stop")


def create_database(cluster: str, name: str, template: str = "template1") -> None:
    """Makes a database, as a copy of another one that nobody is connected to."""
    where = urlsplit(cluster)
    command = ["createdb", "-h", str(where.hostname), "-p", str(where.port), "-U", "root"]
    subprocess.run([*command, "-T", template, name], check=True)


def drop_database(cluster: str, name: str) -> None:
    """Drops a database where there is one of this name."""
    where = urlsplit(cluster)
    command = ["dropdb", "-h", str(where.hostname), "-p", str(where.port), "-U", "root"]
    subprocess.run([*command, "--if-exists", name], check=True, stderr=subprocess.DEVNULL)


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
    config = directory / "placement.conf"
    config.write_text(
        f"[placement_database]\nconnection = {connection}\n"
        "[api]\nauth_strategy = noauth2\n"
        "[oslo_policy]\nenforce_new_defaults = false\n"
    )
    return config


@contextlib.contextmanager
def published(
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
        subprocess.run(
            [str(venv / "bin" / "placement-manage"), "--config-file", str(config), "db", "sync"],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
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
    with running("published", command, environment, port, directory / "log") as server:
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
) -> Iterator[Server]:
    """This project's server with `workers` processes of `threads`; `port`: None for a free one."""
    binaries = Path(sys.executable).parent
    config = write_config(directory, connection)
    with config.open("a") as stream:
        stream.write(extra)
    subprocess.run(
        [str(binaries / "placement-manage"), "--config-file", str(config), "db", "sync"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    port = port or free_port()
    command = [
        *(str(binaries / "placement-server"), "serve", "--config-file", str(config)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--workers", str(workers), "--threads", str(threads)),
    ]
    with running("ours", command, dict(os.environ), port, directory / "log") as server:
        yield server


@contextlib.contextmanager
def running(
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
    _gone, alive = psutil.wait_procs(everyone, timeout=10)
    for survivor in alive:
        survivor.kill()


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        if process.poll() is not None:
            said = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}: {said}")
        with contextlib.suppress(requests.ConnectionError, requests.Timeout):
            if requests.get(url, timeout=5).status_code == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"no answer at {url} within {START_SECONDS} s; see {log}")
