"""Integrations with PyTorch, scikit-learn, MLflow and Label Studio, each imported when it is first used."""
