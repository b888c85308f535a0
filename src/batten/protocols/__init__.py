"""Pure codecs: facts to frames and frames to commands. No I/O."""
