"""Attacks on what a silo sends: was a record among the rows of a model or a sum, and does it change a message?"""
