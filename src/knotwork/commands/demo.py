"""``knotwork demo``: the whole way on one screen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from knotwork.atomic import atomic_file
from knotwork.commands.output import take_folder
from knotwork.printable import printable

if TYPE_CHECKING:
    from knotwork.arrays import Floats
    from knotwork.estimators.mars import MarsRegressor
    from knotwork.estimators.splinenet import SplineNetRegressor

COLOURS = {"spline start": "blue", "random start": "dark_orange"}
MADE_UP_NOISE = 0.3
# Errors closer than this share are the same.
LEVEL = 1.02


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to train both networks.")] = 30,
    out: Annotated[Path, typer.Option(help="Folder for the picture, the formula and the model.")] = Path(
        "knotwork-demo"
    ),
) -> None:
    """Run everything once on Abalone: spline, network, report."""
    import numpy as np
    import torch

    import knotwork as kw
    from knotwork.commands.terminal_plot import plot_curves
    from knotwork.experiments.threads import one_thread

    take_folder(out, "demo")
    console = Console(highlight=False, emoji=False)
    begun = time.perf_counter()
    X, y = kw.datasets.load_abalone()
    test = np.random.default_rng(0).random(len(X)) < 0.3
    X_train, y_train, X_test, y_test = X[~test], y[~test], X[test], y[test]
    console.print(
        f"[bold]Abalone[/]: how many rings does a shellfish have (its age), given its sex and seven measurements? "
        f"{len(X_train)} rows to train on, {len(X_test)} to test on."
    )

    model = kw.MarsRegressor().fit(X_train, y_train)  # the first fit on a machine compiles
    start = time.perf_counter()
    model.fit(X_train, y_train)
    took = 1000 * (time.perf_counter() - start)
    console.print(f"\n[bold]1. A spline[/], fitted in {took:.1f} ms. You can read it; h(u) is max(0, u):\n")
    console.print(_formula(model, console.width), markup=False)

    net = kw.to_network(model, dtype=torch.float64)
    rows = torch.from_numpy(model.encoder_.encode(X_test))
    with torch.no_grad():
        difference = float((net(rows)[:, 0] - torch.from_numpy(model.predict(X_test))).abs().max())
    shape = " → ".join(str(layer.in_features) for layer in net if isinstance(layer, torch.nn.Linear)) + " → 1"
    console.print(
        f"\n[bold]2. The same function as a ReLU network[/] ({shape} units); the predictions "
        f"differ by at most {difference:.1g} rings."
    )

    console.print(
        f"\n[bold]3. Grown to 128 × 128 units and trained[/] for {epochs} epochs, and the same network from random "
        f"weights. Error on validation rows, in rings; each network keeps its best epoch:\n"
    )
    networks = {}
    for name in COLOURS:
        with console.status(f"training, {name} …"), one_thread():
            networks[name] = _train(name, epochs).fit(X_train, y_train)
    curves = {name: [loss**0.5 for loss in n.history_.validation_loss] for name, n in networks.items()}
    console.print(plot_curves({n: (c, COLOURS[n]) for n, c in curves.items()}, height=9, unit=" epochs"))

    def error(predicted: Any) -> float:
        return float(np.sqrt(np.mean((predicted - y_test) ** 2)))

    errors = {
        name: (error(_train(name, 0).fit(X_train, y_train).predict(X_test)), error(network.predict(X_test)))
        for name, network in networks.items()
    }
    console.print()
    console.print(_error_table("error on test rows, rings", errors, error(y_train.mean())))
    console.print(_head_start(curves))
    ends = [after for _, after in errors.values()]
    if max(ends) <= LEVEL * min(ends):
        console.print(
            "On the test rows both networks end level: here the start saves epochs, but does not lower the error."
        )
    console.print(_made_up(console, epochs))

    console.print(
        "\n[bold]4. What the spline says about the data[/] (in brackets: the column's share of the "
        "importance of all columns)\n"
    )
    for sentence in describe(model, X_train):
        console.print(Padding(Text(sentence), (0, 0, 0, 3)))

    files = _save(out, model, networks["spline start"], curves)
    report = out / "report.html"
    kw.explain(networks["spline start"], X_test, y_test, random_start=networks["random start"]).to_html(report)
    files = {report: "open this page in a browser: what the trained network does, and its errors on test rows", **files}
    console.print(f"\n[bold]Files[/] ({time.perf_counter() - begun:.0f} s in all)\n")
    for path, what in files.items():
        console.print(f"   {printable(path)}  {what}", markup=False, soft_wrap=True)


def _formula(model: MarsRegressor, room: int) -> str:
    """Return the spline's formula, two terms a line if there is room."""
    intercept, *lines = str(model.spline_).splitlines()
    parts = [line.strip() for line in lines if line.startswith("  ")]  # what comes after the terms is not indented
    width = max(len(part) for part in parts)
    columns = 2 if 11 + 2 * width + 2 <= room else 1
    lines = ["  ".join(f"{part:{width}s}" for part in parts[k : k + columns]) for k in range(0, len(parts), columns)]
    return "\n".join([f"   rings = {intercept}", *(f"{'':11s}{line.rstrip()}" for line in lines)])


def _train(name: str, epochs: int) -> SplineNetRegressor:
    import knotwork as kw

    return kw.SplineNetRegressor(n_members=1, start=name.split()[0], epochs=epochs, patience=None, random_state=0)


def _error_table(title: str, errors: dict[str, tuple[float, float]], guess: float) -> Table:
    """Return the errors before and after training, and that of predicting the mean."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in (title, "before training", "after training"):
        table.add_column(column, justify="left" if column == title else "right")
    for name, (before, after) in errors.items():
        table.add_row(name, f"{before:.2f}", f"{after:.2f}", style=COLOURS[name])
    table.add_row("predicting the mean", f"{guess:.2f}", "")
    return table


def _made_up(console: Console, epochs: int) -> Table:
    """Train both networks on a table whose response has sharp bends, which random weights take long to find."""
    import numpy as np

    from knotwork.experiments.threads import one_thread

    def draw(rows: int, seed: int) -> tuple[Floats, Floats]:
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(rows, 6))
        bends = {0: (20, (0.2, 0.5, 0.8)), 1: (10, (0.3, 0.6)), 2: (8, (0.7,)), 3: (8, (0.5,))}
        y = rng.normal(scale=MADE_UP_NOISE, size=rows)
        for f, (height, knots) in bends.items():
            y += height * sum((-1) ** k * np.abs(X[:, f] - knot) for k, knot in enumerate(knots))
        return X, y

    (X, y), (X_test, y_test) = draw(700, 0), draw(2000, 1)
    errors = {}
    for name in COLOURS:
        with console.status(f"a simulated table, {name} …"), one_thread():
            fits = [_train(name, count).fit(X, y) for count in (0, epochs)]
        before, after = (float(np.sqrt(np.mean((fit.predict(X_test) - y_test) ** 2))) for fit in fits)
        errors[name] = (before, after)
    console.print(
        f"\nWhere the response bends sharply, the spline start lowers the error, too. A simulated table of {len(X)} "
        f"rows, noise of std {MADE_UP_NOISE}, the same {epochs} epochs:\n"
    )
    return _error_table("error on new rows", errors, float(np.std(y_test)))


def _head_start(curves: dict[str, list[float]]) -> str:
    """Say how long the random start needs to reach the error that the spline begins with."""
    goal = curves["spline start"][0]
    reached = next((epoch for epoch, value in enumerate(curves["random start"]) if value <= goal), None)
    begins = f"\nOn the validation rows the spline start begins at {goal:.2f} rings; the random start"
    if reached is None:
        return f"{begins} ends at {min(curves['random start']):.2f}."
    return f"{begins} needs {reached} epochs to get there."


def describe(model: MarsRegressor, X: Any, columns: int = 3) -> list[str]:
    """Say in plain words what matters most and which way, read off the fitted spline.

    A column's effect is what the spline does while only that column changes, the others at their medians.
    """
    import numpy as np

    from knotwork.data.columns.levels import Levels

    matrix = np.asarray(model.encoder_.encode(X))
    source = np.array(model.encoder_.source)
    shares = model.feature_importances_
    sentences = []
    for rank, k in enumerate(np.argsort(-shares)[:columns]):
        name = model.encoder_.columns[k].name
        encoded = np.flatnonzero(source == k)
        lead = f"{name} {'matters most' if rank == 0 else 'comes next'} ({shares[k]:.0%})"
        tell = _between_categories if isinstance(model.encoder_.columns[k], Levels) else _along
        sentences.append(f"{lead}: {tell(model, matrix, encoded)}")
    sentences.append(
        "Each effect changes one column and keeps the others fixed. In real abalones the columns change together."
    )
    return sentences


def _along(model: MarsRegressor, matrix: Floats, encoded: Any) -> str:
    """Effect of a number from its 5th to its 95th percentile, and where it is steepest."""
    import numpy as np

    (f,) = encoded
    low, high = np.quantile(matrix[:, f], [0.05, 0.95])
    knots = sorted({k.value for k in model.knots_ if k.feature == f and low < k.value < high})
    points = np.array([low, *knots, high])
    probe = np.tile(np.median(matrix, axis=0), (len(points), 1))
    probe[:, f] = points
    values = model.spline_(probe)
    change = values[-1] - values[0]
    text = (
        f"from {low:.3g} to {high:.3g} the prediction {'rises' if change > 0 else 'falls'} by {abs(change):.1f} rings"
    )
    if knots:
        slopes = np.abs(np.diff(values) / np.diff(points))
        k = int(np.argmax(slopes))
        text += f", most steeply between {points[k]:.3g} and {points[k + 1]:.3g}"
    return f"{text}."


def _between_categories(model: MarsRegressor, matrix: Floats, encoded: Any) -> str:
    """Lowest and highest category, everything else at its median."""
    import numpy as np

    probe = np.tile(np.median(matrix, axis=0), (len(encoded), 1))
    probe[:, encoded] = np.eye(len(encoded))
    values = model.spline_(probe)
    names = [model.spline_.feature_names[f] for f in encoded]
    low, high = int(np.argmin(values)), int(np.argmax(values))
    return f"{names[low]} has {values[high] - values[low]:.1f} fewer rings than {names[high]}, other columns fixed."


def _save(
    out: Path, model: MarsRegressor, network: SplineNetRegressor, curves: dict[str, list[float]]
) -> dict[Path, str]:
    """Write formula, model and picture; return each file with what it is."""
    import importlib.util

    import knotwork as kw

    with atomic_file(out / "spline.txt") as fresh:
        fresh.write_text(f"{model.summary()}\n\n{model.spline_}\n", encoding="utf-8")
    kw.save(network, out / "model", overwrite=True)
    files = {
        out / "spline.txt": "the spline: its terms, what each contributes, the formula",
        out / "model": "the trained network; kw.load loads it",
    }
    if importlib.util.find_spec("matplotlib") is None:
        files[out] = "would also get a picture of the curves: pip install 'knotwork[plots]'"
        return files
    from knotwork.experiments.figures import demo_curves

    files[demo_curves(out / "curves", curves)[0]] = "both curves as a picture; curves.svg is the same"
    return files
