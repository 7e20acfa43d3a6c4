"""scikit-learn faces: thin classes over the functions that do the work."""
