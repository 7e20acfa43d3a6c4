"""``knotwork fit``: from a file to a saved model, and what was made of the file on the way."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from knotwork.commands.output import print_json, require_free_folder
from knotwork.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from knotwork.data.column_selection import Task
    from knotwork.data.files import Table

# Which estimator fits what: (task, with hidden layers).
ESTIMATORS = {
    ("regression", False): "MarsRegressor",
    ("regression", True): "SplineNetRegressor",
    ("classification", False): "MarsClassifier",
    ("classification", True): "SplineNetClassifier",
}
# Share of a network's training rows, or of their groups, to validate on: that of SplineNet itself.
VALIDATION = 0.15


def fit(
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file.", show_default=False)],
    target: Annotated[str, typer.Option(metavar="COLUMN", help="The column to predict.", show_default=False)],
    hidden: Annotated[
        str | None,
        typer.Option(metavar="WIDTHS", help="Fit a network of these layers, such as 64,64."),
    ] = None,
    task: Annotated[
        Literal["auto", "regression", "classification"],
        typer.Option(metavar="TASK", help="regression, classification or auto."),
    ] = "auto",
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column to leave out; repeatable.")
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Use a column that looks like an ID; repeatable."),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column whose numbers are categories; repeatable."),
    ] = None,
    na: Annotated[
        list[str] | None,
        typer.Option("--na", metavar="TEXT", help="A word that means missing here; repeatable."),
    ] = None,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Drop rows with missing values.")] = False,
    test_size: Annotated[float, typer.Option(help="Share of rows held out to measure the error.")] = 0.2,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Hold out whole groups: rows that share a value here; a network is also validated on whole groups.",
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Hold out the latest rows by this column; a network is also validated on the latest."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of held-out rows and training.", min=0)] = 0,
    max_terms: Annotated[int | None, typer.Option(help="Maximum number of terms.", min=2)] = None,
    max_degree: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of columns in a term (default: 1; a network chooses 1 or 2).",
            min=1,
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="LOSS",
            help="squared_error, absolute_error, huber, quantile, poisson, gamma or tweedie.",
        ),
    ] = None,
    quantile: Annotated[float | None, typer.Option(help="The quantile that --loss quantile predicts.")] = None,
    power: Annotated[float | None, typer.Option(help="The power of --loss tweedie, such as 1.5.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Maximum number of epochs.", min=0)] = None,
    memory_limit: Annotated[
        int,
        typer.Option(
            metavar="MB",
            help="Read a Parquet file in parts if it needs more memory.",
            min=64,
        ),
    ] = 1024,
    in_parts: Annotated[bool, typer.Option("--in-parts", help="Read a Parquet file in parts in any case.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the model; by default nothing is saved.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing model.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Fit a spline, or a network that starts from one, to a table."""
    from knotwork.commands.fit_report import column_uses, describe, errors, print_report
    from knotwork.commands.rows import choose_rows
    from knotwork.data.column_selection import choose_columns
    from knotwork.data.files import column_names, read_file
    from knotwork.data.names import require_columns

    widths = _widths(hidden)
    options = _options(widths, max_terms, max_degree, epochs, seed, quiet=as_json)
    options |= _loss_options(loss, quantile, power, task)
    if not 0 <= test_size < 1:
        raise DataError(f"--test-size must be 0 or more and less than 1, got {test_size:g}")
    if out is not None:
        require_free_folder(out, force)
    if groups is not None and time is not None:
        raise DataError("rows are held out by --groups or by --time, got both; name one column")
    from knotwork.commands.fit_parts import is_large

    # A misspelt name is said before the file is read, and before what is wrong with other columns.
    asked = [target, *(exclude or ()), *(include or ()), *(category or ()), groups, time]
    require_columns([name for name in asked if name is not None], column_names(data), data)
    skip = [name for name in exclude or () if name not in (groups, time)]
    if in_parts or is_large(data, memory_limit << 20):
        given: dict[str, Any] = {"--groups": groups, "--time": time, "--category": category, "--na": na}
        given["--drop-missing"] = drop_missing
        given |= {"--loss": loss, "--hidden": hidden}
        found = _fit_in_parts(
            data, target, task, exclude or [], include or [], options, test_size, seed, memory_limit << 20, given, out,
            force,
        )  # fmt: skip
        if as_json:
            print_json(found)
        else:
            print_report(found)
        return
    table = read_file(data, as_text=category or (), skip=skip, missing=na or ())
    column_selection = choose_columns(table, target, exclude or (), include or (), groups=groups, time=time)
    rows = choose_rows(table, target, column_selection, drop_missing, test_size, seed, groups=groups, time=time)
    if widths is not None and (groups is not None or time is not None):
        options["validation"] = _validation(len(rows.train), seed, in_time=time is not None)
    chosen, why = _task(table, target, task)
    if options.keys() & {"loss", "quantile", "power"} and chosen == "classification":
        chosen, why = _task(table, target, "regression")[0], "--loss says so"
    estimator = _estimator(ESTIMATORS[chosen, widths is not None], target, why, options)
    y_train, y_test = (_target(table, target, chosen, part) for part in (rows.train, rows.test))
    X_test, X_train = (table.frame(column_selection.features, part) for part in (rows.test, rows.train))
    report: dict[str, Any] = {
        "file": str(data),
        "read_as": table.described,
        "rows": {"read": table.rows, "train": len(rows.train), "test": len(rows.test)},
        "target": target,
        "task": chosen,
        "task_because": why,
        "columns": {},  # the fit may leave out some more
        "notes": list(rows.notes),
    }
    del table  # the fit may need the memory

    start = perf_counter()
    _fit(estimator, X_train, y_train, rows.groups if widths is not None else None)
    report["seconds"] = perf_counter() - start
    report["columns"] = column_uses(estimator, column_selection)
    report["error"] = {"train": errors(estimator, X_train, y_train, y_train, chosen)}
    if len(y_test):
        report["error"]["test"] = errors(estimator, X_test, y_test, y_train, chosen)
    report["model"] = describe(estimator, target)
    if out is not None:
        import knotwork as kw

        kw.save(estimator, out, overwrite=force)
    report["saved"] = None if out is None else str(out)
    if as_json:
        print_json(report)
    else:
        print_report(report)


def _fit_in_parts(
    data: Path, target: str, task: str, exclude: list[str], include: list[str], options: dict[str, Any],
    test_size: float, seed: int, memory_limit: int, given: dict[str, Any], out: Path | None, force: bool,
) -> dict[str, Any]:  # fmt: skip
    """Fit a Parquet file in parts and return the report."""
    import knotwork as kw
    from knotwork.commands.fit_parts import FIRST_ROWS, Side, errors_of, first_rows, require_plain_options
    from knotwork.commands.fit_report import column_uses, describe
    from knotwork.commands.rows import dropped_note
    from knotwork.data.column_selection import choose_columns
    from knotwork.data.files import is_parquet, open_parquet

    if not is_parquet(data):
        raise DataError(f"files are read in parts if they are Parquet, {data} is not; save it as Parquet")
    require_plain_options(given)
    table = first_rows(data, exclude)
    selection = choose_columns(table, target, exclude, include)
    chosen, why = _task(table, target, task)
    rows = open_parquet(data, ())[0].metadata.num_rows
    estimator = _estimator(ESTIMATORS[chosen, False], target, why, options)
    sides = [
        Side(data, tuple(selection.features), target, memory_limit, seed, test_size, held_out=held)
        for held in (False, True)
    ]
    start = perf_counter()
    estimator.fit(sides[0].batches)
    seconds = perf_counter() - start
    train = errors_of(estimator, sides[0], chosen, None)
    found = {"train": train} | ({"test": errors_of(estimator, sides[1], chosen, train)} if test_size else {})
    counts = {"read": rows, "train": train["rows"], "test": found.get("test", {}).get("rows", 0)}
    notes = [f"read in parts; columns and task were chosen by the first {min(rows, FIRST_ROWS)} rows"]
    dropped = rows - counts["train"] - counts["test"]
    if dropped:
        notes.append(dropped_note(dropped, rows, target))
    if out is not None:
        kw.save(estimator, out, overwrite=force)
    return {
        "file": str(data),
        "read_as": f"{table.described}, in parts",
        "rows": counts,
        "target": target,
        "task": chosen,
        "task_because": why,
        "columns": column_uses(estimator, selection),
        "notes": notes,
        "seconds": seconds,
        "error": {
            side: {name: value for name, value in own.items() if name not in ("rows", "mean", "counts")}
            for side, own in found.items()
            if own["rows"]
        },
        "model": describe(estimator, target),
        "saved": None if out is None else str(out),
    }


def _widths(hidden: str | None) -> tuple[int, ...] | None:
    from knotwork.parameters import shown

    if hidden is None:
        return None
    parts = [part.strip() for part in hidden.split(",")]
    if not all(part.isdecimal() and len(part) < 10 and int(part) > 0 for part in parts):
        raise DataError(f"--hidden must be widths of layers such as 64,64, got {shown(hidden)}")
    return tuple(int(part) for part in parts)


def _task(table: Table, target: str, asked: str) -> tuple[Task, str]:
    from knotwork.data.column_selection import guess_task

    kind, values = table.kinds[target], table.columns[target]
    if asked == "classification":
        return "classification", "--task says so"
    if asked == "regression":
        if kind == "text":
            raise DataError(
                f"the target of a regression must be numbers, column {target!r} of {table.path} holds text; "
                f"choose another target or --task classification"
            )
        return "regression", "--task says so"
    if kind == "boolean":
        return "classification", "it holds true and false"
    return guess_task(values)


def _estimator(name: str, target: str, why: str, options: dict[str, Any]) -> Any:
    """Make the estimator of this name, if there is one."""
    import knotwork as kw

    cls = getattr(kw, name, None)
    if cls is None:
        raise DataError(
            f"the target {target!r} is taken for classes because {why}, and this version of knotwork has no {name}; "
            f"pass --task regression if its numbers are quantities"
        )
    unknown = set(options) - set(cls().get_params())
    if unknown:
        raise DataError(f"{name} has no option {min(unknown)} in this version of knotwork; leave it out")
    return cls(**options)


def _validation(rows: int, seed: int, in_time: bool) -> Any:
    """Return the splitter of a network's training rows: the latest of rows in the order of time, or whole groups."""
    from sklearn.model_selection import GroupShuffleSplit, TimeSeriesSplit

    if in_time:
        return TimeSeriesSplit(2, test_size=max(1, round(VALIDATION * rows)))
    return GroupShuffleSplit(1, test_size=VALIDATION, random_state=seed)


def _fit(estimator: Any, X: pd.DataFrame, y: Any, groups: NDArray[np.float64] | None) -> None:
    from sklearn.utils._param_validation import InvalidParameterError

    try:
        if groups is None:
            estimator.fit(X, y)
        else:
            estimator.fit(X, y, groups=groups)
    except InvalidParameterError as error:
        raise DataError(f"an option is out of range: {error}") from None


def _options(
    widths: tuple[int, ...] | None,
    max_terms: int | None,
    max_degree: int | None,
    epochs: int | None,
    seed: int,
    quiet: bool,
) -> dict[str, Any]:
    options: dict[str, Any] = {"max_terms": max_terms, "verbose": int(not quiet and sys.stdout.isatty())}
    if max_degree is not None:
        options["max_degree"] = max_degree
    if widths is not None:
        options |= {"hidden": widths, "random_state": seed}
        if epochs is not None:
            options["epochs"] = epochs
    elif epochs is not None:
        raise DataError("--epochs is for networks, a spline is not trained; pass --hidden 64,64 as well")
    return options


def _loss_options(loss: str | None, quantile: float | None, power: float | None, task: str) -> dict[str, Any]:
    """Return the parameters of a loss that were given."""
    from knotwork.data.losses import response_loss

    given = {"loss": loss, "quantile": quantile, "power": power}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return {}
    if task == "classification":
        raise DataError(f"--{next(iter(given))} is for a regression, got --task classification; leave one of them out")
    response_loss(loss or "squared_error", quantile, power)  # refuses what does not go together
    return given


def _target(table: Table, target: str, task: Task, rows: NDArray[np.intp]) -> Any:
    import numpy as np

    values = table.columns[target][rows]
    if not isinstance(values, np.ndarray):
        return np.asarray(values, dtype=object)
    if task == "regression":
        return values
    if table.kinds[target] == "boolean":
        return values.astype(bool)
    return values.astype(np.int64) if (values == np.floor(values)).all() else values
