"""Databases as the published placement leaves them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pymysql
import sqlalchemy as sa

DUMPS = Path(__file__).parent / "openstack"


def load(url: str) -> None:
    """Fill an empty database from the dump of its kind."""
    made = sa.make_url(url)
    if made.get_backend_name() == "sqlite":
        assert made.database is not None
        with sqlite3.connect(made.database) as database:
            database.executescript((DUMPS / "sqlite.sql").read_text())
        database.close()
    elif made.get_backend_name() == "postgresql":
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql((DUMPS / "postgresql.sql").read_text())
        engine.dispose()
    else:
        connection = pymysql.connect(
            host=made.host or "",
            port=made.port or 0,
            user=made.username or "",
            database=made.database,
            client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS,
        )
        with connection.cursor() as cursor:
            cursor.execute((DUMPS / "mariadb.sql").read_text())
            while cursor.nextset():
                pass
        connection.commit()
        connection.close()
