"""Which model, and which settings, suit these labels? Those that best foresee labels they have not seen.

::

    compare.py    models against each other on hidden labels; what "auto" tries
    sizes.py      numbers of clusters that fit the labels
    select.py     every cell of a grid of settings, and what its winner is held against
    search.py     the cells, the trials that are run, and a record that survives a kill
    race.py       which cells need not be fitted to the end
    criteria.py   what a trial is judged by
    results.py    scores, gains, and whether the winner would stay
"""
