"""What events cost: accountants, privacy profiles and losses, and noise calibrated to a budget."""
