"""Transport over HTTP: keystoneauth1 with the usual `[placement]` options of OpenStack."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from keystoneauth1 import adapter as ka_adapter
from keystoneauth1 import exceptions as ka_exc
from keystoneauth1 import loading as ka_loading
from keystoneauth1 import noauth as ka_noauth
from keystoneauth1 import session as ka_session
from keystoneauth1 import token_endpoint

from compute_agent import errors
from compute_agent.bounded_http.session import LONGEST_PAUSE, AnswerRefused, BoundedSession
from compute_agent.conf import services
from compute_agent.conf.places import missing_files
from compute_agent.placement.transports.known_way import KnownWay
from compute_agent.placement.transports.transport import Request, Response, Timeout

LOG = logging.getLogger(__name__)

CONNECT_TIMEOUT: Final = 10.0
READ_TIMEOUT: Final = 60.0
KEYSTONE_TIMEOUT: Final = 20.0
"""For each answer of keystone: a token may take two of them, before placement is asked."""

NOTHING_TO_ASK_WITH: Final = (
    ka_exc.EndpointNotFound,
    ka_exc.MissingAuthPlugin,
    ka_exc.Unauthorized,
    ka_exc.DiscoveryFailure,
    ka_exc.AuthorizationFailure,
    ka_exc.AuthPluginException,
    ka_exc.CatalogException,
    ka_exc.Forbidden,
)

_AUTH_TYPES: Final = "password, none, http_basic, noauth, ..."
_SYSTEM_ERROR: Final = r"\[Errno -?\d+\] ([^'\")]+)"
_CERTIFICATE_ERROR: Final = r"(certificate verify failed: [^(']+)"

WRONG_CREDENTIALS: Final = (
    "keystone refuses the user (HTTP 401): its name, password, project or a domain is wrong"
)

MISREAD: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of keystoneauth1 where a token or a catalogue is JSON of an unexpected shape."""


class NoAuth(ka_noauth.NoAuth):  # type: ignore[misc]
    """`auth_type = noauth`: the token and roles that a server without keystone takes on trust."""

    def get_headers(self, session: object, **kwargs: object) -> dict[str, str]:  # noqa: ARG002
        return {"X-Auth-Token": "admin", "X-Roles": "admin,service,reader"}


class SteadySession(BoundedSession):
    """A bounded HTTP session that looks at the environment once per server, not at every request.

    Proxies and certificates are those of the environment at the start of the process; going
    through all of it for every request is a sixth of what a request costs the agent.
    """

    def __init__(self, longest_pause: Callable[[], float] = lambda: LONGEST_PAUSE) -> None:
        super().__init__(longest_pause)
        self._environment: dict[tuple[Any, ...], Any] = {}

    def merge_environment_settings(
        self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> Any:
        parts = urlsplit(url)
        key = (parts.scheme, parts.netloc, repr(proxies), stream, verify, repr(cert))
        settings = self._environment.get(key)
        if settings is None:
            settings = super().merge_environment_settings(url, proxies, stream, verify, cert)
            self._environment[key] = settings
        return dict(settings)


class KeystoneSession(ka_session.Session):  # type: ignore[misc]
    """A session for which keystone's versions are like any other answer.

    keystoneauth1 asks for them where auth_url names none. It takes an outage then for a wrong URL;
    and where they are refused without a token, it asks again with one, for which it would wait for
    itself for ever.

    The semaphore of an adapter, which limits its rate where that is asked for, is left out: it
    waits until the wall clock reaches the time of the request before, also where that is an hour
    ahead because the clock was set back in between.
    """

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        kwargs.pop("rate_semaphore", None)
        keystone = getattr(self.auth, "auth_url", None)
        if kwargs.get("authenticated") and keystone and url.rstrip("/") == keystone.rstrip("/"):
            raise ka_exc.Unauthorized(f"{url} asks for a token")
        with _outages_of_discovery():
            return super().request(url, method, **kwargs)

    def get_endpoint(self, *args: Any, **kwargs: Any) -> Any:
        with _outages_of_discovery():
            return super().get_endpoint(*args, **kwargs)


@contextlib.contextmanager
def _outages_of_discovery() -> Iterator[None]:
    """Raise what was wrong, where keystone could not be asked for its versions but may be later."""
    try:
        yield
    except ka_exc.DiscoveryFailure as error:
        cause = error.__context__
        if isinstance(cause, ka_exc.HttpServerError):
            raise cause from None
        # a ValueError: the HTTP library cannot read the URL
        if isinstance(cause, ka_exc.ConnectionError) and not isinstance(
            getattr(cause, "original", None), ValueError
        ):
            raise cause from None
        raise


class KeystoneSessionLoader(ka_loading.session.Session):  # type: ignore[misc]
    """Makes such a session from options."""

    @property
    def plugin_class(self) -> type[KeystoneSession]:
        return KeystoneSession


class KeystoneTransport:
    """Requests through a keystoneauth1 adapter; one pool of kept-alive connections.

    :param load: makes an adapter.  Called again after credentials or the catalogue turned out to be
        wrong, so that a corrected keystone is noticed without a restart.
    :param timeout: seconds to connect and for the whole answer, for every request.  None: 10 and
        60, and what a request itself asks for where it is known to take longer.
    :param source: where an operator looks when placement cannot be asked.
    """

    def __init__(
        self,
        load: Callable[[], Any],
        timeout: Timeout | None = None,
        source: str = "the options of [placement]",
    ) -> None:
        self._load = load
        self._timeout = timeout
        self._source = source
        self._adapter: Any = None
        self._way: KnownWay | None = None
        self._lock = threading.Lock()

    @classmethod
    def from_conf(cls, conf: Any, group: str = "placement") -> KeystoneTransport:
        """From a configuration on which the options of `group` are registered."""
        limit = conf[group].timeout
        return cls(
            lambda: load_adapter(conf, group, KEYSTONE_TIMEOUT),
            (min(CONNECT_TIMEOUT, limit), limit) if limit else None,
            f"the options of [{group}]",
        )

    @classmethod
    def to_endpoint(cls, url: str, token: str | None = None) -> KeystoneTransport:
        """To placement at `url`, with a token or, where it trusts its callers, without one."""

        def load() -> Any:
            auth = token_endpoint.Token(url, token) if token else NoAuth(endpoint=url)
            session = KeystoneSession(auth=auth, timeout=READ_TIMEOUT, session=SteadySession())
            return ka_adapter.Adapter(session=session, service_type="placement")

        return cls(load, source="the URL and the token")

    def prepare(self) -> None:
        """Read the options of the connection now, which asks nobody.

        :raises PlacementUnauthorized: they do not make one.
        """
        try:
            self._get_adapter()
        except (ka_exc.ClientException, OSError) as exc:
            raise errors.PlacementUnauthorized(
                f"Placement cannot be asked: {exc}. Check {self._source}",
                status=None,
                method="GET",
                path="/",
            ) from exc

    def send(self, request: Request) -> Response:
        timeout = self._timeout or request.timeout or (CONNECT_TIMEOUT, READ_TIMEOUT)
        arguments: dict[str, Any] = {"headers": request.headers(), "raise_exc": False}
        if request.json is not None:
            arguments["json"] = request.json
        try:
            adapter, way = self._get_adapter(), self._way
            answer: Any = way.ask(adapter, request, timeout) if way is not None else None
            if answer is None:
                answer = adapter.request(request.path, request.method, timeout=timeout, **arguments)
                self._way = KnownWay.learn(adapter, request, answer)
            elif "set-cookie" in answer.headers:
                # the libraries receive it with the next request: this one may have been a write
                self._way = None
        except NOTHING_TO_ASK_WITH as exc:
            self._forget_adapter()
            # the library ends with advice of its own
            words = str(exc).replace(" Please check that your auth_url is correct.", "")
            cause = WRONG_CREDENTIALS if isinstance(exc, ka_exc.Unauthorized) else words
            raise _failure(
                errors.PlacementUnauthorized,
                request,
                f"was not sent: {cause.rstrip('.')}. Check {self._source} (credentials, region, "
                "endpoint), and the catalogue of keystone",
                status=getattr(exc, "http_status", None),
            ) from exc
        except ka_exc.ConnectionError as exc:
            if refusal := refused_answer(exc):
                reason = f"got no answer that can be used: {refusal}"
                raise _failure(errors.PlacementAnswerRefused, request, reason) from exc
            is_untrusted = re.search(_CERTIFICATE_ERROR, str(exc))
            suspect = "its certificate" if is_untrusted else "that a server answers there"
            reason = f"got no answer: {short_reason(exc)}. Check {suspect}, and {self._source}"
            raise _failure(errors.PlacementAPIConnectFailure, request, reason) from exc
        except ka_exc.HttpError as exc:
            # Only keystone's own answers arrive here: placement's are returned, not raised.
            failure = (
                errors.PlacementUnavailable if exc.http_status >= 500 else errors.PlacementError
            )
            reason = f"was not sent, keystone answered: {exc}. Its log has the cause"
            raise _failure(failure, request, reason) from exc
        except OSError as exc:
            # The HTTP library reports in this way that a file named by the options is not there.
            self._forget_adapter()
            reason = f"was not sent: {exc}. Check cafile, certfile and keyfile in {self._source}"
            raise _failure(errors.PlacementUnauthorized, request, reason) from exc
        except ka_exc.ClientException as exc:
            self._forget_adapter()
            raise _failure(errors.PlacementError, request, f"was not sent: {exc}") from exc
        except MISREAD as exc:
            self._forget_adapter()
            reason = (
                "was not sent: keystone answered something that cannot be used "
                f"({type(exc).__name__}: {exc}). Check what answers at auth_url of {self._source}"
            )
            raise _failure(errors.PlacementError, request, reason) from exc
        if answer.status_code == 401:
            self._forget_adapter()
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.status_code, headers, answer.content)

    def _get_adapter(self) -> Any:
        with self._lock:
            if self._adapter is None:
                self._adapter = self._load()
            return self._adapter

    def _forget_adapter(self) -> None:
        with self._lock:
            self._adapter = self._way = None


def _failure(
    failure: type[errors.PlacementError], request: Request, reason: str, **details: Any
) -> errors.PlacementError:
    return failure(f"{request} {reason}", method=request.method, path=request.path, **details)


def refused_answer(error: ka_exc.ConnectionError) -> AnswerRefused | None:
    """Return the reason, where a request failed because its answer breaks a bound."""
    original = getattr(error, "original", None)
    return original if isinstance(original, AnswerRefused) else None


def short_reason(error: Exception) -> str:
    """Return why a connection failed, without what the libraries wrap around the system's words."""
    text = str(error)
    reason = re.search(_CERTIFICATE_ERROR, text) or re.search(_SYSTEM_ERROR, text)
    if reason is None:
        return text
    return f"{text.split(': ')[0]}: {reason[1].strip()}"


def load_adapter(conf: Any, group: str = "placement", timeout: float = READ_TIMEOUT) -> Any:
    """Make a keystoneauth1 adapter from the options of `group`, whose answers are bounded.

    :param timeout: seconds for the answer to a request that has no timeout of its own, where the
        option is not set.
    :raises keystoneauth1.exceptions.ClientException: the options do not make one.
    """

    def longest_pause() -> float:
        # beyond the time between two passes nobody is left alone
        period = getattr(conf, "update_resources_interval", 0)
        return float(period) if period > 0 else LONGEST_PAUSE

    session = KeystoneSessionLoader().load_from_conf_options(
        conf, group, auth=_load_auth(conf, group), session=SteadySession(longest_pause)
    )
    if session.timeout is None:
        # Requests to keystone itself: without this a hung keystone would hang the agent for ever.
        session.timeout = timeout
    return ka_loading.load_adapter_from_conf_options(conf, group, session=session)


def _load_auth(conf: Any, group: str) -> Any:
    auth_type = conf[group].auth_type
    if auth_type == services.NOAUTH:
        return NoAuth(endpoint=conf[group].endpoint_override)
    if not auth_type and not conf[group].auth_section:
        unset = f"[{group}]auth_type is not set ({_AUTH_TYPES})"
        raise ka_exc.MissingAuthPlugin("; ".join(filter(None, [unset, missing_files(conf)])))
    try:
        plugin = ka_loading.load_auth_from_conf_options(conf, group)
    except ka_exc.NoMatchingPlugin as error:
        unknown = f"[{group}]auth_type is {error.name}, which is not known ({_AUTH_TYPES})"
        raise ka_exc.MissingAuthPlugin(unknown) from error
    section = conf[group].auth_section or group
    url = getattr(conf[section], "auth_url", None)
    if url and (fault := services.url_fault(url)):
        raise ka_exc.AuthPluginException(f"[{section}]auth_url {fault}")
    return plugin
