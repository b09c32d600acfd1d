"""The whole job: choose and fit a model (refine.py), write and read runs (runs.py), score estimates."""
