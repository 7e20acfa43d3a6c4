"""The spline: knots → moments → forward → prune → refit, each stage a file, ``fit`` the whole in one page."""
