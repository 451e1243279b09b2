"""Attacks on sketches of documents and on questions about them, on generated documents."""
