"""A loopback TCP proxy that cuts connections in the middle of what they carry."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import threading
from dataclasses import dataclass, field


class Cut(enum.Enum):
    """When a connection is cut, seen from the chunk of bytes that was waited for."""

    BEFORE = "before it is passed on"
    HALFWAY = "after half of it"
    BEHIND = "right behind it"
    ANSWER = "when its answer comes"


@dataclass
class _Trap:
    """Springs at the first chunk with `marker` or, if `behind` is given, at the first one
    with `marker` that comes later on a connection than one with `behind`."""

    marker: bytes
    cut: Cut
    behind: bytes
    sprung: threading.Event = field(default_factory=threading.Event)


class LoopbackProxy:
    """Listens on `port`, passes on to `upstream`, a port of the loopback too, in a thread."""

    def __init__(self, upstream: int = 0) -> None:
        self.upstream = upstream
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def lead_to(self, upstream: int) -> None:
        """Pass new connections on to another port, and cut those that there are."""

        def change() -> None:
            self.upstream = upstream
            for task in asyncio.all_tasks(self._loop):
                task.cancel()

        self._loop.call_soon_threadsafe(change)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=256)
        server = self._loop.run_until_complete(starting)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class Proxy(LoopbackProxy):
    """A proxy that cuts a connection."""

    _trap: _Trap | None = None

    def trap(self, marker: bytes, cut: Cut, behind: bytes = b"") -> threading.Event:
        """Cut the next connection whose client sends `marker`, somewhere behind `behind`.

        The event tells when it was cut.
        """
        trap = _Trap(marker, cut, behind)
        self._trap = trap
        return trap.sprung

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # cut by `lead_to`, or at the end
            with contextlib.suppress(asyncio.CancelledError):
                await self._relay(reader, writer)
        finally:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, here = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            return
        # set when the answer to the chunk passed on last must not arrive
        poisoned = asyncio.Event()
        ways = [
            asyncio.create_task(self._outward(reader, here, poisoned)),
            asyncio.create_task(self._inward(there, writer, poisoned)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            # not abort: the other end gets what was passed on before
            with contextlib.suppress(OSError):
                here.close()

    async def _outward(
        self, reader: asyncio.StreamReader, here: asyncio.StreamWriter, poisoned: asyncio.Event
    ) -> None:
        armed: _Trap | None = None
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                trap = self._trap
                is_behind = trap is not None and (not trap.behind or armed is trap)
                if trap is not None and trap.behind in chunk:
                    armed = trap
                if trap is None or not is_behind or trap.marker not in chunk:
                    here.write(chunk)
                    await here.drain()
                    continue
                self._trap = None
                trap.sprung.set()
                if trap.cut is Cut.ANSWER:
                    poisoned.set()
                elif trap.cut is Cut.HALFWAY:
                    chunk = chunk[: len(chunk) // 2]
                elif trap.cut is Cut.BEFORE:
                    return
                here.write(chunk)
                await here.drain()
                if trap.cut is not Cut.ANSWER:
                    return

    @staticmethod
    async def _inward(
        there: asyncio.StreamReader, writer: asyncio.StreamWriter, poisoned: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await there.read(65536):
                if poisoned.is_set():
                    return
                writer.write(chunk)
                await writer.drain()
