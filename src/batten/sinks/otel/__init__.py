"""OpenTelemetry: traces and metrics of runs, derived from facts, exported as OTLP over HTTP."""
