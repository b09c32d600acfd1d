"""The paper's evaluation, run again: Tables 1 to 3, its three questions, and what it could not ask.

::

    printed.py    the figures that the paper prints
    scale.py      how much is computed: repeats, grids, epochs
    datasets.py   where the data are, and how they are split
    cells.py      one measured thing: a file with its settings, seeds and numbers
    columns.py    the models of Table 3
    plan.py       which cells there are; later ones build on what earlier ones chose
    measures.py   how the cells of the tables are measured …
    questions.py  … and those of the further measures: hidden labels, few labels, gold
    running.py    cells on processes; what is finished is kept
    findings.py   the numbers of finished cells, read back from their files
    ensembles.py  averages of predictions
    tables.py     Tables 1 to 3
    misses.py     cells that are worse than printed, with the reason in numbers
    answers.py    the three questions, answered with bootstrap intervals
    choice.py     the model that dev would choose
    figures.py    t-SNE maps
    recovery_curve.py  the population from few labels
    stories.py    what the page says about its tables
    page.py       everything on one page
    evaluation.py the whole of it

``dissensus reproduce`` is the door; :func:`evaluation.reproduce` does the work.
"""
