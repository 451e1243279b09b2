"""Measures of rankings (from labels and from clicks), of classifiers and of policies."""
