"""Options that commands of several programs have, declared by lines."""

from typing import Final

JSON: Final = "--json  one JSON document on stdout"
TABLE_OPTIONS: Final = """
    -f --format {table,json,value} (table)  format of the output
    -c --column COLUMN *                    print only this column, in format table or value
                                            (repeatable)
    """
"""Options that choose a format and columns, as the OpenStack client has them."""

BYTES: Final = "--bytes:in_bytes  memory and disk in bytes"
"""The option for scripts of a command that shows amounts."""

FORM_OPTIONS: Final = f"""
    --class:resource_class CLASS  only providers that have CLASS
    --used                        only providers that are in use
    --providers                   one line for each provider, with uuid, also for equal providers
    --traits                      also show the traits
    {BYTES}
    """
"""The options of a command that shows a tree."""
