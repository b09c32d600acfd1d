"""Which settings suit these labels? Trials that any processor may run, on a record that survives a kill.

::

    grid.py          settings to try, and estimators that have them
    criteria.py      what a trial is judged by: labels or items not seen
    information.py   … or an information criterion
    trials.py        which trials are run, in which order
    workers.py       … on which processes
    journal.py       what is finished, on disk
    results.py       scores of a cell, gains, stability
    progress.py      how much is behind and how long the rest will take

:func:`dissensus.select` puts them together.
"""
