"""The commands of the suite; ``python -m benchmarks.suite --help`` lists them."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

# Before numpy is loaded: every model has one thread.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

HERE = Path(__file__).parent


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    if getattr(options, "knotwork", None):
        sys.path.insert(0, str(options.knotwork.resolve()))
    options.command(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite")
    commands = parser.add_subparsers(required=True)

    fetch = commands.add_parser("fetch", help="read every table once and print what is in it")
    fetch.add_argument("--tables", nargs="+", metavar="NAME")
    fetch.set_defaults(command=_fetch)

    store = commands.add_parser("store", help="store the tables for machines without the wheels")
    store.add_argument("folder", type=Path, help="KNOTWORK_TABLES=FOLDER reads the tables from there")
    store.add_argument("--tables", nargs="+", metavar="NAME")
    store.set_defaults(command=_store)

    run = commands.add_parser("run", help="fit models to splits of tables; goes on where it was stopped")
    run.add_argument("--tables", nargs="+", metavar="NAME", help="default: all development tables")
    run.add_argument("--models", nargs="+", metavar="NAME", help="default: all but net_8")
    run.add_argument("--splits", nargs="+", type=int, default=list(range(5)))
    run.add_argument("--final", action="store_true", help="the final tables, for the last figures only")
    run.add_argument("--again", action="store_true", help="also what has results; the new rows count")
    run.add_argument("--out", type=Path, default=HERE / "results.csv")
    run.add_argument("--knotwork", type=Path, help="the src folder of the checkout to measure")
    run.set_defaults(command=_run)

    table = commands.add_parser("table", help="print the results in Markdown")
    plot = commands.add_parser("plot", help="draw ranks, and error against time")
    for command in (table, plot):
        command.add_argument("--results", nargs="+", type=Path, default=[HERE / "results.csv"])
        command.add_argument("--models", nargs="+", metavar="NAME", help="default: all that have results")
        command.add_argument("--splits", nargs="+", type=int)
        command.add_argument("--final", action="store_true", help="of the final tables")
    table.set_defaults(command=_table)
    plot.add_argument("--folder", type=Path, default=Path("docs/images"))
    plot.set_defaults(command=_plot)

    small = commands.add_parser("small", help="200 and 600 training rows of ten development tables, ten draws")
    small.add_argument("--models", nargs="+", metavar="NAME", default=["catboost", "mars_1", "mars_auto", "net_1"])
    small.add_argument("--rows", nargs="+", type=int, default=[200, 600])
    small.add_argument("--draws", nargs="+", type=int, default=list(range(10)))
    small.add_argument("--out", type=Path, default=HERE / "small.csv")
    small.add_argument("--table", action="store_true", help="only print the results so far")
    small.add_argument("--knotwork", type=Path)
    small.set_defaults(command=_small)

    starts = commands.add_parser("starts", help="spline start against random weights, paired")
    starts.add_argument("--tables", nargs="+", metavar="NAME")
    starts.add_argument("--splits", nargs="+", type=int, default=list(range(5)))
    starts.add_argument("--seeds", nargs="+", type=int, default=list(range(3)))
    starts.add_argument("--final", action="store_true")
    starts.add_argument("--out", type=Path, default=HERE / "starts.csv")
    starts.add_argument("--table", action="store_true", help="only print the results so far")
    starts.add_argument("--knotwork", type=Path)
    starts.set_defaults(command=_starts)
    for command in (run, small, starts):
        command.add_argument("--device", default="cpu", help="where SplineNet, RealMLP and TabM train; default: cpu")
    return parser


def chosen_tables(names: list[str] | None, final: bool) -> list[str]:
    """Return the tables to run: the development tables, or with ``final`` the final ones; refuse a mixture."""
    from .catalogue import TABLES
    from .draw import DEVELOPMENT, FINAL

    if names is None:
        return [name for name in TABLES if name in FINAL] if final else list(DEVELOPMENT)
    unknown = sorted(set(names) - set(TABLES))
    if unknown:
        raise SystemExit(f"the catalogue has no table {unknown[0]!r}; its tables are {', '.join(TABLES)}")
    reserved = [name for name in names if name in FINAL]
    if reserved and not final:
        raise SystemExit(
            f"{reserved[0]} is a final table, kept for the last figures and never tuned on; "
            "name development tables, or pass --final if these are the last figures"
        )
    if final and len(reserved) < len(names):
        raise SystemExit("with --final, name final tables only; final.txt lists them")
    return names


def _fetch(options: argparse.Namespace) -> None:
    from .catalogue import TABLES
    from .describe import describe

    print(describe(options.tables or list(TABLES)))


def _store(options: argparse.Namespace) -> None:
    from benchmarks import stored_tables

    from .catalogue import TABLES
    from .load import plain

    options.folder.mkdir(parents=True, exist_ok=True)
    stored_tables.store("suite", options.tables or list(TABLES), plain, options.folder)


def _run(options: argparse.Namespace) -> None:
    from .models import NAMES, OURS, PEERS, version_of
    from .results import read

    models = options.models or [*PEERS, *(name for name in OURS if name != "net_8")]
    unknown = sorted(set(models) - set(NAMES))
    if unknown:
        raise SystemExit(f"no model {unknown[0]!r}; the models are {', '.join(NAMES)}")
    tables = chosen_tables(options.tables, options.final)
    done = read(options.out)
    have = set() if options.again else set(zip(done.table, done.split, done.model, strict=True))
    print("versions:", ", ".join(f"{name} {version_of(name)}" for name in models), flush=True)
    for split in options.splits:
        for table in tables:
            for model in models:
                if (table, split, model) not in have:
                    attempt(options.out, table, split, model, device=options.device)


def attempt(out: Path, table: str, split: int, model: str, **more: int | str) -> None:
    """Measure and keep the result; a model that fails is reported and leaves no row."""
    from .measure import measure
    from .results import append

    try:
        result = measure(table, split, model, **more)
    except Exception:
        print(f"{table} {split} {model}: failed\n{traceback.format_exc(limit=-3)}", flush=True)
        return
    append(out, result)
    print(f"{table} {split} {model}: {result.error:.5g}, {result.fit_seconds:.1f} s", flush=True)


def _table(options: argparse.Namespace) -> None:
    from .report import report

    print(report(*_selected(options)))


def _plot(options: argparse.Namespace) -> None:
    from .pictures import draw_error_against_time, draw_ranks

    errors, seconds = _selected(options)
    options.folder.mkdir(parents=True, exist_ok=True)
    kind = "final" if options.final else "development"
    draw_ranks(errors, options.folder / f"suite-ranks-{kind}.svg")
    draw_error_against_time(errors, seconds, options.folder / f"suite-time-{kind}.svg")


def _selected(options: argparse.Namespace):  # type: ignore[no-untyped-def]
    from .ranks import select
    from .results import read_all

    return select(read_all(options.results), chosen_tables(None, options.final), options.models, options.splits)


def _small(options: argparse.Namespace) -> None:
    from . import small

    if not options.table:
        small.run(options.out, options.models, options.rows, options.draws, options.device)
    print(small.report(options.out))


def _starts(options: argparse.Namespace) -> None:
    from . import starts

    if not options.table:
        tables = chosen_tables(options.tables, options.final)
        starts.run(options.out, tables, options.splits, options.seeds, options.device)
    print(starts.report(options.out))


if __name__ == "__main__":
    main()
