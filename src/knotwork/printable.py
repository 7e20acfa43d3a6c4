"""Text from the data, as a terminal may show it: what would steer the terminal becomes an escape that one can read."""

from __future__ import annotations

import re

# Controls (escape sequences begin with one), separators of lines, marks that change the direction of writing, halves of
# surrogate pairs. Everything else, accents and emoji among it, is shown as it is.
_STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]")


def printable(text: object) -> str:
    r"""Return a text on one line that cannot steer a terminal.

    >>> print(printable("\x1b[31mred\n"), printable("Größe ✓"))
    \x1b[31mred\n Größe ✓
    """
    return _STEERS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), str(text))


def printable_json(text: str) -> str:
    r"""Do the same to a text in JSON, where it means the same as before.

    >>> print(printable_json('["\x9b31m"]'))
    ["\u009b31m"]
    """
    return _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
