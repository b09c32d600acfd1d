"""The paper's evaluation, run again: Tables 1 to 3, its three questions, and what it could not ask.

In the order of the work::

    printed.py    the figures that the paper prints
    datasets.py   where the data are, and how they are split
    cells.py      one measured thing: a file with its settings, seeds and numbers
    columns.py    the models that are compared
    plan.py       which cells there are, and how much is computed for them
    measures.py   how a cell is measured, by its kind
    run.py        the whole of it: cells on processes, what is finished is kept
    findings.py   the numbers of finished cells, read back from their files
    tables.py     Tables 1 to 3 and those of the further measures
    as_printed.py  the paper's columns once more, nothing done otherwise than it does
    answers.py    figures worse than printed, and the three questions answered with intervals
    figures.py    maps and curves
    page.py       everything on one page

``make reproduce`` runs ``python -m reproduction``, which calls :func:`run.reproduce`.
None of it is installed with the library.
"""
