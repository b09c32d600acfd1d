"""Build and check the documentation site."""
