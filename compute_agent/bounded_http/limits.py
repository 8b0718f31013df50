"""Limits of one answer, and the error that names the one that was broken.

No honest service comes near them. What does is another sender: a proxy, another service at the
address, or an attacker on the memory or the time of the caller.
"""

from __future__ import annotations

from typing import Final

ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a body after decompression, and of a whole answer as it comes."""

JSON_DEPTH: Final = 100
"""Lists and objects of a document that may lie in one another."""

JSON_CONTAINERS: Final = 2_000_000
"""Lists and objects in a document: an empty one is two bytes in an answer and 64 in memory."""

INTEGER_DIGITS: Final = 19
"""Digits of an integer of 64 bits."""

REDIRECTS: Final = 3
"""Redirects that are followed for one request, all within the same scheme, host and port."""


class LimitExceeded(Exception):
    """An answer breaks a limit; the message continues a sentence that begins with the answer.

    Not an OSError and not a ValueError: the libraries between here and the caller take these for
    broken connections and for bodies that are not JSON.
    """
