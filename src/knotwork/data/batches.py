"""Rows in parts that can be read again: files, memory maps, iterables of batches. A fit maps a task over them and adds.

The parts of a source, their numbers and their order are the same in every reading, and so is the order of addition: a
fit to the same source gives the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from knotwork.arrays import read_array
from knotwork.data.digest import Digest, digest
from knotwork.data.small_batches import cut, joined
from knotwork.data.table import as_frame
from knotwork.errors import DataError, KnotworkError, one_line
from knotwork.parameters import shown

# Bytes that a fit may take beside the interpreter, unless the caller says otherwise, and the minimum.
MEMORY_LIMIT, MIN_MEMORY = 1 << 30, 1 << 26
# Copies of a batch that are in memory at a time: as read (two batches, one ahead), encoded, standardised, in bins.
COPIES = 6
MIN_ROWS = 1024
# Rows that pyarrow decodes at a time.
READ_ROWS = 131_072
# Neighbouring rows of an array that stay together where the order is random: a disk reads them at once.
BLOCK = 1024

T = TypeVar("T")
# Rows read so far and in all, None if nobody knows.
Report = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Rows:
    """A part as it came: X (n, d) frame or array, y (n,) or (n, p), weight (n,) or None; number : which part it is."""

    X: Any
    y: Any
    weight: Any
    number: int

    def __len__(self) -> int:
        frame = as_frame(self.X)
        try:
            return len(self.X) if frame is None else len(frame)
        except TypeError:
            raise DataError(
                f"a part must be a table or an array with rows, number {self.number} is a {type(self.X).__name__}"
            ) from None

    def digest(self) -> Digest:
        """Return what is kept of the rows to know them again."""
        return digest(self.X, self.y, self.weight, len(self))


class Source(Protocol):
    """Parts of a table, wherever they are.

    local : whether tasks run in this process one after the other, so that each may use all threads
    """

    local: bool

    def add(
        self,
        task: Callable[[Rows], T],
        plus: Callable[[T, T], T],
        columns: Sequence[str] | None = None,
        report: Report | None = None,
    ) -> T:
        """Read all parts once and add up what the task makes of them, in a fixed order.

        columns : those of X to read, None for all; only a source that knows columns by name leaves some out
        """
        ...


class Batches:
    """Rows in batches that can be read several times, for tables that are larger than memory.

    Parameters
    ----------
    data : Parquet file or folder (str or Path), ``pyarrow.dataset.Dataset``, array or memory map (N, d), or anything
        that can be iterated over several times and yields (X, y) or (X, y, sample_weight)
    memory_limit : bytes that a fit may use, interpreter not counted. It sets the rows of a batch of files and arrays;
        batches of your own are in memory as you yield them, and large ones are worked on in pieces

    Pass it to ``fit`` in the place of X. For Parquet, y and sample_weight are names of columns (a list of them for
    several responses); for an array, y is an array; for an iterable y is left out.

    Examples
    --------
    >>> import numpy as np
    >>> import knotwork as kw
    >>> X = np.random.default_rng(0).normal(size=(3000, 2))
    >>> batches = [(part, np.abs(part[:, 0])) for part in np.split(X, 3)]
    >>> model = kw.MarsRegressor().fit(kw.Batches(batches))
    >>> round(model.score(X, np.abs(X[:, 0])), 2)
    1.0
    """

    def __init__(self, data: Any, *, memory_limit: int = MEMORY_LIMIT) -> None:
        if isinstance(memory_limit, bool) or not isinstance(memory_limit, int) or memory_limit < MIN_MEMORY:
            raise DataError(
                f"memory_limit must be a number of bytes, at least {MIN_MEMORY} (64 MB), got {shown(memory_limit)}"
            )
        self.data = data
        self.memory_limit = memory_limit

    def source(self, y: Any, sample_weight: Any) -> Source:
        """Return the rows as a fit reads them."""
        data = self.data
        if isinstance(data, str | os.PathLike) or is_arrow_dataset(data):
            return DatasetSource(_opened(data), y, sample_weight, self.memory_limit)
        if isinstance(data, np.ndarray):
            return ArraySource(data, y, sample_weight, self.memory_limit)
        return IterableSource(data, y, sample_weight, self.memory_limit)


def is_arrow_dataset(X: Any) -> bool:
    """Whether X is a dataset of pyarrow; nothing is imported to find out."""
    return type(X).__module__.startswith("pyarrow") and hasattr(X, "scanner") and hasattr(X, "schema")


def is_iterable_of_batches(X: Any) -> bool:
    """Whether X may yield batches: it can be iterated over, and is no array and no table."""
    if isinstance(X, np.ndarray | str | bytes | bytearray | memoryview) or hasattr(X, "dtype") or hasattr(X, "columns"):
        return False
    if isinstance(X, list | tuple):
        first = X[0] if X else None
        return isinstance(first, list | tuple) and len(first) in (2, 3) and hasattr(first[0], "shape")
    return hasattr(X, "__iter__") and as_frame(X) is None


class LocalSource:
    """Parts that are read here, one after the other."""

    local = True

    def parts(self, columns: Sequence[str] | None, order: np.random.Generator | None = None) -> Iterator[Rows]:
        """Read the parts in order, or in a random one where the source has places to begin at."""
        raise NotImplementedError

    def rows(self) -> int | None:
        """Return the number of all rows, None if nobody knows."""
        return None

    def add(
        self,
        task: Callable[[Rows], T],
        plus: Callable[[T, T], T],
        columns: Sequence[str] | None = None,
        report: Report | None = None,
    ) -> T:
        """Read all parts once, each while the one before is worked on, and add up in order."""
        total: T | None = None
        seen: Digest | None = None
        done, all_rows = 0, self.rows() if report is not None else None
        if all_rows is None and "_first" in self.__dict__:  # counted in the first reading
            all_rows = self.__dict__["_first"].rows
        # What a part holds is looked at while the one before is worked on.
        for rows, own in one_ahead((part, part.digest()) for part in self.parts(columns) if len(part)):
            try:
                found = task(rows)
                total, seen = (found, own) if total is None or seen is None else (plus(total, found), seen.plus(own))
            except DataError as error:
                where = f"in rows {done:,} to {done + own.rows - 1:,} of the source"
                raise type(error)(f"{error}; {where}") from error.__cause__
            done += own.rows
            if report is not None:
                report(done, all_rows)
        if total is None or seen is None:
            raise no_rows()
        self.__dict__.setdefault("_first", seen).require_same(seen)
        return total


def no_rows() -> DataError:
    """Return the error for a source without rows."""
    return DataError("a fit needs rows, the source has none; check that it can be read more than once")


def one_ahead(parts: Iterator[T]) -> Iterator[T]:
    """Read the next part in a thread while the caller works on the last one.

    A caller that stops early, by Ctrl-C say, does not wait for a part that nobody wants.
    """
    reader = ThreadPoolExecutor(1, thread_name_prefix="knotwork-read")
    try:
        waiting = reader.submit(next, parts, None)
        while (part := waiting.result()) is not None:
            waiting = reader.submit(next, parts, None)
            yield part
    finally:
        reader.shutdown(wait=False, cancel_futures=True)


def _reads_again(data: Any) -> bool:
    """Whether each ``iter`` of an object starts anew; some objects have an ``__iter__`` that only raises."""
    try:
        return iter(data) is not data
    except Exception:
        return False


class IterableSource(LocalSource):
    """Batches that somebody yields: (X, y) or (X, y, sample_weight)."""

    def __init__(self, data: Iterable[Any], y: Any, sample_weight: Any, memory_limit: int = MEMORY_LIMIT) -> None:
        if not _reads_again(data):
            raise DataError(
                f"batches are read several times, got a {type(data).__name__} that can be read once at most; pass a "
                f"list, or an object whose __iter__ starts from the first batch each time"
            )
        if y is not None or sample_weight is not None:
            raise DataError(
                "batches bring their own y and sample_weight, got them as arguments as well; leave those out"
            )
        self._data, self._memory_limit = data, memory_limit

    def parts(self, columns: Sequence[str] | None, order: np.random.Generator | None = None) -> Iterator[Rows]:
        """Read the batches in the order in which they come, small ones joined and large ones cut."""
        return joined(cut(self._batches(), lambda columns: batch_rows(self._memory_limit, max(1, columns))))

    def _batches(self) -> Iterator[Rows]:
        for number, batch in enumerate(_read(self._data)):
            if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
                raise DataError(
                    f"batches must be (X, y) or (X, y, sample_weight), batch {number} is a {type(batch).__name__}; "
                    f"yield tuples"
                )
            X, y, *weight = (_in_memory(each) for each in batch)
            yield Rows(X, y, weight[0] if weight else None, number)


def _read(data: Iterable[Any]) -> Iterator[Any]:
    """Yield batches; whatever somebody else's code raises meanwhile becomes a sentence, with its error as the cause."""
    try:
        yield from data
    except KnotworkError:
        raise
    except Exception as error:
        raise DataError(
            f"batches must be readable several times, this {type(data).__name__} raised {type(error).__name__}: "
            f"{one_line(error)}; fix it, or pass a list"
        ) from error


def _in_memory(values: Any) -> Any:
    """Return lists and tensors as arrays; everything else as it came."""
    if isinstance(values, list | tuple):
        return np.asarray(values)
    if not hasattr(values, "detach"):
        return values
    try:
        return read_array(values.float() if str(values.dtype) == "torch.bfloat16" else values, "a batch")
    except AttributeError as error:
        raise DataError(f"a batch must hold tables, arrays or tensors: {one_line(error)}") from None


class ArraySource(LocalSource):
    """An array or a memory map (N, d), some rows at a time; y and weights lie in arrays beside it."""

    def __init__(self, X: Any, y: Any, sample_weight: Any, memory_limit: int) -> None:
        if X.ndim != 2:
            raise DataError(f"X must have shape (N, d), got {X.shape}")
        if X.shape[1] == 0:
            raise DataError("a fit needs at least one column, got an array without any; add the features")
        for name, values in (("y", y), ("sample_weight", sample_weight)):
            if name == "sample_weight" and values is None:
                continue
            if not hasattr(values, "__len__") or isinstance(values, str) or len(values) != len(X):
                sized = hasattr(values, "__len__") and not isinstance(values, str)
                got = f"{len(values)} values" if sized else shown(values)
                raise DataError(f"an array of {len(X)} rows needs a {name} of as many values, got {got}")
        self._X, self._y, self._weight = X, y, sample_weight
        self._step = batch_rows(memory_limit, X.shape[1])

    def rows(self) -> int:
        """Return the number of all rows."""
        return len(self._X)

    def parts(self, columns: Sequence[str] | None, order: np.random.Generator | None = None) -> Iterator[Rows]:
        """Read the rows in order, or blocks of them in a random one."""
        block = self._step if order is None else min(self._step, BLOCK)
        starts = np.arange(0, len(self._X), block)
        if order is not None:
            order.shuffle(starts)
        count = max(1, self._step // block)
        for number, first in enumerate(range(0, len(starts), count)):
            own = [slice(start, start + block) for start in starts[first : first + count].tolist()]
            X, y, weight = (
                None if v is None else np.concatenate([v[rows] for rows in own])
                for v in (self._X, self._y, self._weight)
            )
            yield Rows(X, y, weight, number)


class DatasetSource(LocalSource):
    """A dataset of pyarrow: Parquet files say, a few row groups at a time. y and weights are columns of it."""

    def __init__(self, dataset: Any, y: Any, sample_weight: Any, memory_limit: int) -> None:
        names = list(dataset.schema.names)
        if not names:
            raise DataError("a table is read from a Parquet file or a folder of them, there is none; check the path")
        self._y = [y] if isinstance(y, str) else y
        if not isinstance(self._y, list | tuple) or not all(isinstance(name, str) for name in self._y) or not self._y:
            raise DataError(
                f"y must be the name of a column of the file, or a list of names, got {shown(y)}; the columns are "
                f"{', '.join(names[:20])}"
            )
        if sample_weight is not None and not isinstance(sample_weight, str):
            raise DataError(f"sample_weight must be the name of a column of the file, got {shown(sample_weight)}")
        used = [*self._y, *([sample_weight] if sample_weight else [])]
        twice = [name for name in used if used.count(name) > 1 or names.count(name) > 1]
        if twice:
            raise DataError(
                f"y and sample_weight must be different columns of the file, each there once, {twice[0]!r} is not; "
                f"name another, or rename it"
            )
        missing = [name for name in used if name not in names]
        if missing:
            raise DataError(f"the file has no column {missing[0]!r}; its columns are {', '.join(names[:20])}")
        self._dataset, self._flat, self._weight = dataset, isinstance(y, str), sample_weight
        self._features = [name for name in names if name not in used]
        if not self._features:
            raise DataError("a fit needs at least one column besides y, the file has none; add the features")
        self._step = batch_rows(memory_limit, len(names))

    def rows(self) -> int:
        """Return the number of all rows, from the files' footers."""
        return int(self._dataset.count_rows())

    def parts(self, columns: Sequence[str] | None, order: np.random.Generator | None = None) -> Iterator[Rows]:
        """Read the rows in order, or row groups in a random one; small row groups are joined."""
        features = self._features if columns is None else [name for name in self._features if name in set(columns)]
        wanted = [*features, *self._y, *([self._weight] if self._weight else [])]
        for number, table in enumerate(_readable(_tables(self._dataset, wanted, self._step, order))):
            y = [_values(table[name]) for name in self._y]
            weight = None if self._weight is None else _values(table[self._weight])
            yield Rows(table.select(features), y[0] if self._flat else np.stack(y, axis=1), weight, number)


def _values(column: Any) -> Any:
    """Return a column of pyarrow as an array; numbers with gaps have NaN there."""
    return column.to_numpy()


def _readable(tables: Iterator[Any]) -> Iterator[Any]:
    """Let what pyarrow says of a file that it cannot read become one sentence."""
    import pyarrow as pa

    try:
        yield from tables
    except FileNotFoundError as error:
        raise DataError(
            f"files of a source must stay where they are while a fit reads them, one is gone: {one_line(error, 200)}; "
            f"fit again once they are in place"
        ) from None
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(
            f"all files of a source must be Parquet with columns of the same types: "
            f"{' '.join(str(error).split())[:200]}; convert or remove the other files"
        ) from None


def _tables(dataset: Any, columns: Sequence[str], rows: int, order: np.random.Generator | None) -> Iterator[Any]:
    """Read tables of so many rows; the last has what is left."""
    import pyarrow as pa

    waiting: list[Any] = []
    count = 0
    for batch in _batches(dataset, columns, min(rows, READ_ROWS), order):
        waiting.append(batch)
        count += len(batch)
        while count >= rows:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, rows)
            waiting, count = table.slice(rows).to_batches(), count - rows
    if count:
        yield pa.Table.from_batches(waiting)


def _batches(dataset: Any, columns: Sequence[str], rows: int, order: np.random.Generator | None) -> Iterator[Any]:
    """Decode a dataset, so many rows at a time; with an order, its files and their row groups in a random one.

    What a scanner reads ahead of a slow caller has no limit, and buffers of row groups stay until a file is closed. So
    Parquet files are read one after the other, unbuffered, where they have all columns in the dataset's types.
    """
    import pyarrow.parquet as pq

    how: dict[str, Any] = {
        "columns": list(columns), "batch_size": rows, "batch_readahead": 0, "fragment_readahead": 0
    }  # fmt: skip
    wanted = [dataset.schema.field(name) for name in columns]
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # a filter: pyarrow gives no files then
        yield from dataset.to_batches(**how)
        return
    for fragment, groups in _pieces(fragments, order):
        own = fragment.physical_schema
        plain = groups is not None and all(
            own.get_field_index(field.name) >= 0 and own.field(field.name).type == field.type for field in wanted
        )
        if not plain:
            some = fragment if groups is None or order is None else fragment.subset(row_group_ids=groups)
            yield from some.to_batches(schema=dataset.schema, **how)
            continue
        with fragment.open() as opened:
            file = pq.ParquetFile(opened, pre_buffer=False)
            for batch in file.iter_batches(rows, row_groups=groups, columns=list(columns)):
                yield batch.select(list(columns)).replace_schema_metadata()


def _pieces(fragments: Sequence[Any], order: np.random.Generator | None) -> Iterator[tuple[Any, list[int] | None]]:
    """Yield files, and of Parquet the row groups to read of each; with an order one at a time."""
    groups = [
        [group.id for group in fragment.row_groups] if hasattr(fragment, "row_groups") else None
        for fragment in fragments
    ]
    if order is None:
        yield from zip(fragments, groups, strict=True)
        return
    pieces = [
        (fragment, None if one is None else [one])
        for fragment, own in zip(fragments, groups, strict=True)
        for one in ([None] if own is None else own)
    ]
    yield from (pieces[k] for k in order.permutation(len(pieces)).tolist())


def _opened(data: Any) -> Any:
    """Open a Parquet file or a folder of them; a dataset is one already."""
    if is_arrow_dataset(data):
        return data
    try:
        path = Path(data)
        found = path.exists()
    except (OSError, ValueError, TypeError):  # no name that a file may have
        found = False
    if not found:
        raise DataError(f"a table is read from a Parquet file or a folder of them, {shown(data)} does not exist")
    try:
        import pyarrow.dataset as ds
    except ImportError:
        raise DataError(
            "Parquet files are read by pyarrow, which is not installed; pip install knotwork[parquet]"
        ) from None
    import pyarrow as pa

    try:
        return ds.dataset(path, format="parquet")
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{str(path)!r} must be Parquet: {' '.join(str(error).split())[:200]}; read other files into a table first"
        ) from None


def batch_rows(memory_limit: int, columns: int) -> int:
    """Return the rows of a batch: half of the memory is for them, the other half for the sums and the sample.

    >>> batch_rows(1 << 30, 20)
    559240
    """
    return max(MIN_ROWS, memory_limit // 2 // (8 * COPIES * columns))
