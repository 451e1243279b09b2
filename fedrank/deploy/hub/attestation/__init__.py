"""Statements of a platform, checked when a device enrols: that an app is what it says, on a real device."""
