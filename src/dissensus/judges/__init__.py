"""Language models as judges: compared with humans who labelled the same items.

``answers`` holds one label per annotator and item; ``comparison`` tests whether a judge may replace a human
and how it differs from the human population; ``panel`` estimates how many independent votes a panel of judges
is worth; ``rates`` corrects class shares if humans labelled few items; ``report`` combines the results.
``humans`` joins human labels in a second file.
Judges are identified by ``annotators/judge_detection``.
"""
