"""Rollouts that search: an asynchronous client for a retrieval server, an agent loop with search tags, a tool for veRL."""
