"""The interface that ``import fedrank`` offers: train, look at the result, keep the model, use it."""
