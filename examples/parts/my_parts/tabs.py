"""A format of data: tables whose columns are separated by tabs."""

import polars as pl


def read_tabs(path):
    """The data frame of a file."""
    return pl.read_csv(path, separator="\t")
