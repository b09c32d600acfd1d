"""Benchmarks of time and memory: ``speed`` runs those with a limit, ``scale`` measures 10⁵ to 10⁸ labels.

Run from the root of the repository as ``python -m benchmarks.<name>``.
"""
