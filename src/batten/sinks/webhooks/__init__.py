"""Webhooks: signed HTTP requests about runs, to receivers that subscribed."""
