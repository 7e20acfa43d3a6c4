"""Saved models: values as JSON and arrays and back, the checks of what was read, the files in a folder."""
