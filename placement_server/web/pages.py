"""The files of the pages, served at `[placement_server]web_path`.

They are the same for every caller and need no token; what they show comes from the API, with the
token of the person who looks. All of them are read when the server starts, so nothing that a
request names is ever a path of the file system.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from webob.etag import ETagMatcher

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

Headers = list[tuple[str, str]]

_INDEX: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_GUARDS: Final = [
    ("content-security-policy", _CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    # A browser asks each time, and is answered with 304: no page of an older server stays around.
    ("cache-control", "no-cache"),
]
_PLAIN: Final = ("content-type", "text/plain; charset=utf-8")


class _File(Struct, frozen=True):
    body: bytes
    content_type: str
    tag: str

    @classmethod
    def of(cls, name: str, body: bytes) -> _File:
        digest = hashlib.sha256(body).hexdigest()[:32]
        return cls(body, _TYPES[name.rpartition(".")[2]], digest)


class Pages:
    """Serve the files below one path, and pass all other requests on.

    :param path: where the pages are, without a slash at the end.
    :param reads: names below the path that the application answers.
    :param auth_strategy: `[api]auth_strategy`; the pages ask for a login unless it is noauth2.
    :param cloud_name: shown beside the titles; empty: none.
    """

    def __init__(
        self,
        application: WSGIApplication,
        path: str,
        reads: Iterable[str],
        auth_strategy: str,
        cloud_name: str = "",
    ) -> None:
        self._application = application
        self._path = path
        self._api_paths = {f"{path}/{name}" for name in reads}
        self._files = {name: _File.of(name, body) for name, body in _package_files()}
        page = self._files[_INDEX].body.decode()
        values = {
            "@API@": "../" * path.count("/"),
            "@AUTH@": auth_strategy,
            "@CLOUD@": cloud_name,
        }
        for placeholder, value in values.items():
            page = page.replace(placeholder, escape(value))
        # All modules are asked for at once, and not each when the one that imports it has come.
        modules = sorted(name for name in self._files if name.endswith(".js"))
        preloads = "".join(f'<link rel="modulepreload" href="{name}">' for name in modules)
        page = page.replace("</head>", f"{preloads}</head>")
        self._files[""] = _File.of(_INDEX, page.encode())
        del self._files[_INDEX]

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == self._path:
            # Links of the page are relative to the folder.
            location = f"{environ.get('SCRIPT_NAME', '')}{path}/"
            redirect_headers = [("location", location)]
            return _send("308 Permanent Redirect", redirect_headers, b"", environ, start_response)
        if not path.startswith(f"{self._path}/") or path in self._api_paths:
            return self._application(environ, start_response)
        file = self._files.get(path[len(self._path) + 1 :])
        if file is None:
            body = b"There is no such page.\n"
            return _send("404 Not Found", [_PLAIN], body, environ, start_response)
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            headers = [_PLAIN, ("allow", "GET, HEAD")]
            body = b"Only GET.\n"
            return _send("405 Method Not Allowed", headers, body, environ, start_response)
        return _send_file(file, environ, start_response)


def _send_file(
    file: _File, environ: dict[str, Any], start_response: StartResponse
) -> Iterable[bytes]:
    headers = [("content-type", file.content_type), ("etag", f'"{file.tag}"')]
    known_tags = ETagMatcher.parse(environ.get("HTTP_IF_NONE_MATCH", ""), strong=False)
    if "HTTP_IF_NONE_MATCH" in environ and file.tag in known_tags:
        start_response("304 Not Modified", [*headers, *_GUARDS])
        return []
    return _send("200 OK", headers, file.body, environ, start_response)


def _send(
    status: str,
    headers: Headers,
    body: bytes,
    environ: dict[str, Any],
    start_response: StartResponse,
) -> Iterable[bytes]:
    start_response(status, [*headers, *_GUARDS, ("content-length", str(len(body)))])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def _package_files() -> Iterator[tuple[str, bytes]]:
    """Return the files of the package: the page, and what it uses, by their names below it."""
    folder = resources.files(__package__).joinpath("static")
    return _below(folder, "")


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        elif entry.name.rpartition(".")[2] in _TYPES:
            yield f"{prefix}{entry.name}", entry.read_bytes()
