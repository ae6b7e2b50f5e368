"""Short scripts that use the library as a user would."""
