"""The state directory of a development run, kept for the next one.

placement.db           placement-server's database
placement.conf         placement-server's configuration, written at every start
compute-agent.conf     agent's and scheduler's configuration, written at every start
agent/                 the agent's state: identity, ledger, cache
*.log                  output of the processes
lock                   held while a run uses the directory
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compute_agent.cmd.dev.errors import DevFailed

_UNUSABLE = "?$%\n"
WEB_PATH = "/-/web"
"""Where placement-server serves its pages."""
LONGEST_SOCKET_PATH = 107
"""Bytes a path of a UNIX socket may have (sun_path in unix(7), less the closing null)."""


def default_path(environment: Mapping[str, str]) -> Path:
    """Return the directory used by default.

    ``$XDG_STATE_HOME/compute-agent``, or ``~/.local/state/compute-agent``; the XDG base directory
    specification demands that a relative XDG_STATE_HOME is ignored.
    """
    base = environment.get("XDG_STATE_HOME", "")
    if base and Path(base).is_absolute():
        return Path(base) / "compute-agent"
    home = environment.get("HOME") or os.path.expanduser("~")
    return Path(home) / ".local" / "state" / "compute-agent"


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """Paths below one state directory."""

    path: Path

    @property
    def placement_config(self) -> Path:
        """Configuration of placement-server."""
        return self.path / "placement.conf"

    @property
    def agent_config(self) -> Path:
        """Configuration of agent and scheduler."""
        return self.path / "compute-agent.conf"

    @property
    def agent_state(self) -> Path:
        """The agent's own state directory."""
        return self.path / "agent"

    @property
    def node_uuid_file(self) -> Path:
        """The agent's file with the uuid of this node's root provider."""
        return self.agent_state / "compute_id"

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        return self.path / f"{name}.log"

    def prepare(self) -> None:
        """Create the directory and those below it.

        :raises DevFailed: it cannot be created or written to.
        """
        if any(character in str(self.path) for character in _UNUSABLE):
            raise DevFailed(
                f"The state directory {str(self.path)!r} has a character that a database URL or a "
                "configuration file cannot hold (?, $, %, line break): choose another with "
                "--state-dir DIR."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.agent_state / "instances").mkdir(parents=True, exist_ok=True)
            probe = self.path / f".writable-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise DevFailed(
                f"The state directory {self.path} cannot be used: {_reason(error)}. Make it "
                "writable for you, or choose another with --state-dir DIR."
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other run away from the directory.

        :raises DevFailed: another run uses it.
        """
        with (self.path / "lock").open("a+", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                pid = file.read().strip() or "unknown"
                raise DevFailed(
                    f"Another compute-agent dev (process {pid}) uses {self.path}: stop it, or "
                    "choose another directory with --state-dir DIR."
                ) from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def write_placement_config(self) -> None:
        """Write placement-server's configuration: SQLite, no authentication."""
        database = self.path / "placement.db"
        self.placement_config.write_text(
            "# Written by compute-agent dev at every start.\n"
            "[placement_database]\n"
            f"connection = sqlite:///{database}\n"
            "sync_on_startup = true\n"
            "[placement_server]\n"
            f"web_path = {WEB_PATH}\n"
            "[api]\n"
            "auth_strategy = noauth2\n"
            "[oslo_policy]\n"
            "enforce_new_defaults = false\n",
            encoding="utf-8",
        )

    def write_agent_config(self, url: str, interval: int, *, nested: bool) -> None:
        """Write the configuration of agent and scheduler, pointing at the server's `url`."""
        self.agent_config.write_text(
            "# Written by compute-agent dev at every start.\n"
            "[DEFAULT]\n"
            "compute_driver = host.HostDriver\n"
            f"state_path = {self.agent_state}\n"
            f"update_resources_interval = {interval}\n"
            "periodic_fuzzy_delay = 0\n"
            "[compute]\n"
            f"enable_numa_reporting_to_placement = {str(nested).lower()}\n"
            "[compute_agent]\n"
            f"status_socket = {self._status_socket()}\n"
            "[compute_scheduler]\n"
            f"journal_path = {self.path / 'scheduler-journal'}\n"
            "[placement]\n"
            "auth_type = noauth\n"
            f"endpoint_override = {url}\n",
            encoding="utf-8",
        )

    def _status_socket(self) -> str:
        path = str(self.agent_state / "status.sock")
        return path if len(path.encode()) <= LONGEST_SOCKET_PATH else ""

    @property
    def agent_answers(self) -> bool:
        """Whether the agent has a status socket: a long path leaves no room for one."""
        return bool(self._status_socket())


def _reason(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "you may not write there"
    if error.errno == errno.EROFS:
        return "its file system is read-only"
    if error.errno == errno.ENOSPC:
        return "its file system is full"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return "something that is not a directory is in the way"
    return error.strerror or str(error)
