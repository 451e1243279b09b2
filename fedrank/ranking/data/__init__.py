"""Queries with judged documents: reading LETOR files, generating, normalising, dealing out to devices."""
