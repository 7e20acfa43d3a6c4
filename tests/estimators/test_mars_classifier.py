import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import knotwork as kw


@parametrize_with_checks([kw.MarsClassifier()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
