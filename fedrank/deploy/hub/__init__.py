"""A hub: devices enrol, fetch the model and report over HTTP; rounds close and the model improves."""
