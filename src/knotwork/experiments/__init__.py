"""The published experiments, run again: arXiv 2102.06554, with its figures next to ours.

``protocol`` says what is run, ``runs`` and the files named after a question run it, ``store`` keeps what has been run,
``summary`` and ``report`` tell what came out. ``knotwork reproduce`` calls :func:`knotwork.experiments.reproduce`.
"""
