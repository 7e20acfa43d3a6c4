"""Explanations: what a fitted spline or network says, in numbers, pictures and one page."""
