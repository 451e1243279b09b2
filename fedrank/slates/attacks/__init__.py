"""What the messages between platforms tell an attacker."""
