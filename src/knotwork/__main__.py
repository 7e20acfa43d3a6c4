"""``python -m knotwork`` is the ``knotwork`` command."""

from knotwork.cli import app

if __name__ == "__main__":
    app(prog_name="knotwork")
