"""One runtime for each module of tests."""

from tests.serve.grpc.running import server

__all__ = ["server"]
