"""Training runs compared on one HTML page."""
