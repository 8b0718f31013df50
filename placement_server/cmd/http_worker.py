"""The worker of the embedded server."""

from __future__ import annotations

from typing import Any

from gunicorn.http.body import Body, LengthReader
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.workers.gthread import ThreadWorker


class LenientRequest(Request):  # type: ignore[misc]
    """A request whose Content-Length may be nonsense.

    The application answers such a request itself, in the form of its other errors. Where its body
    ends nobody can know, so none is read and the connection is closed after the answer: nothing
    behind it is taken for another request.
    """

    def set_body_reader(self) -> None:
        lengths = [value for name, value in self.headers if name == "CONTENT-LENGTH"]
        framed = any(name == "TRANSFER-ENCODING" for name, _ in self.headers)
        if len(lengths) == 1 and not framed and not _is_length(lengths[0]):
            self.body = Body(LengthReader(self.unreader, 0))
            self.force_close()
            return
        super().set_body_reader()


class HttpWorker(ThreadWorker):  # type: ignore[misc]
    """A process with threads, which reads requests leniently."""

    def init_process(self) -> None:
        RequestParser.mesg_class = LenientRequest
        super().init_process()


def _is_length(value: Any) -> bool:
    return str(value).isascii() and str(value).isdigit()
