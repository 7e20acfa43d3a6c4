"""How loops run: compiled kernels and worker threads."""
