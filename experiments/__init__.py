"""Measurements outside the library: each module measures and writes the page of docs/results with its name.

Run from the root of the repository as ``python -m experiments.<name>``.
"""
