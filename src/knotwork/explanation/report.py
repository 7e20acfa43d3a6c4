"""The report: one HTML file with data, model, library and script inside, which asks nothing of the outside.

Everything that comes from the user travels as JSON in a block that browsers do not run, with every character that could
end that block written as an escape; the script reads it and sets it as text. The page's policy lets only its own two
scripts run, known by their digests, and allows no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from importlib import resources
from typing import TYPE_CHECKING, Any

from knotwork.explanation.content import page_content
from knotwork.serial.folder import output_file

if TYPE_CHECKING:
    from knotwork.explanation.explanation import Explanation

LIBRARY = "plotly-cartesian-4.1.1.min.js"
SCRIPTS = ("model.js", "charts.js", "quality.js", "row.js", "page.js")


def write_report(explanation: Explanation, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Write the page to a file; a page that cannot be made leaves the file as it was."""
    text = render(page_content(explanation))
    with output_file(path, overwrite=overwrite) as fresh:
        fresh.write_text(text, encoding="utf-8", newline="\n")


def render(content: dict[str, Any]) -> str:
    """Put the page together."""
    library = _read("vendor", LIBRARY)
    script = '"use strict";\n(() => {\n' + "\n".join(_read("page", name) for name in SCRIPTS) + "\n})();"
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src {_digest(library)} {_digest(script)}"
    )
    parts = {
        "policy": policy,
        "style": _read("page", "report.css"),
        "data": embed(content),
        "library": library,
        "script": script,
    }
    before, *pieces = _read("page", "report.html").split("{{")
    # Cut first, then filled: what is filled in is never looked at again.
    page = [before]
    for piece in pieces:
        name, _, after = piece.partition("}}")
        page += [parts[name], after]
    return "".join(page)


def embed(value: Any) -> str:
    """Return JSON that is safe inside a script element: plain ASCII without <, > and &, numbers finite or null."""
    text = json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _read(folder: str, name: str) -> str:
    return resources.files("knotwork.explanation").joinpath(folder, name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
