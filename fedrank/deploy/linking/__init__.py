"""Can a hub tell which reports are of one device? Real devices, a real hub and relay, and an attacker who sees all."""
