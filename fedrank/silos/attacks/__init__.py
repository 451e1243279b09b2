"""Attacks on what a silo sends: was a record among the rows that a model or a sum was made of?"""
