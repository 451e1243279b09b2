"""A hub's public log of its terms and of every model that it handed out; proofs, signed heads, witnesses."""
