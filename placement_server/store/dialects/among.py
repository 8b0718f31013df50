"""A condition on a column: its value is among those of a parameter.

In a list of many values each is a parameter of its own to SQLAlchemy and to the driver. PostgreSQL
takes an array instead: one parameter, and one statement for any number of values.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ARRAY, Boolean, ColumnElement, any_, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class _Among(FunctionElement[bool]):
    name = "among"
    type = Boolean()
    inherit_cache = True


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
    array = bindparam(values.key, type_=ARRAY(column.type, dimensions=1))
    return compiler.process(column == any_(array), **arguments)
