"""The coordination runtime over gRPC: the published service on a real journal."""
