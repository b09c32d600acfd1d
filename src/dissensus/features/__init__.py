"""The way from text to features: sentence embeddings, kept on disk once computed, and feature files."""
