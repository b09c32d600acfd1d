"""What builds the documentation site, and what checks it."""
