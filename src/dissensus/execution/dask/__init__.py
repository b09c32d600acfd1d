"""More than one machine: the same steps on the workers of a Dask cluster. See docs/cluster.md.

::

    cluster.py    reaching a cluster, and the one way in which calls run on it
    blocks.py     the rounds of a fit: sums over blocks, in order
    tasks.py      independent tasks, such as the trials of a search, as they finish
"""
