"""Privacy of a record at a silo: what leaves it is differentially private about each of its rows.

The unit is one record in another's place: everything that a silo sends becomes at most e^ε times as likely, but for a
probability of δ, when one of its rows is replaced by any other. How many rows it has is public. Noise is added at the
silo, from the operating system's randomness, so that neither the server nor another silo has to be trusted.
"""
