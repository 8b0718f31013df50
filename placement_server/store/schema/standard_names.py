"""The standard resource classes and traits."""

from __future__ import annotations

from typing import Final

import os_resource_classes
import os_traits
from sqlalchemy import insert, select, text

from placement_server.store.schema.names import FIRST_CUSTOM_CLASS_ID, STANDARD_CLASS_IDS
from placement_server.store.tables import changes, resource_classes, traits
from placement_server.store.transactions.transaction import WriteTransaction

_ANY_CHANGE: Final = select(changes.c.id).limit(1)


def synchronise(tx: WriteTransaction) -> None:
    """Insert the standard classes and traits that are missing; leave all others alone.

    There is a change record after it, also in a database that had none, as one of OpenStack
    Placement: readers take the first record that they see for one without open ones below it.

    Of two processes that do this at the same time one fails on a unique key; it is retried and
    finds nothing missing.
    """
    class_names = set(tx.execute(select(resource_classes.c.name)).scalars())
    new_classes = [
        {"id": STANDARD_CLASS_IDS[name], "name": name, "created_at": tx.now, "updated_at": tx.now}
        for name in os_resource_classes.STANDARDS
        if name not in class_names and STANDARD_CLASS_IDS[name] < FIRST_CUSTOM_CLASS_ID
    ]
    if new_classes:
        if tx.batches.family == "mysql":
            # the first class has number 0, which MySQL would take for "the next one"
            tx.execute(text("SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_VALUE_ON_ZERO')"))
        tx.execute(insert(resource_classes), new_classes)
    trait_names = set(tx.execute(select(traits.c.name)).scalars())
    new_traits = [
        {"name": name, "created_at": tx.now, "updated_at": tx.now}
        for name in sorted(os_traits.get_traits())
        if name not in trait_names
    ]
    if new_traits:
        tx.execute(insert(traits), new_traits)
    if new_classes or new_traits or not tx.execute(_ANY_CHANGE).first():
        tx.touch_names()
