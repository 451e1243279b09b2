"""Text collections: reading, generating, counting words, features of pairs of query and document."""
