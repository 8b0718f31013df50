"""A private PostgreSQL and its databases.

It listens on 127.0.0.1, keeps its data in a directory of the caller, and does not sync.
"""

import contextlib
import os
import pwd
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit


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
    """
    is_kept = (directory / "data").exists()
    directory.mkdir(parents=True, exist_ok=True)
    programs = _Programs(directory)
    if not is_kept:
        access = ("-A", "trust", "-U", "root", "--no-sync", "-E", "UTF8")
        programs.run("initdb", "-D", programs.data, *access)
    with programs.start() as url:
        if not is_kept:
            for name in ("published", "ours"):
                create_database(url, name)
        yield url


@contextlib.contextmanager
def temporary_postgresql(prefix: str) -> Iterator[tuple[str, Path]]:
    """A private PostgreSQL that is gone afterwards; yields its URL and a directory beside its own.

    :param prefix: of the name of the directory, whose `postgresql` the server has.
    """
    with tempfile.TemporaryDirectory(prefix=prefix, dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        with postgresql(directory / "postgresql") as url:
            yield url, directory


class _Programs:
    """Programs of the newest PostgreSQL, run by a user as whom it starts.

    :raises RuntimeError: there is no PostgreSQL server on this machine.
    """

    def __init__(self, directory: Path) -> None:
        candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not candidates:
            raise RuntimeError("no PostgreSQL server found: apt-get install postgresql")
        self._binaries = candidates[-1].parent
        self._directory = directory
        self.data = str(directory / "data")
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root.
            account = pwd.getpwnam("postgres")
            os.chown(directory, account.pw_uid, account.pw_gid)
            for parent in directory.parents:
                if parent == Path("/tmp"):
                    break
                parent.chmod(0o755)
            self._as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._binaries / program), *arguments]
        subprocess.run(command, cwd=self._directory, check=True, stdout=subprocess.DEVNULL)

    @contextlib.contextmanager
    def start(self) -> Iterator[str]:
        port = free_port()
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={port}"
            f" -c unix_socket_directories={self._directory} -c fsync=off -c max_connections=200"
        )
        log = str(self._directory / "log")
        self.run("pg_ctl", "-D", self.data, "-w", "-l", log, "-o", options, "start")
        try:
            yield f"//root@127.0.0.1:{port}"
        finally:
            self.run("pg_ctl", "-D", self.data, "-m", "fast", "-w", "stop")


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
