"""Data sets: what may be loaded and how (:func:`load`), the catalogue, downloads, checksums."""

from fedrank.data.sources import load as load
