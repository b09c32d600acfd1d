"""Learners: from an item's features or text to its label distribution, all with one signature.

``fit(X, distributions, dev=None)`` learns from one distribution an item, ``dev=(X, distributions)`` being
the part that strengths and epochs are chosen on; ``label_distributions(X)`` predicts.
"""

# class -> module
LEARNERS = {"SoftmaxRegression": "softmax", "FineTunedEncoder": "finetuned"}
