"""The event bus: CloudEvents about sessions, tools, approvals and skills, on NATS JetStream."""
