"""Tests of the coordination runtime over gRPC, with real processes and the published SDK."""
