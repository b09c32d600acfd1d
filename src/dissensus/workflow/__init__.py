"""One whole job: choose and fit a model (refine.py), write what it found and read it back (runs.py)."""
