"""Every figure in the README and the docs equals a result file, and the check notices one that does not."""

import re
import shlex
import shutil

import pytest
from benchmarks import figures
from benchmarks.suite import __main__ as suite


def test_every_figure_has_a_source_and_equals_it():
    assert figures.all_wrong() == []


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A README and one page with their result files, to be changed."""
    shutil.copytree(figures.RESULTS, tmp_path / "results")
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "docs/heads.md"):
        shutil.copy(figures.ROOT / page, tmp_path / page)
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results")
    for name in [source.removeprefix("test: ") for page in figures.pages() for *_, source in figures.sources(page)
                 if source.startswith("test: ")]:  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert figures.all_wrong() == []
    return tmp_path


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(("old", "new", "sentence"), [
    ("| random | 0.001 | 12.0 |", "| random | 0.001 | 11.0 |", "the table is not that of benchmarks/results/transfer"),
    ("79.5 %", "78.5 %", "78.5 has no source"),
    ("79.5 %", "many", "79.5 is not on the page any more"),
])  # fmt: skip
def test_a_changed_page_is_noticed(copy, old, new, sentence):
    edit(copy / "docs/heads.md", old, new)
    assert any(sentence in found for found in figures.all_wrong())


def test_new_results_are_noticed_and_written_into_pages_and_prose(copy):
    page = copy / "docs/heads.md"
    page.write_text(page.read_text() + "\n## In short\n\nIt begins at 85.5 %, as in 3 of 4 cases.\n")
    figures.add("docs/heads.md", "transfer_2000.csv | spline, 0.001 | epoch 0")
    rows = figures.sources("docs/heads.md")
    rows[-1][2] = "defined: an example"
    figures.write_sources("docs/heads.md", rows)
    assert figures.all_wrong() == []
    edit(copy / "results/transfer_2000.csv", "spline,0.001,85.5", "spline,0.001,86.4")
    assert len(figures.all_wrong()) == 2
    figures.write()
    assert figures.all_wrong() == []
    assert "| spline | 0.001 | 86.4 |" in page.read_text()
    assert "It begins at 86.4 %, as in 3 of 4" in page.read_text()


def test_what_counts_as_a_figure(copy):
    (copy / "docs/page.md").write_text(
        "# A\n\nTakes 6 to 400 times as long, on 23 of\n25 tables; `0.5` is code, Python 3.11 a name, 9 × 9 a size.\n"
        "```python\nx = 0.25\n```\n| a | b |\n|---|---|\n| 1.5 | 3 % |\n"
    )
    assert [figure for _, figure in figures.figures("docs/page.md")] == ["6", "400", "23 of 25", "1.5", "3"]


def test_tables_of_the_suite_are_those_of_its_committed_results(capsys, monkeypatch):
    monkeypatch.chdir(figures.ROOT)
    names = [path.name for path in figures.RESULTS.glob("*.csv")
             if re.match("# command: python -m benchmarks.suite table", path.read_text())]  # fmt: skip
    assert len(names) >= 2
    for name in names:
        command = (figures.RESULTS / name).read_text().splitlines()[0].removeprefix("# command: ")
        suite.main(shlex.split(command)[3:])
        printed = [figures.body(lines) for _, _, lines in figures.tables(capsys.readouterr().out)]
        head, *rows = figures.stored(name)
        tables = [[[row[new[0].index(title)] for title in head] for row in new[1:]]
                  for new in printed if set(head) <= set(new[0])]  # fmt: skip
        assert rows in tables, name
