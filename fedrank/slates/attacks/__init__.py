"""Attacks on the messages between platforms."""
