"""Attacks on whole documents: which words are in one, and is a given text among an owner's?

They are made on a collection of real documents, by those who see most: another owner of a sketched federation, its
server, and an owner or an asker of a search that is served.
"""
