"""What verify, profile, tune and bench found, kept on this computer for later."""
