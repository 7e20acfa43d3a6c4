"""Sums over the rows: the only thing the search ever asks of the data, and the place where backends plug in."""
