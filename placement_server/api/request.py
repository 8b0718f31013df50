"""A request in the form that handlers work with."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote

import webob.acceptparse
from msgspec import UNSET, Struct

from placement_server import errors
from placement_server.negotiation.microversion import Microversion
from placement_server.policies.enforcer import Caller
from placement_server.schemas.validation import InvalidInstance, SchemaByVersion
from placement_server.store.providers import provider_rows
from placement_server.store.store import Store

if TYPE_CHECKING:
    # The HTTP server imports this module before its workers know where they keep metrics.
    from placement_server.api.services import Services
    from placement_server.feed.service import Wait

_JSON: Final = "application/json"
_BAD_CHARACTER: Final = re.compile("[\x00\ud800-\udfff]")

_URI_SHOWN: Final = 2000
"""Characters of a URI that the log shows; the rest of a very long one is of no use."""

_PLAIN_IN_PATH: Final = "/:=&?~#+!$,;'@()*[]{}<>|^`\\"
"""Punctuation that a URI in the log shows as it is."""

_PLAIN_TEXT: Final = re.compile(r"[\w/:=&?,.~-]*", re.ASCII)
"""What most URIs consist of, which is shown as it is."""

_REQUEST_ID: Final = re.compile(
    r"req-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE
)

CALLER_KEY: Final = "placement_server.caller"
"""Where the authentication leaves the caller for the API."""

VERSION_KEY: Final = "placement_server.microversion"
"""Where the API leaves what the request log and the metrics show."""

ROUTE_KEY: Final = "placement_server.route"
EXTENSIONS_KEY: Final = "placement_server.extensions"
"""The version of the extensions that the client asked for; None when it did not."""

REQUEST_ID_KEY: Final = "placement_server.request_id"
"""Where the request id is."""

TURN_KEY: Final = "placement_server.give_turn_back"
"""What lets the server begin another request while this one goes on, where it limits them."""

TAKE_TURN_KEY: Final = "placement_server.take_turn"
"""What waits for a turn again, where one was given back."""

WAIT_KEY: Final = "placement_server.wait"
"""What waits for a descriptor, for a client that may go away, where the server can do so."""


class Request(Struct):
    """One request, routed and negotiated."""

    environ: errors.Environ
    version: Microversion
    services: Services
    _params: list[tuple[str, str]] | None = None

    @property
    def store(self) -> Store:
        return self.services.store

    @property
    def extensions(self) -> Microversion | None:
        """The version of the extensions that the client asked for; None when it did not."""
        version: Microversion | None = self.environ[EXTENSIONS_KEY]
        return version

    def give_turn_back(self) -> None:
        """Let the server begin another request while this one takes long."""
        give_back = self.environ.get(TURN_KEY)
        if give_back is not None:
            give_back()

    @property
    def wait(self) -> Wait | None:
        """How to wait, as the server does; None where it provides nothing for it."""
        return self.environ.get(WAIT_KEY)

    # The checks, in the order in which most handlers make them.

    def require_version(self, minor: int) -> None:
        """Make the route unknown before 1.minor."""
        if self.version[1] < minor:
            raise errors.NotFound

    def require_json_accepted(self) -> None:
        """Refuse a client that does not accept JSON. A header that cannot be parsed is ignored."""
        accept = self.environ.get("HTTP_ACCEPT", _JSON)
        if accept in (_JSON, "*/*"):
            return
        if not webob.acceptparse.create_accept_header(accept).acceptable_offers([_JSON]):
            raise errors.NotAcceptable("Only application/json is provided")

    def require_json_content(self) -> None:
        """Refuse a body that is not announced as JSON."""
        content_type = self.environ.get("CONTENT_TYPE") or None
        media_type = content_type.partition(";")[0] if content_type else None
        if media_type != _JSON:
            self.environ["CONTENT_TYPE"] = str(content_type)
            raise errors.UnsupportedMediaType(
                f"The media type {media_type} is not supported, use application/json"
            )

    def authorise(self, rule: str, target: Mapping[str, Any] | None = None) -> None:
        """Refuse a caller to whom the policy does not allow the operation."""
        caller: Caller = self.environ[CALLER_KEY]
        enforcer = self.services.enforcer
        if not enforcer.asks_services:
            enforcer.authorise(rule, caller, target)
            return
        # As for Keystone's answer: a service that is slow takes no turn from other requests.
        self.give_turn_back()
        try:
            enforcer.authorise(rule, caller, target)
        finally:
            self.environ.get(TAKE_TURN_KEY, lambda: None)()

    # What the client sent.

    def params(self) -> list[tuple[str, str]]:
        """Return the parameters of the query string, in order and with repetitions."""
        if self._params is None:
            self._params = read_query(self.query_string)
        return self._params

    @property
    def query_string(self) -> str:
        """The query as it was sent."""
        text: str = self.environ.get("QUERY_STRING", "")
        return text

    def last_params(self) -> dict[str, str]:
        """Return the parameters by name; of repeated ones the last."""
        return dict(self.params())

    def all_of(self, name: str) -> list[str]:
        """Return every value of a parameter."""
        return [value for key, value in self.params() if key == name]

    def query(self, schema: SchemaByVersion) -> dict[str, str]:
        """Return the parameters by name, validated; of repeated ones the last."""
        params = self.last_params()
        check_query(params, schema, self.version)
        return params

    def json(self, schema: SchemaByVersion) -> Any:
        """Return the body, parsed and validated."""
        body = self._body()
        instance = schema.decode(body, self.version)
        if instance is UNSET:
            instance = parse_json(body)
            check_json(instance, schema, self.version)
        return instance

    def pointed_json(self, schema: SchemaByVersion) -> Any:
        """Return the body, parsed and validated; the error points to what is malformed."""
        body = self._body()
        instance = schema.decode(body, self.version)
        try:
            if instance is UNSET:
                instance = parse_json(body)
                schema.check(instance, self.version)
        except InvalidInstance as error:
            raise errors.BadRequest(
                f"JSON does not validate at {error.pointer or 'its top'}: {error.message}",
                pointer=error.pointer,
            ) from error
        return instance

    def json_for_provider(
        self,
        schema: SchemaByVersion,
        provider_uuid: str,
        *,
        also: Callable[[Any], object] | None = None,
    ) -> Any:
        """Return the validated body, where "no such provider" must win over "bad body".

        The handler looks the provider up again with a good body, so only a bad body is worth a
        query of its own.

        :param also: checks the body beyond its schema; raises BadRequest.
        :raises ProviderNotFound: the provider does not exist.
        """
        try:
            body = self.json(schema)
            if also is not None:
                also(body)
        except errors.BadRequest:
            self.store.read_single(provider_rows.get, provider_uuid)
            raise
        return body

    def _body(self) -> bytes:
        length = self.environ.get("CONTENT_LENGTH")
        source = self.environ["wsgi.input"]
        most = self.services.max_body_size
        if not length and self.environ.get("wsgi.input_terminated"):
            # A body in chunks: the server knows where it ends.
            whole: bytes = source.read(most + 1)
            self._check_size(len(whole))
            return whole
        content_length = max(0, int(length or 0))
        self._check_size(content_length)
        body: bytes = source.read(content_length) if content_length else b""
        if len(body) < content_length:
            raise errors.BadRequest(
                f"Malformed JSON: the body ended after {len(body)} of {content_length} bytes"
            )
        return body

    def _check_size(self, size: int) -> None:
        most = self.services.max_body_size
        if size > most:
            raise errors.BadRequest(f"Malformed JSON: the body is longer than {most} bytes")

    # What the answer points to.

    def link(self, path: str) -> str:
        """Return a path below the mount point, as every path in an answer is."""
        return f"{self.environ.get('SCRIPT_NAME', '')}{path}"

    def location(self, path: str) -> tuple[str, str]:
        """Return the Location header of a new resource: an absolute URL."""
        environ = self.environ
        host = environ.get("HTTP_HOST")
        if not host:
            host = environ["SERVER_NAME"]
            default = "443" if environ["wsgi.url_scheme"] == "https" else "80"
            if environ["SERVER_PORT"] != default:
                host = f"{host}:{environ['SERVER_PORT']}"
        url = f"{environ['wsgi.url_scheme']}://{host}{self.link(path)}"
        return "location", quote(url, safe="%/:=&?~#+!$,;'@()*[]")


def global_request_id(environ: errors.Environ) -> str | None:
    """Return the id that the client sent, if it has the form of one."""
    inbound = environ.get("HTTP_X_OPENSTACK_REQUEST_ID")
    return inbound if inbound and _REQUEST_ID.fullmatch(inbound) else None


def shown_uri(environ: errors.Environ) -> str:
    """Return the path and query of a request for the log, printable so that none forges a line.

    The server in front has decoded the path; what is not plain in either is encoded again.
    """
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    query = environ.get("QUERY_STRING")
    uri = f"{path}?{query}" if query else path
    if not _PLAIN_TEXT.fullmatch(uri):
        uri = _quote(path, _PLAIN_IN_PATH)
        if query:
            uri += "?" + _quote(query, _PLAIN_IN_PATH + "%")
    return uri[:_URI_SHOWN]


def _quote(text: str, plain: str) -> str:
    return quote(text[:_URI_SHOWN].encode("latin-1", "replace"), safe=plain)


def read_query(text: str) -> list[tuple[str, str]]:
    """Parse the parameters of a query string, in order and with repetitions.

    :raises errors.BadRequest: it is not UTF-8.
    """
    try:
        # As Latin-1 first, one character per byte: then the error has the place of a wrong byte.
        return [
            (_decode(name), _decode(value))
            for name, value in parse_qsl(text, keep_blank_values=True, encoding="latin-1")
        ]
    except UnicodeDecodeError as error:
        raise errors.BadRequest(f"Invalid query string parameters: {error}") from error


def check_query(params: Mapping[str, str], schema: SchemaByVersion, version: Microversion) -> None:
    """Check the parameters of a query string.

    :raises errors.BadRequest: with the text for the client.
    """
    try:
        schema.check(params, version)
    except InvalidInstance as error:
        raise errors.BadRequest(f"Invalid query string parameters: {error}") from error


def check_json(instance: Any, schema: SchemaByVersion, version: Microversion) -> None:
    """Check a body.

    :raises errors.BadRequest: with the text for the client.
    """
    try:
        schema.check(instance, version)
    except InvalidInstance as error:
        raise errors.BadRequest(f"JSON does not validate: {error}") from error


def _decode(latin: str) -> str:
    # PostgreSQL has no text with U+0000, so nothing stored can match it.
    return latin.encode("latin-1").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")


def parse_json(body: bytes) -> Any:
    """Parse a JSON document in UTF-8, of which every text can be stored.

    :raises errors.BadRequest: not JSON, not UTF-8, nested too deeply, or a text with a character
        that no database stores.
    """
    try:
        text = body.decode("utf-8")
        document = _DECODER.decode(text)
    except RecursionError as error:
        raise errors.BadRequest("Malformed JSON: nested too deeply") from error
    except ValueError as error:
        reason = _BYTE_ORDER_MARK if body.startswith(codecs.BOM_UTF8) else error
        raise errors.BadRequest(f"Malformed JSON: {reason}") from error
    if "\\u" in text:
        # Only an escape can make such characters: raw ones are not UTF-8 or not JSON.
        _refuse_bad_characters(document)
    return document


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


# json.loads would make one for each body
_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
_BYTE_ORDER_MARK: Final = "Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0)"
"""The text of json.loads, which looks for the mark before it decodes."""


def _refuse_bad_characters(document: Any) -> None:
    remaining_values = [document]
    while remaining_values:
        value = remaining_values.pop()
        if isinstance(value, str):
            match = _BAD_CHARACTER.search(value)
            if match:
                raise errors.BadRequest(
                    f"Malformed JSON: the character U+{ord(match[0]):04X} cannot be stored"
                )
        elif isinstance(value, dict):
            remaining_values.extend(value)
            remaining_values.extend(value.values())
        elif isinstance(value, list):
            remaining_values.extend(value)
