"""``python -m tests.torture.fuzz.readers model|csv FOLDER [libFuzzer's options]``: atheris on one of the readers.

Bytes that atheris makes up, led by what they reach in our code, are a saved document or a table. A reader may read them
or refuse them with an error of ours; anything else ends the process with a traceback.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

SAVED = sorted((Path(__file__).parents[2] / "saved").glob("*-schema-*"))[-1] / "mars_table"

with atheris.instrument_imports(include=["knotwork.serial", "knotwork.data"]):
    import knotwork as kw
    from knotwork.data.files import read_file
    from knotwork.errors import KnotworkError
    from knotwork.serial.document import document_digest

    kw.load(SAVED)  # imports what loading needs, torch among it

TABLE = 'a,b,"c, d"\n1,2.5,u\n-3e4,,"v ""w"""\n0x1,nan,=1+1\n'


def model_target(folder: Path) -> Callable[[bytes], None]:
    """Load documents, their digests made anew so that what they say is read; their arrays are those of a real model."""
    place = folder / "model"
    shutil.copytree(SAVED, place)
    (folder / "corpus").mkdir()
    shutil.copy(SAVED / "model.json", folder / "corpus")

    def test(data: bytes) -> None:
        try:
            document = json.loads(data)
            document["digest"] = document_digest(document)
            data = json.dumps(document).encode()
        except (ValueError, TypeError, RecursionError):
            pass  # as it came
        (place / "model.json").write_bytes(data)
        with contextlib.suppress(KnotworkError):
            kw.load(place)

    return test


def csv_target(folder: Path) -> Callable[[bytes], None]:
    """Read tables."""
    place = folder / "table.csv"
    (folder / "corpus").mkdir()
    for number, text in enumerate((TABLE, TABLE.replace(",", ";"), TABLE.replace(",", "\t"))):
        (folder / "corpus" / str(number)).write_text(text)

    def test(data: bytes) -> None:
        place.write_bytes(data)
        with contextlib.suppress(KnotworkError):
            read_file(place)

    return test


if __name__ == "__main__":
    kind, where, *options = sys.argv[1:]
    target = {"model": model_target, "csv": csv_target}[kind](Path(where))
    atheris.Setup([sys.argv[0], str(Path(where) / "corpus"), *options], target)
    atheris.Fuzz()
