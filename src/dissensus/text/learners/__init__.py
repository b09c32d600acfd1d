"""Learners: from an item's features or text to its label distribution.

``fit(X, distributions, dev=None)`` learns from one distribution per item; penalties and epochs are chosen on
``dev=(X, distributions)``. ``label_distributions(X)`` predicts.
"""

# class -> module
LEARNER_MODULES = {"SoftmaxRegression": "softmax", "FineTunedEncoder": "finetuned"}
