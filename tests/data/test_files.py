import csv
import gzip
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knotwork.atomic import atomic_file
from knotwork.data import files, pieces
from knotwork.data.blocks import read_blocks
from knotwork.data.files import read_file
from knotwork.errors import ColumnsError, DataError, MissingPackage


@pytest.fixture
def write(tmp_path):
    def write(text, name="table.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return path

    return write


def values(table, name):
    column = table.columns[name]
    return column.tolist()


def read_whole(path, **options):
    """Read a file all of whose columns are needed."""
    table = read_file(path, **options)
    table.require(table.kinds)
    return table


def everything(table):
    return table.frame(tuple(table.columns), np.arange(table.rows))


def test_quotes_semicolons_decimal_commas_utf8_and_a_byte_order_mark(write):
    path = write(
        '"Größe";"Art; Sorte";naïve;ok\n1,5;"a;b";"say ""hi""";True\n-2,25;"two\nlines";ü;False\n', encoding="utf-8-sig"
    )
    table = read_file(path)
    assert dict(table.kinds) == {"Größe": "number", "Art; Sorte": "text", "naïve": "text", "ok": "boolean"}
    assert values(table, "Größe") == [1.5, -2.25]
    assert values(table, "Art; Sorte") == ["a;b", "two\nlines"]
    assert values(table, "naïve") == ['say "hi"', "ü"]
    assert values(table, "ok") == [1.0, 0.0]
    assert table.described == "CSV, fields separated by semicolons with decimal commas"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found(write, delimiter):
    rows = [["a", "b", "c"], ["1", "x", "2.5"], ["2", "y", "3.5"]]
    table = read_file(write("\n".join(delimiter.join(row) for row in rows)))
    assert list(table.kinds) == ["a", "b", "c"]
    assert values(table, "c") == [2.5, 3.5]


def test_spaces_blank_lines_windows_ends_and_gzip(write):
    text = "a, b\r\n1, 2\r\n\r\n3, 4\r\n"
    for path in (write(text), write(gzip.compress(text.encode()), "table.csv.gz")):
        table = read_file(path)
        assert (values(table, "a"), values(table, "b")) == ([1, 3], [2, 4])


def test_numbers_come_back_to_the_last_bit(write):
    numbers = np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-100, 100)
    table = read_file(write("x,y\n" + "\n".join(f"{v!r},1" for v in numbers.tolist())))
    assert np.array_equal(table.columns["x"], numbers)


TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8).map(lambda t: f"t{t}")
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(
    data=st.lists(st.tuples(NUMBERS, TEXTS, st.booleans(), st.integers(-(2**53), 2**53)), min_size=1, max_size=30),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_whatever_csv_writes_comes_back(tmp_path_factory, data, delimiter, quoting, ends):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=ends)
        writer.writerows([("number", "text", "flag", "whole"), *data])
    table = read_file(path)
    assert list(table.kinds.values()) == ["number", "text", "boolean", "number"]
    for name, column in zip(table.kinds, zip(*data, strict=True), strict=True):
        assert values(table, name) == list(column)


def test_missing_values_are_known_and_none_is_a_category(write):
    table = read_file(write("a,b,c,d\n1,x,True,None\nNA,,,brick\n3,y,False,None\n"))
    assert dict(table.kinds) == {"a": "number", "b": "text", "c": "boolean", "d": "text"}
    for name in "abc":
        assert table.missing(name).tolist() == [False, True, False]
    assert not table.missing("d").any()


def test_a_nameless_column_gets_a_name(write):
    assert list(read_file(write(",x\n0,5\n1,6\n")).kinds) == ["column 1", "x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n  \n", "is empty"),
        ("a,b\n", "has column names only"),
        ("1.5,2\n3,4\n", "must name the columns, that of .* holds only numbers"),
        ("a,b,a\n1,2,3\n", "names must differ, .* has 'a' in columns 1 and 3"),
        ("a,b\n1,2\n3,4,5\n6,7\n", "here 2, line 3 of .* has 3"),
        ("a,b\n1,2,3\n4,5,6\n", "line 2 of .* has 3"),
        ("a,b,c\n1,2,3\n\"4\n5\",6,7\n8,9\n", "line 5 of .* has 2"),
        ("a,b\n1,2\n\"3,4\n5,6\n", "line 3 of"),
        ("a,b\n1,2\n3,x7\n4,5\n5,6\n", "column 'b' must hold numbers, line 3 of .* has 'x7'"),
        ("a;b\n1,5;2\n2,5;x\n1,0;4\n1,0;4\n", "column 'b' must hold numbers, line 3 of .* has 'x'"),
        ('a,b\n1,"1,234"\n2,"2,500.50"\n', "column 'b' must hold numbers, line 2 of .* has '1,234'"),
        ("a,b\n1,$ 10\n2,$ 20\n", "column 'b' must hold numbers, line 2 of .* has '\\$ 10'"),
        (b"a,b\n1,caf\xe9\n", "must be text in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "is in UTF-16"),
        (b"PK\x03\x04rest", "a zip archive or a spreadsheet; save the sheet as CSV"),
        (b"\x89PNG\r\n\x1a\n\0\0", "some other binary file"),
        (b"\xd0\xcf\x11\xe0\0", "an old spreadsheet"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(write, text, message):
    path = write(text)
    with pytest.raises(DataError, match=message) as error:
        read_whole(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_bytes_that_are_not_utf8_far_into_a_file(write):
    path = write(b"a,b\n" + b"1,x\n" * 50_000 + b"1,caf\xe9\n")
    with pytest.raises(DataError, match="must be text in UTF-8"):
        read_file(path)


def test_wrong_files(tmp_path, write):
    with pytest.raises(DataError, match="does not exist"):
        read_file(tmp_path / "none.csv")
    with pytest.raises(DataError, match="is a folder"):
        read_file(tmp_path)
    with pytest.raises(DataError, match="begins with PAR1"):
        read_file(write("a,b\n1,2\n", "table.parquet"))
    with pytest.raises(DataError, match="cannot be read"):
        read_file(write(b"PAR1 and nothing else", "cut.parquet"))


def test_parquet_without_pyarrow(write, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingPackage, match=r"pip install 'knotwork\[parquet\]'"):
        read_file(write(b"PAR1", "table.parquet"))


def test_parquet_keeps_the_types_it_was_written_with(tmp_path):
    frame = pd.DataFrame({
        "Länge": [1.5, 2.5, np.nan], "zahl": [1, 2, 3], "ja": [True, False, True], "code": ["1", "2", "3"],
        "art": pd.Categorical(["x", "y", "x"]), "vielleicht": [True, None, False],
        "tag": pd.date_range("2024-01-01", periods=3),
    })  # fmt: skip
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_file(tmp_path / "t.parquet")
    assert list(table.kinds.values()) == ["number", "number", "boolean", "text", "text", "boolean", "date"]
    assert table.missing("Länge").tolist() == [False, False, True]
    assert values(table, "art") == ["x", "y", "x"]
    assert table.missing("vielleicht").tolist() == [False, True, False]
    read = read_file(tmp_path / "t.parquet", columns={"code": "text", "zahl": "number"})
    assert list(read.columns) == ["code", "zahl"]
    with pytest.raises(DataError, match=r"'code' .* must hold numbers"):
        read_whole(tmp_path / "t.parquet", columns={"code": "number"})
    assert values(read_file(tmp_path / "t.parquet", as_text=["zahl"]), "zahl") == ["1", "2", "3"]


def test_parquet_with_damaged_pages_is_named(tmp_path):
    """The footer is whole, so that the file opens; a prediction from it must not blame its own output."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": np.random.default_rng(0).normal(size=2000)}), path, compression="zstd")
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56  # the head of the first page
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a Parquet file must be whole, .*t.parquet cannot be read .*; copy it again"):
        read_file(path)
    with pytest.raises(DataError, match="a Parquet file must be whole"), atomic_file(tmp_path / "out"):
        list(read_blocks(path, {"a": "number"}))


def test_nested_parquet_columns_are_refused(tmp_path):
    pd.DataFrame({"x": [1.0], "lists": [[1, 2]]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"column 'lists' .* holds list"):
        read_whole(tmp_path / "t.parquet")


@pytest.mark.parametrize("text", ["2024-01-31", "2024-1-3 12:30", "31.01.2024", "1/31/24", "2024/01/31"])
def test_dates_are_seen(write, text):
    assert read_file(write(f"a,when\n1,{text}\n")).kinds["when"] == "date"


def test_numbers_as_text_and_columns_by_kind(write):
    path = write("zip,x,more\n01,1.5,a\n02,2.5,b\n")
    assert values(read_file(path, as_text=["zip"]), "zip") == ["01", "02"]
    table = read_file(path, columns={"x": "number", "zip": "text"})
    assert list(table.columns) == ["x", "zip"]
    with pytest.raises(DataError, match=r"column 'more' must hold numbers, line 2 of .* has 'a'"):
        read_whole(path, columns={"more": "number"})
    with pytest.raises(
        DataError, match=r"no column 'ziip' \(did you mean 'zip'\?\), 'q'; its columns are 'zip', 'x', 'more'"
    ):
        read_file(path, columns={"ziip": "text", "q": "number"})


def test_many_blocks_are_one(write, monkeypatch):
    """Text, numbers and gaps that appear in some blocks only are what they are in one block."""
    monkeypatch.setattr(files, "BLOCK", 0)  # blocks of 1000 rows
    n = 3500
    frame = pd.DataFrame({
        "x": np.arange(n) / 4, "late text": ["7"] * 2999 + ["b"] * 501, "gap": [None] * 1500 + [1.0] * 2000,
        "gap text": [None] * 1500 + ["a", "b"] * 1000, "flag": [True, False] * 1750,
    })  # fmt: skip
    path = write("")
    frame.to_csv(path, index=False)
    parts = read_file(path)
    monkeypatch.undo()
    full = read_file(path)
    assert parts.kinds == full.kinds
    assert list(parts.kinds.values()) == ["number", "text", "number", "text", "boolean"]
    for name in frame:
        assert np.array_equal(parts.missing(name), full.missing(name))
    pd.testing.assert_frame_equal(everything(parts), everything(full), check_categorical=False)
    assert values(parts, "late text") == frame["late text"].tolist()


def test_junk_in_a_late_block_is_found(write, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 0)
    path = write("a,b\n" + "".join(f"{k},{k / 3}\n" for k in range(2500)) + "1,oops\n")
    with pytest.raises(DataError, match=r"column 'b' must hold numbers, line 2502 of .* has 'oops'"):
        read_whole(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_that_cannot_be_read_are_refused_together_when_they_are_needed(write, ending):
    path = write("", f"t.{ending}")
    prices = [f"$ {k}" for k in range(9)]
    frame = pd.DataFrame({
        "a": range(9), "b": [*prices[:-1], "none"] if ending == "csv" else [[1]] * 9,
        "c": ["x", *range(8)] if ending == "csv" else [{"x": 1}] * 9, "d": [1.5] * 9,
    })  # fmt: skip
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    table = read_file(path)
    assert (list(table.columns), list(table.refused), table.rows) == (["a", "d"], ["b", "c"], 9)
    assert everything(table)["a"].tolist() == list(range(9))
    for name in ("b", "c"):
        with pytest.raises(DataError, match=f"column '{name}'"):
            table.missing(name)
    with pytest.raises(ColumnsError) as error:
        table.require(["a", "c", "b"])
    assert error.value.args == (table.refused["c"], table.refused["b"])
    if ending == "csv":
        assert f"line 2 of {path} has '$ 0'" in table.refused["b"]
        assert f"line 2 of {path} has 'x'" in table.refused["c"]
    table.require(["a", "d"])


def test_a_file_of_nothing_that_can_be_read_has_rows(tmp_path):
    pd.DataFrame({"lists": [[1, 2]] * 4}).to_parquet(tmp_path / "t.parquet")
    table = read_file(tmp_path / "t.parquet")
    assert (table.rows, list(table.refused)) == (4, ["lists"])


def test_text_without_end_is_let_go(write, monkeypatch):
    monkeypatch.setattr(pieces, "MAX_TEXTS", 50)
    table = read_file(write("key,x\n" + "".join(f"k{k},1\n" for k in range(100))))
    assert table.kinds["key"] == "text"
    assert "key" not in table.columns


def test_the_memory_of_a_read_is_a_small_multiple_of_the_table(write, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 200_000)
    rows, columns = 100_000, 12
    path = write("")
    matrix = np.random.default_rng(0).random((rows, columns)).round(4)
    pd.DataFrame(matrix, columns=[f"x{k}" for k in range(columns)]).to_csv(path, index=False)
    read_file(path)  # what is loaded on first use does not count
    tracemalloc.start()
    table = read_file(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = rows * columns * 8
    assert sum(column.nbytes for column in table.columns.values()) == size
    assert peak < 2 * size


def test_a_frame_has_its_numbers_in_one_matrix_in_the_files_order(write):
    table = read_file(write("a,t,b,c\n1,x,2,3\n4,y,5,6\n7,x,8,9\n"))
    frame = table.frame(("a", "t", "b"), np.array([2, 0]))
    assert frame.columns.tolist() == ["a", "t", "b"]
    assert frame["b"].tolist() == [8, 2]
    assert frame["t"].tolist() == ["x", "x"]
    numbers = table.frame(("a", "b", "c"), np.arange(3))
    assert np.shares_memory(numbers.to_numpy(), numbers.to_numpy())


def test_hundreds_of_columns_of_both_kinds(write):
    frame = pd.DataFrame({f"c{k}": ["a", "b"] if k % 2 else [k, k + 1] for k in range(400)})
    path = write("")
    frame.to_csv(path, index=False)
    read = everything(read_file(path))
    assert read.columns.tolist() == frame.columns.tolist()
    assert read["c398"].tolist() == [398, 399]
    assert read["c399"].tolist() == ["a", "b"]
