"""Make earth_reference.json: run R's earth on every case.

Needs R with earth and jsonlite (Debian: r-cran-earth, r-cran-jsonlite). Run from the repository's root:

    .venv/bin/python -m tests.parity.make_reference
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.parity.cases import Case, all_cases

HERE = Path(__file__).parent
EARTH_NAMES = {"max_terms": "nk", "threshold": "thresh"}


def run_earth(script: str, cases: Sequence[Case]) -> list[dict]:
    """Give cases to an R script of this folder and return what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = []
        for k, case in enumerate(cases):
            np.asarray(case.X, dtype="<f8").T.tofile(Path(folder, f"{k}.x"))
            np.asarray(case.y, dtype="<f8").T.tofile(Path(folder, f"{k}.y"))
            manifest.append({
                "name": case.name, "digest": case.digest, "x": f"{k}.x", "y": f"{k}.y",
                "rows": len(case.X), "features": case.X.shape[1], "outputs": case.y.shape[1],
                "arguments": {EARTH_NAMES.get(name, name): value for name, value in case.options.items()},
            })  # fmt: skip
        Path(folder, "manifest.json").write_text(json.dumps(manifest))
        run = subprocess.run(["Rscript", str(HERE / script), folder], check=True, capture_output=True, text=True)
        fits = json.loads(Path(folder, "fits.json").read_text())
    print(f"earth {run.stdout.strip()}: {len(fits)} fits")
    return fits


def main() -> None:
    lines = []
    for fit in run_earth("earth_reference.R", all_cases()):
        # Terms as [feature, knot, sign] with sign 0 for a linear one (earth says 2), the intercept left out.
        terms = []
        for dirs, cuts in zip(fit.pop("dirs")[1:], fit.pop("cuts")[1:], strict=True):
            f = int(np.flatnonzero(dirs)[0])
            terms.append([f, 0.0, 0] if dirs[f] == 2 else [f, cuts[f], int(dirs[f])])
        selected = fit.pop("selected")
        selected = selected if isinstance(selected, list) else [selected]
        lines.append(json.dumps({**fit, "terms": terms, "selected": [s - 2 for s in selected[1:]]}))
    (HERE / "earth_reference.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
