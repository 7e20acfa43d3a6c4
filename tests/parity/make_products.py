"""Make product_reference.json: the GCV of R's earth of degree 2 on every case with interactions.

Needs R with earth and jsonlite (Debian: r-cran-earth, r-cran-jsonlite). Run from the repository's root:

    .venv/bin/python -m tests.parity.make_products
"""

from __future__ import annotations

import json

from tests.parity.cases import interaction_cases
from tests.parity.make_reference import HERE, run_earth


def main() -> None:
    fits = run_earth("earth_reference.R", interaction_cases())
    lines = [json.dumps({key: fit[key] for key in ("name", "digest", "gcv", "rss")}) for fit in fits]
    (HERE / "product_reference.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
