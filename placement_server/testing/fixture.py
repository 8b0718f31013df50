"""A Placement API in the process of a test, with a database of its own."""

from __future__ import annotations

import threading
import uuid
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import fixtures
from oslo_config import fixture as config_fixture

from placement_server.app import build_app
from placement_server.conf import new_config, register_opts
from placement_server.direct import WSGIAdapter
from placement_server.store.store import Store
from placement_server.testing.faults import Faults
from placement_server.testing.interception import Interception


class PlacementFixture(fixtures.Fixture):
    """A complete Placement API without Keystone (`noauth2`), for the time of a test.

    Requests for the service type `placement` arrive here, whatever the catalogue says; so a
    service under test needs no configuration but that of its client.

    :param token: the user of requests that carry no token; `admin` may do everything.
    :param conf_fixture: an `oslo_config.fixture.Config` whose configuration the server uses.
        By default it makes one of its own, so that several may live in one process.
    :param db: a new database for this fixture. Otherwise `[placement_database]` of the
        configuration names one, whose schema is up to date.
    :param use_intercept: requests of this process are answered in it, without a socket. Otherwise a
        thread serves HTTP on a free port of 127.0.0.1, which other processes reach too.
    :param register_opts: register the server's options on the configuration of `conf_fixture`,
        which has none of them yet.

    :ivar token: as given.
    :ivar endpoint: the URL of the API.
    :ivar conf_fixture: the configuration of the server.
    :ivar faults: failures that requests of this process meet.
    """

    def __init__(
        self,
        token: str = "admin",
        conf_fixture: config_fixture.Config | None = None,
        db: bool = True,
        use_intercept: bool = True,
        register_opts: bool = True,
    ) -> None:
        super().__init__()
        self.token = token
        self.conf_fixture = conf_fixture
        self.db = db
        self.use_intercept = use_intercept
        self.register_opts = register_opts
        self.endpoint = ""
        self.faults = Faults()

    def _setUp(self) -> None:
        conf = self._configuration()
        store = Store.from_conf(conf)
        self.addCleanup(store.close)
        application = build_app(conf, store, auth_strategy="noauth2")
        adapter = None
        if self.use_intercept:
            self.endpoint = f"http://{uuid.uuid4()}.invalid/placement"
            adapter = WSGIAdapter(application, self.endpoint)
        else:
            self.endpoint = self._serve(application)
        self.useFixture(Interception(self.endpoint, self.token, self.faults, adapter))

    def _configuration(self) -> Any:
        if self.conf_fixture is None:
            self.conf_fixture = config_fixture.Config(new_config(config_files=[]))
        elif self.register_opts:
            register_opts(self.conf_fixture.conf)
        self.useFixture(self.conf_fixture)
        # the user admin may do everything, without a role of service
        self.conf_fixture.config(group="oslo_policy", enforce_new_defaults=False)
        if self.db:
            directory = self.useFixture(fixtures.TempDir()).path
            self.conf_fixture.config(
                group="placement_database",
                connection=f"sqlite:///{directory}/placement.db",
                sync_on_startup=True,
                # nobody needs this database after a loss of power
                sqlite_synchronous=False,
            )
        return self.conf_fixture.conf

    def _serve(self, application: Any) -> str:
        server = make_server("127.0.0.1", 0, application, _Server, _SilentHandler)
        # seconds between two looks at whether to end; the default makes each end take half a second
        thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name="placement", daemon=True
        )
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _SilentHandler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the server under test has a log."""
