"""Driver of a WSGI application in a process of its own: one JSON line in, one JSON line out.

Run by the interpreter of the environment that holds the application, so it imports nothing but
the standard library, and oslo.utils to set the clock of an application of OpenStack. The real
standard output is kept for answers; what the application prints goes to standard error.

    python wsgi_over_pipe.py MODULE:ATTRIBUTE
"""

from __future__ import annotations

import base64
import datetime
import importlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import OptExcInfo
    from _typeshed.wsgi import ErrorStream, WSGIApplication


def environ_of(request: dict[str, Any], errors: ErrorStream) -> dict[str, Any]:
    body = base64.b64decode(request.get("body", ""))
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request["method"],
        "SCRIPT_NAME": request.get("script_name", ""),
        "PATH_INFO": request["path"],
        "QUERY_STRING": request.get("query", ""),
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": errors,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    if body:
        environ["CONTENT_LENGTH"] = str(len(body))
    for name, value in request.get("headers", {}).items():
        key = name.upper().replace("-", "_")
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else "HTTP_" + key] = value
    return environ


def set_clock(moment: float) -> None:
    from oslo_utils import timeutils

    naive = datetime.datetime.fromtimestamp(moment, datetime.UTC).replace(tzinfo=None)
    timeutils.set_time_override(naive)


def answer(application: WSGIApplication, request: dict[str, Any]) -> dict[str, Any]:
    started: dict[str, Any] = {}
    if "moment" in request:
        set_clock(request["moment"])

    def start_response(
        status: str,
        headers: list[tuple[str, str]],
        exc_info: OptExcInfo | None = None,
    ) -> Callable[[bytes], object]:
        started["status"] = int(status.split(" ", 1)[0])
        started["headers"] = [[str(name).lower(), str(value)] for name, value in headers]
        return io.BytesIO().write

    chunks = application(environ_of(request, sys.stderr), start_response)
    try:
        body = b"".join(chunks)
    finally:
        if hasattr(chunks, "close"):
            chunks.close()
    return {**started, "body": base64.b64encode(body).decode()}


def main() -> None:
    module, _, attribute = sys.argv[1].partition(":")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    application = getattr(importlib.import_module(module), attribute)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            result = answer(application, json.loads(line))
        except Exception as error:  # noqa: BLE001  # told to the caller
            result = {"status": 0, "headers": [], "body": "", "raised": repr(error)}
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
