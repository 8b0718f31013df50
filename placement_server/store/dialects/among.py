"""A condition on a column: its value is among those of a parameter.

In a list of many values each is a parameter of its own to SQLAlchemy and to the driver. PostgreSQL
takes an array instead: one parameter, and one statement for any number of values.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ARRAY, Boolean, ColumnElement, String, any_, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class _Among(FunctionElement[bool]):
    name = "among"
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: object = None) -> _Among:
        del against
        # SQLAlchemy would compare it with 1 where there are no booleans: no index serves that.
        return self


def among(column: ColumnElement[Any], parameter: str) -> ColumnElement[bool]:
    """Return the condition.

    :param parameter: the name of the parameter, which takes a list.
    """
    return _Among(column, bindparam(parameter, expanding=True, type_=column.type))


@compiles(_Among)
def _in_a_list(element: _Among, compiler: SQLCompiler, **arguments: Any) -> str:
    column, values = element.clauses
    return compiler.process(column.in_(values), **arguments)


@compiles(_Among, "postgresql")
def _in_an_array(element: _Among, compiler: SQLCompiler, **arguments: Any) -> str:
    column, values = element.clauses
    # Without the length of the column, to which the cast would cut longer values.
    item_type = String() if isinstance(column.type, String) else column.type
    array = bindparam(values.key, type_=ARRAY(item_type, dimensions=1))
    return compiler.process(column == any_(array), **arguments)
