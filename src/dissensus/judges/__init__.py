"""Judges beside humans: language models that label the same items as people do.

``who`` tells judges from humans; ``answers`` lays out what both said; ``replacement`` asks whether a judge
may replace a human, ``difference`` how it differs from the human population, ``panel`` how many votes a
panel of judges is, ``rates`` what the shares of the classes are where humans labelled few items. ``report``
puts it together.
"""
