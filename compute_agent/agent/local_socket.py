"""The UNIX socket where the running agent answers `compute-agent status` and `report`.

One request and one reply per connection, each one line of JSON. A request is
`{"command": NAME, ...arguments}`, a reply `{"result": ...}` or `{"error": SENTENCE}`.

The members of the socket's group may ask; what changes claims or the host is for the agent's user
and root, as the kernel names the sender (SO_PEERCRED).
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import os
import socket
import socketserver
import stat
import struct
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from compute_agent import errors
from compute_agent.programs.exit_status import Exit

LOG = logging.getLogger(__name__)

MAX_REQUEST = 65536
MAX_PATH = 107
"""Bytes of a socket's path, a limit of the kernel's address structure (unix(7))."""
MAX_CLIENTS = 64
"""Connections at a time; more are closed at once, as each costs a thread and an open file."""
_CREDENTIALS = struct.Struct("3i")
"""What SO_PEERCRED returns: pid, uid, gid (unix(7))."""
_CLOSED = (
    "The agent on {} closed the connection before it answered: it ended, or "
    f"{MAX_CLIENTS} clients are connected already. Try again."
)
Command = Callable[..., Any]


class AgentNotRunning(errors.ComputeAgentError):
    """Nobody listens on the socket."""

    exit_status = Exit.NO_AGENT


class LocalServer:
    """Serves commands on a UNIX socket, each connection in a thread of its own.

    :param path: the socket; a stale one is replaced. The caller holds the lock of the state
        directory, so no other agent serves it.
    :param commands: by name; called with the arguments of the request.
    :param changes: names of commands that are for `owners` only.
    :param owners: user ids; by default the user of this process, and root.
    :param read_timeout: seconds in which a client must have said what it wants. The command may
        take longer.
    """

    def __init__(
        self,
        path: Path,
        commands: Mapping[str, Command],
        *,
        changes: Collection[str] = (),
        owners: Collection[int] | None = None,
        read_timeout: float = 10.0,
    ) -> None:
        self.path = path
        self.read_timeout = read_timeout
        self.changes = frozenset(changes)
        self.owners = frozenset((0, os.geteuid()) if owners is None else owners)
        self.commands = dict(commands)
        self._server: _Server | None = None
        self._identity: tuple[int, int] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen.

        :raises InvalidConfiguration: the socket cannot be created.
        """
        if len(os.fsencode(self.path)) > MAX_PATH:
            raise errors.InvalidConfiguration(
                f"The status socket {self.path} has a path of more than {MAX_PATH} bytes, more "
                "than the system permits. Set [compute_agent]status_socket to a shorter one."
            )
        try:
            self._make_room()
            self._server = _Server(self)
            self.path.chmod(0o660)
            self._identity = _identity(self.path)
        except OSError as error:
            raise errors.InvalidConfiguration(
                f"The status socket {self.path} cannot be created: {error.strerror}. Set "
                "[compute_agent]status_socket to a place that the agent may write to, or to an "
                "empty value for none."
            ) from error
        thread = threading.Thread(target=self._server.serve, name="status-socket", daemon=True)
        thread.start()
        self._thread = thread

    def _make_room(self) -> None:
        """Remove the socket that an agent left behind, and nothing else.

        :raises InvalidConfiguration: another agent serves it, or it is something else.
        """
        try:
            kind = self.path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(kind):
            raise errors.InvalidConfiguration(
                f"The status socket cannot be created: {self.path} exists and is not a socket. "
                "Move it away, or set [compute_agent]status_socket to another path."
            )
        if _is_served(self.path):
            raise errors.InvalidConfiguration(
                f"The status socket {self.path} cannot be created: another agent serves it. Give "
                "each agent a [compute_agent]status_socket of its own."
            )
        self.path.unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop listening and remove the socket, if it is still this one."""
        if self._server is not None:
            self._server.stop()
            if self._thread is not None:
                self._thread.join()
            self._server.server_close()
            with contextlib.suppress(FileNotFoundError):
                if _identity(self.path) == self._identity:
                    self.path.unlink()


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino


def _is_served(path: Path) -> bool:
    """Return whether a process listens on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
        client.setblocking(False)
        try:
            client.connect(os.fsencode(path))
        except BlockingIOError:
            # more clients wait for it than the kernel keeps
            return True
        except OSError:
            return False
    return True


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, owner: LocalServer) -> None:
        self.owner = owner
        self._free = threading.Semaphore(MAX_CLIENTS)
        self._stopping = threading.Event()
        super().__init__(str(owner.path), _Handler)

    def verify_request(self, _request: Any, _client_address: Any) -> bool:
        """Refuse a client that is one too many; its connection is closed."""
        return self._free.acquire(blocking=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a client in a thread of its own."""
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a client, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def serve(self) -> None:
        """Answer clients until stopped; `serve_forever` would wake up now and then."""
        while not self._stopping.is_set():
            self.handle_request()

    def stop(self) -> None:
        """End `serve`, and the wait for clients in it."""
        self._stopping.set()
        # also where the path leads to another socket by now
        self.socket.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_args: Any) -> None:
        LOG.debug("A client of the status socket went away.", exc_info=True)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        line = self._receive_line()
        self.request.settimeout(self.server.owner.read_timeout)
        if line:
            self.wfile.write(json.dumps(self._answer(line)).encode() + b"\n")

    def _receive_line(self) -> bytes:
        """Return what the client sends, up to the end of the line or of the connection.

        :raises TimeoutError: it took too long.
        """
        until = time.monotonic() + self.server.owner.read_timeout
        line = b""
        while not line.endswith(b"\n") and len(line) < MAX_REQUEST:
            self.request.settimeout(max(until - time.monotonic(), 0.001))
            piece = self.request.recv(MAX_REQUEST - len(line))
            if not piece:
                break
            line += piece
        return line

    def _sender(self) -> int:
        """Return the user id of the client."""
        credentials = self.request.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
        )
        uid: int = _CREDENTIALS.unpack(credentials)[1]
        return uid

    def _answer(self, line: bytes) -> dict[str, Any]:
        owner = self.server.owner
        try:
            request = json.loads(line)
            name = request.pop("command")
            command = owner.commands[name]
            signature = inspect.signature(command)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            command_names = ", ".join(sorted(owner.commands))
            return {"error": f"The request is not understood; commands are: {command_names}."}
        if name in owner.changes and (sender := self._sender()) not in owner.owners:
            LOG.warning("Refused the command %s on the status socket to user id %d.", name, sender)
            return {
                "error": f"The command {name} changes this host: only the agent's user and root "
                f"may send it, and user id {sender} did. Use sudo."
            }
        try:
            signature.bind(**request)
        except TypeError as error:
            return {"error": str(error)}
        try:
            return {"result": command(**request)}
        except errors.ComputeAgentError as error:
            return {"error": str(error)}
        except Exception as error:
            LOG.exception("The command %s of the status socket failed.", name)
            return {"error": f"The agent failed unexpectedly ({error!r}); see its log."}


def ask(path: Path, command: str, timeout: float, **arguments: Any) -> Any:
    """Send one command to the agent that serves `path` and return its result.

    :raises AgentNotRunning: nobody listens there.
    :raises ComputeAgentError: the agent answered with an error, or not in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            reply = connection.makefile("rb").readline()
        except TimeoutError as error:
            raise errors.ComputeAgentError(
                f"The agent did not answer on {path} within {timeout:g} s. Its log shows "
                "what it waits for."
            ) from error
        except (BrokenPipeError, ConnectionResetError) as error:
            raise errors.ComputeAgentError(_CLOSED.format(path)) from error
        except PermissionError as error:
            raise AgentNotRunning(
                f"No agent answers on {path}: {error.strerror}. Only root, the user of the agent "
                "and its group may ask it: repeat the command as one of them."
            ) from error
        except OSError as error:
            raise AgentNotRunning(
                f"No agent answers on {path}: {error.strerror}. Start it with `compute-agent "
                "run`, or name its configuration with --config-file."
            ) from error
    if not reply:
        raise errors.ComputeAgentError(_CLOSED.format(path))
    answer = json.loads(reply)
    if "error" in answer:
        raise errors.ComputeAgentError(answer["error"])
    return answer["result"]
