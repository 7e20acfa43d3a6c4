"""``knotwork demo``: the whole way on one screen."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


def demo(
    epochs: Annotated[int, typer.Option(help="Epochs to train both networks.")] = 40,
) -> None:
    """Abalone: fit a spline, turn it into a network, train it beside one that starts at random."""
    import numpy as np
    import torch

    import knotwork as kw

    console = Console(highlight=False)
    X, y = kw.datasets.load_abalone()
    console.print(f"[bold]Abalone[/]: the age of {len(X)} shellfish in rings, from sex and seven measurements.")
    test = np.random.default_rng(0).random(len(X)) < 0.3
    X_train, y_train, X_test, y_test = X[~test], y[~test], X[test], y[test]

    model = kw.MarsRegressor().fit(X_train, y_train)  # the first fit on a machine compiles
    start = time.perf_counter()
    model.fit(X_train, y_train)
    console.print(f"\n[bold]1. The spline[/], fitted in {1000 * (time.perf_counter() - start):.1f} ms:\n")
    console.print(model.summary(), markup=False)
    knot = model.knots_[0]
    console.print(
        f"\nEvery knot is a value of the data: {model.spline_.feature_names[knot.feature]} = {knot.value:g} is that "
        f"of {knot.count} shellfish."
    )

    rows = torch.from_numpy(model.encoder_.encode(X_test))
    net = kw.to_network(model, dtype=torch.float64)
    with torch.no_grad():
        difference = float((net(rows)[:, 0] - torch.from_numpy(model.predict(X_test))).abs().max())
    console.print(f"\n[bold]2. The same function as ReLU layers[/]: largest difference {difference:.1g}.\n")
    console.print(str(net), markup=False)

    console.print(f"\n[bold]3. Training on[/], 128 × 128 units, {epochs} epochs, beside a random start:\n")
    shown = [e for e in (0, 1, 2, 5, 10, 20, 40, 80) if e <= epochs]
    table = Table(box=None, pad_edge=False)
    table.add_column("validation error, in rings, after epoch")
    for epoch in shown:
        table.add_column(str(epoch), justify="right")
    table.add_column("test error", justify="right")
    for start_name in ("spline", "random"):
        with console.status(f"training from a {start_name} start …"):
            network = kw.SplineNetRegressor(start=start_name, epochs=epochs, patience=None, random_state=0)
            network.fit(X_train, y_train)
        losses = network.history_.validation_loss
        error = float(np.sqrt(np.mean((network.predict(X_test) - y_test) ** 2)))
        table.add_row(f"{start_name} start", *(f"{losses[e] ** 0.5:.2f}" for e in shown), f"{error:.2f}")
    console.print(table)
    spline_error = float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))
    console.print(f"\nThe spline alone: {spline_error:.2f} on the test rows; guessing the mean: {y_test.std():.2f}.")

    console.print("\n[bold]4. What the age depends on[/] (rise in the spline's error without the column)\n")
    for share, name in sorted(zip(model.feature_importances_, X.columns, strict=True), reverse=True):
        console.print(f"  {name:16s} {100 * share:5.1f} %  {'█' * round(40 * share)}", markup=False)
