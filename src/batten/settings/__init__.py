"""Settings: scopes, trust and plugins, read once into one frozen value."""
