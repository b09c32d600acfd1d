"""Measurements that are no part of the library: each module writes one page of docs/results by computation.

Run from the root of the repository as ``python -m experiments.<name>``.
"""
