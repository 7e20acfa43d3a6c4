"""Targets of atheris, which need not be installed: nothing imports them."""
