"""What a workspace supplies: settings, MCP servers, skills and plugins, each asked about before it counts.

Of content that is not trusted only what forbids is kept, and skills that are nothing but text.
"""
