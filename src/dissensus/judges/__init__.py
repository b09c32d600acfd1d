"""Judges beside humans: language models that label the same items as people do.

``answers`` lays out what both said; ``comparison`` asks whether a judge may replace a human and how it
differs from the human population, ``panel`` how many votes a panel of judges is, ``rates`` what the shares of
the classes are where humans labelled few items. ``report`` puts it together. Who is a judge is found by
``annotators/judge_detection``.
"""
