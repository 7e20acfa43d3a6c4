"""A function becomes a network: units of a spline or a lattice, lowered to an activation, as a chain of layers."""
