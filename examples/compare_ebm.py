"""The same table explained twice: by a knotwork network and by InterpretML's explainable boosting machine (EBM).

    pip install 'knotwork[ebm]'
    python examples/compare_ebm.py [FOLDER]

writes knotwork.html and ebm.html into the folder (the current one without it) and prints the test errors of both.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

import knotwork as kw


def main() -> None:
    try:
        from interpret.glassbox import ExplainableBoostingRegressor
    except ImportError:
        sys.exit("this example compares with InterpretML; install it with pip install 'knotwork[ebm]'")
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    X, y = kw.datasets.load_abalone()
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

    network = kw.SplineNetRegressor(epochs=40, random_state=0).fit(X_train, y_train)
    kw.explain(network, X_train, y_train).to_html(folder / "knotwork.html")

    ebm = ExplainableBoostingRegressor(random_state=0).fit(X_train, y_train)
    write_ebm_page(ebm, folder / "ebm.html")

    for name, model in (("spline", network.spline_), ("network", network), ("EBM", ebm)):
        rows = network.encoder_.encode(X_test) if name == "spline" else X_test
        predicted = model(rows) if name == "spline" else model.predict(rows)
        print(f"{name:8s} test RMSE {np.sqrt(np.mean((predicted - y_test) ** 2)):.3f}")
    print(f"pages: {folder / 'knotwork.html'}, {folder / 'ebm.html'}")


def write_ebm_page(ebm: object, path: Path) -> None:
    """Write all figures of the EBM's own global explanation into one page, with one copy of the library."""
    explanation = ebm.explain_global(name="Explainable boosting machine")  # type: ignore[attr-defined]
    keys = [None, *range(len(explanation.data()["names"]))]
    parts = [explanation.visualize(key).to_html(full_html=False, include_plotlyjs=k == 0) for k, key in enumerate(keys)]
    page = "<!doctype html><html lang='en'><meta charset='utf-8'><title>EBM</title><body>{}</body></html>"
    path.write_text(page.format("\n".join(parts)), encoding="utf-8")


if __name__ == "__main__":
    main()
