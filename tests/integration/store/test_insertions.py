"""Rows that are inserted together, on every database: they come back as they were."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from placement_server.store.dialects.batches import Insertion, Value
from placement_server.store.store import Store
from placement_server.store.tables import past_changes, traits
from placement_server.store.transaction import WriteTransaction
from tests.fixtures.allocations import new_uuid

HOSTILE = (
    *("", "NULL", "null", "None", "a,b", "{a}", '"', '","', "\\", '\\"', "it's", "--", "%s"),
    *("100 %", "%%", ":name", "?", "ü — 🙂", "new\nline", "tab\t", " blank "),
)
TEXTS: dict[str, tuple[str | None, ...]] = {
    "plain": ("plain",),
    "backslashes": ("a\\b", "c\\"),
    "quotes": ('a"b', '","'),
    "hostile": HOSTILE,
    "some none": (None, *HOSTILE),
}
COLUMNS = (
    *(("root_provider_id", "int"), ("consumer_id", "text"), ("request_id", "text")),
    *(("user_id", "text"), ("document", "text")),
)


class Enough(Exception):
    """Undoes a transaction."""


@pytest.mark.parametrize("count", [1, 3, 8, 9, 100, 4001])
@pytest.mark.parametrize("kind", TEXTS)
def test_rows_with_any_text_come_back_as_they_were(store: Store, kind: str, count: int) -> None:
    mark = new_uuid()
    owners = TEXTS[kind]
    texts = [text for text in owners if text is not None]
    rows: list[tuple[Value, ...]] = [
        (at, owners[at % len(owners)], mark, texts[at % len(texts)], texts[-1 - at % len(texts)])
        for at in range(count)
    ]
    names: list[tuple[Value, ...]] = [(f"CUSTOM_{at}",) for at in range(2)]

    def write(tx: WriteTransaction) -> None:
        insertions = [
            Insertion("traits", (("name", "text"),), names),
            Insertion("past_changes", COLUMNS, rows),
            Insertion("projects", (("external_id", "text"),), ()),
        ]
        tx.batches.insert(tx.connection, insertions, tx.now)
        columns = [past_changes.c[name] for name, _ in COLUMNS]
        read = sa.select(*columns, past_changes.c.created_at, past_changes.c.updated_at)
        written = tx.execute(read.where(past_changes.c.request_id == mark)).all()
        expected = [(*row, tx.now, tx.now) for row in rows]
        assert sorted(map(tuple, written), key=lambda row: row[0]) == expected
        custom = traits.c.name.in_([name for (name,) in names])
        assert tx.execute(sa.select(sa.func.count()).where(custom)).scalar() == len(names)
        raise Enough

    with pytest.raises(Enough):
        store.write(write)
