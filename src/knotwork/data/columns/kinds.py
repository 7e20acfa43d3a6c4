"""All kinds of columns. Each has a name, feature names, parts to show, and a way to write its features."""

from __future__ import annotations

from knotwork.data.columns.date import Date
from knotwork.data.columns.duration import Duration
from knotwork.data.columns.level_means import LevelMeans
from knotwork.data.columns.levels import Levels
from knotwork.data.columns.number import Number
from knotwork.data.columns.ordered import Ordered
from knotwork.data.columns.skipped import Skipped

Column = Number | Levels | LevelMeans | Ordered | Date | Duration | Skipped
# Those whose values are texts or other labels.
Categories = Levels | LevelMeans | Ordered
