"""Make evimp_reference.json: what R's evimp says of earth's fit to every case.

Needs R like make_reference. Run from the repository's root:

    .venv/bin/python -m tests.parity.make_evimp
"""

from __future__ import annotations

import json

from tests.parity.cases import all_cases
from tests.parity.make_reference import HERE, run_earth


def main() -> None:
    lines = [json.dumps(found) for found in run_earth("evimp_reference.R", all_cases())]
    (HERE / "evimp_reference.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
