"""One confined root: files, search, watch, patches, commands and their sandbox."""
