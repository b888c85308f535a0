"""Finding secrets in whole texts and in streams, and sealing what must come back unchanged."""
