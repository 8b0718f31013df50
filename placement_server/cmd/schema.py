"""placement-manage db: the revision of the schema, shown and changed."""

from __future__ import annotations

from oslo_config import cfg

from placement_server.cmd.database import open_engines
from placement_server.store.schema import migration, revision


def sync(conf: cfg.ConfigOpts) -> None:
    with open_engines(conf) as engines:
        migration.upgrade(engines.writer)


def version(conf: cfg.ConfigOpts) -> None:
    with open_engines(conf) as engines:
        print(revision.current_revision(engines.reader))


def stamp(conf: cfg.ConfigOpts) -> None:
    with open_engines(conf) as engines:
        migration.stamp(engines.writer, conf.command.version)


def downgrade(conf: cfg.ConfigOpts) -> None:
    with open_engines(conf) as engines:
        migration.downgrade(engines.writer, conf.command.version or revision.OPENSTACK_REVISION)
