"""Continuous piecewise-linear functions from anywhere: their lattice form, their pieces, and fits of them."""
