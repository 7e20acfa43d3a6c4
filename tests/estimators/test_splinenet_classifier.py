from sklearn.utils.estimator_checks import parametrize_with_checks

import knotwork as kw


@parametrize_with_checks([kw.SplineNetClassifier(hidden=(16,), epochs=20)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
