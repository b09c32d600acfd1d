"""Refined labels where people work already: PyTorch, scikit-learn, MLflow, Label Studio.

Each package is imported when a function that needs it is called.
"""
