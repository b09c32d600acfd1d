"""Classifiers taught by refined label distributions."""
