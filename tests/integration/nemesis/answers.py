"""An HTTP proxy that repeats requests, and delays or drops their answers."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
from dataclasses import dataclass
from functools import partial

from tests.integration.bank.proxy import LoopbackProxy
from tests.integration.nemesis.stage import Fault, Stage

_LENGTH = re.compile(rb"(?im)^content-length: *(\d+)")
_CHUNKED = re.compile(rb"(?im)^transfer-encoding: *chunked")
_CLOSES = re.compile(rb"(?im)^connection: *close")
_BODILESS = (b"204", b"304")
_END = b"\r\n\r\n"


class Mischief(enum.Enum):
    """What is done to a write."""

    REPEAT = "sent twice"
    DELAY = "answered late"
    DROP = "carried out without an answer"


@dataclass
class _Order:
    mischief: Mischief
    number: int
    seconds: float


class AnswerProxy(LoopbackProxy):
    """A proxy of requests and answers."""

    _order: _Order | None = None

    def order(self, mischief: Mischief, number: int, seconds: float = 0.0) -> None:
        """Do that to so many of the next writes."""
        self._order = _Order(mischief, number, seconds)

    @property
    def done(self) -> bool:
        """Whether it was done to all of them."""
        return self._order is None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # When client or server leaves, both connections end; cancelled is what is left at the end.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            streams = await asyncio.open_connection("127.0.0.1", self.upstream)
            try:
                while await self._relay(reader, writer, streams):
                    pass
            finally:
                streams[1].close()
        writer.close()

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> bool:
        request = await _message(reader)
        mischief, seconds = self._mischief_for(request)
        answer = await _asked(streams, request)
        if mischief is Mischief.REPEAT and answer.split(b" ", 2)[1].startswith(b"2"):
            other = await asyncio.open_connection("127.0.0.1", self.upstream)
            try:
                # before the first answer is passed on: its sender does nothing else meanwhile
                await _asked(other, request)
            finally:
                other[1].close()
        if mischief is Mischief.DELAY:
            await asyncio.sleep(seconds)
        if mischief is Mischief.DROP:
            return False
        writer.write(answer)
        await writer.drain()
        return not _CLOSES.search(answer.split(_END, 1)[0])

    def _mischief_for(self, request: bytes) -> tuple[Mischief | None, float]:
        order = self._order
        if order is None or request.startswith(b"GET"):
            return None, 0.0
        order.number -= 1
        if order.number <= 0:
            self._order = None
        return order.mischief, order.seconds


async def _asked(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes
) -> bytes:
    reader, writer = streams
    writer.write(request)
    await writer.drain()
    return await _message(reader)


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read one request or answer, whole."""
    head = await reader.readuntil(_END)
    if head[9:12] in _BODILESS:
        return head
    if _CHUNKED.search(head):
        return head + await _chunks(reader)
    length = _LENGTH.search(head)
    return head + (await reader.readexactly(int(length[1])) if length else b"")


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    chunks = b""
    while True:
        size = await reader.readuntil(b"\r\n")
        chunks += size + await reader.readexactly(int(size, 16) + 2)
        if int(size, 16) == 0:
            return chunks


def spoil_answers(mischief: Mischief, stage: Stage) -> str:
    """Some writes are sent twice, answered late, or carried out without an answer."""
    assert stage.answers is not None
    number, seconds = stage.dice.randint(3, 12), stage.pause()
    # so that a client whose writes are all late, and refused, is not taken for stuck
    stage.answers.order(mischief, number, seconds / number)
    while not stage.answers.done:
        stage.await_writes(1)
    return f"{number} writes {mischief.value}"


ANSWERS: tuple[Fault, ...] = tuple(
    Fault(partial(spoil_answers, mischief), lambda stage: stage.answers is not None)
    for mischief in Mischief
)
