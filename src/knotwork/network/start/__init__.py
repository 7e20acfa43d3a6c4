"""Where a network begins: a spline chosen for its shape, in an estimator, a network of the user's or its head."""
