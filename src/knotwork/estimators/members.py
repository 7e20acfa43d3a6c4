"""The members of an ensemble: which rows each one leaves out, what is kept of it, and what they predict together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.sample import Sample
from knotwork.data.split import folds_of, held_out
from knotwork.errors import MembersWarning, warn
from knotwork.estimators.validation import Rows, ValidationSplit
from knotwork.network.chain import Chain, evaluate
from knotwork.network.train.history import History
from knotwork.spline.model import Spline, Term


@dataclass(frozen=True)
class Member:
    """One of the networks that are trained together.

    spline : what it computed at epoch 0, None for a random start
    coordinates : the means and stds that it was trained in
    start_network : the network at epoch 0
    history : its losses; the epoch that was kept is the same for all members
    held_out : numbers of the rows it was not trained on, in the table given to ``fit``
    """

    spline: Spline | None
    coordinates: Coordinates
    start_network: nn.Sequential
    history: History
    held_out: NDArray[np.intp]

    def __repr__(self) -> str:
        start = "random weights" if self.spline is None else f"a spline of {len(self.spline.terms)} terms"
        return f"Member(from {start}, {len(self.held_out)} rows held out, {self.history!r})"


@dataclass(frozen=True)
class MemberRows:
    """Rows of one member, by number: to train on, to validate on, and to fit its spline to and choose it by.

    A spline is chosen by the validation rows where there is one member; where there are several, by some of the
    training rows, and its coefficients are then fitted to all rows for the spline.
    """

    training: Rows
    validation: Rows
    spline: Rows
    choosing: Rows

    @property
    def refit(self) -> Rows | None:
        """Rows to fit the chosen spline's coefficients to; None for those that it was fitted to."""
        inside = self.choosing is not self.validation
        return np.union1d(self.spline, self.choosing) if inside else None


def member_rows(
    rows: Sample, split: ValidationSplit, seed: int, *, choosing: float | None, spline: float | None
) -> MemberRows:
    """Say what each row of a member is for.

    choosing : share of the rows for the spline to choose it by; None is by the validation rows
    spline : share of the training rows for the spline alone; None is all of them, for both
    """
    training = own = split.training
    if spline is not None:
        training, own = _parted(rows, training, spline, seed + 1)
    if choosing is None:
        return MemberRows(training, split.validation, own, split.validation)
    return MemberRows(training, split.validation, *_parted(rows, own, choosing, seed + 2))


def _parted(rows: Sample, numbers: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    """Part some rows into the others and about this share; rows that are all equal are both."""
    out = held_out(rows.X[numbers], share, seed)
    return (numbers[~out], numbers[out]) if out.any() else (numbers, numbers)


def fold_splits(rows: Sample, members: int, seed: int, classes: bool, *, warns: bool) -> list[ValidationSplit]:
    """Return the training and validation rows of each member, which leaves one fold out; fewer where rows are few.

    warns : whether to say so
    """
    folds = folds_of(rows.X, members, seed, rows.y if classes else None)
    count = int(folds.max()) + 1
    if warns and count < members:
        few = "rows of the rarest class" if classes else "rows"
        warn(
            f"each member leaves out a fold of its own, and there are no more than {count} distinct {few}: "
            f"n_members={members} becomes {count}; set n_members={count}, or collect more rows",
            MembersWarning,
        )
    if count == 1:
        return []
    return [ValidationSplit(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(count)]


def average_spline(splines: Sequence[Spline | None]) -> Spline | None:
    """Return the mean of splines of one table: the union of their terms; None if a member has none."""
    known = [spline for spline in splines if spline is not None]
    if len(known) < len(splines):
        return None
    first = known[0]
    if len(known) == 1:
        return first
    coef: dict[Term, Floats] = {}
    for spline in known:
        for term, own in zip(spline.terms, spline.coef, strict=True):
            coef[term] = coef.get(term, np.zeros_like(own)) + own / len(known)
    together = np.stack(list(coef.values())) if coef else np.zeros_like(first.coef)
    intercept = np.mean([spline.intercept for spline in known], axis=0)
    return replace(first, terms=tuple(coef), coef=together, intercept=intercept)


def out_of_fold(chains: Sequence[Chain], splits: Sequence[ValidationSplit], X: Floats) -> Floats:
    """Run each member on the rows that it was not trained on: (N, d) → (N, outputs), NaN where there is none.

    A row that several members have left out gets their mean.
    """
    total = np.zeros((len(X), chains[0].outputs))
    times = np.zeros((len(X), 1))
    for chain, split in zip(chains, splits, strict=True):
        unseen = np.setdiff1d(split.validation, split.training)
        total[unseen] += evaluate(chain, X[unseen])
        times[unseen] += 1
    with np.errstate(invalid="ignore"):
        mean: Floats = total / times
    return mean
